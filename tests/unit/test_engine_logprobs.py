"""How likely tokens were is told as the model computes it, and all tokens are as if nobody had asked."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from service.engine.engine import TextEngine
from service.engine.job import SamplingParams, Sequence
from service.engine.model.batch_cache import BatchCache
from service.engine.model.passes import Part
from service.engine.sampling import IMPOSSIBLE, log_probabilities
from tests.unit.tiny_models import Listener, run, sequence

LIKELIEST = 3
AS_COMPUTED = 1e-3  # in other shapes, so that sums differ in their last digits


def logarithms(engine: TextEngine, ids: list[int]) -> Tensor:
    """Of the probabilities of the token after each of these, [tokens, vocabulary]: each beginning is read anew."""

    def after(beginning: list[int]) -> Tensor:
        columns = torch.arange(len(beginning))[None]
        part = Part(torch.tensor([beginning]), columns, None, BatchCache(1, engine.forward.layers))
        return engine.forward.compute([part])[0].float().log_softmax(-1)

    with torch.inference_mode():
        return torch.stack([after(ids[: end + 1]) for end in range(len(ids))])


def assert_told(engine: TextEngine, asked: Sequence, first: int) -> None:
    """That it is told of each token of the text from number `first` on."""
    ids = [*asked.prompt_ids, *asked.tokens]
    computed = logarithms(engine, ids)[first - 1 : -1]
    assert len(asked.likelihoods) == len(computed)
    for token, told, expected in zip(ids[first:], asked.likelihoods, computed, strict=True):
        assert told.taken == pytest.approx(float(expected[token]), abs=AS_COMPUTED)
        highest = expected.topk(LIKELIEST).values.tolist()
        assert list(told.likeliest.values()) == pytest.approx(highest, abs=AS_COMPUTED)
        for other, value in told.likeliest.items():
            assert value == pytest.approx(float(expected[other]), abs=AS_COMPUTED)


def alone(engine: TextEngine, each: Sequence) -> list[int]:
    sampling = SamplingParams(max_tokens=each.sampling.max_tokens, temperature=each.sampling.temperature, seed=1)
    single = Sequence("alone", each.prompt_ids, sampling)
    run(engine, single)
    return single.tokens


@pytest.mark.parametrize("judges_prompt", [False, True])
def test_that_it_is_told_of_each_token_as_the_model_computes_it(tiny_engine: TextEngine, judges_prompt: bool) -> None:
    asking = {"logprobs": LIKELIEST, "judges_prompt": judges_prompt}
    asked = sequence(tiny_engine, "abc def", max_tokens=5, **asking)
    sampled = sequence(tiny_engine, "ab", max_tokens=9, temperature=1.0, seed=1, logprobs=0)
    silent = sequence(tiny_engine, "x" * 20, max_tokens=7)
    run(tiny_engine, silent, asked, sampled)
    assert_told(tiny_engine, asked, 1 if judges_prompt else len(asked.prompt_ids))
    assert [told.likeliest for told in sampled.likelihoods] == [{}] * 9
    assert silent.likelihoods == []
    assert [each.tokens for each in (asked, sampled, silent)] == [
        alone(tiny_engine, each) for each in (asked, sampled, silent)
    ]


def test_that_a_prompt_that_joins_is_judged_while_others_run(tiny_engine: TextEngine) -> None:
    joining = [[sequence(tiny_engine, "abc def", max_tokens=5, logprobs=LIKELIEST, judges_prompt=True)]]
    (asked,) = joining[0]
    listener = Listener()
    tiny_engine.generate(
        [sequence(tiny_engine, "xyz", max_tokens=20)],
        listener,
        lambda _, can_join: joining.pop() if can_join and joining else [],
    )
    assert_told(tiny_engine, asked, 1)
    assert asked.tokens == alone(tiny_engine, asked)
    first = next(step for step in listener.steps if any(each.job is asked and each.tokens for each in step))
    assert sum(each.job is asked for step in listener.steps[: listener.steps.index(first)] for each in step) == 6


def test_that_what_is_impossible_can_be_written_as_json() -> None:
    logits = torch.tensor([[0.0, float("-inf"), 0.0]])
    (told,) = log_probabilities(logits, torch.tensor([1]), [0], 3).tolist()
    assert told == pytest.approx([IMPOSSIBLE, -0.6931, -0.6931, IMPOSSIBLE, 0, 2, 1], abs=1e-3)


def test_that_a_judged_prompt_wants_its_likelihoods() -> None:
    with pytest.raises(ValueError, match="needs logprobs"):
        SamplingParams(judges_prompt=True)
