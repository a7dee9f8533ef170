"""Tokens are drawn as asked, and each row's draws are its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from service.engine.engine import TextEngine
from service.engine.job import SamplingParams
from service.engine.sampling import Draw, next_tokens
from tests.unit.tiny_models import run, sequence


def drawn(logits: list[float], uniform: float, *, temperature: float = 1.0, top_p: float = 1.0) -> int:
    tokens, fit = next_tokens(torch.tensor([logits]), [Draw(0, temperature, top_p, uniform)])
    assert fit.tolist() == [True]
    return int(tokens[0])


def log(*weights: float) -> list[float]:
    return torch.tensor(weights).log().tolist()


@pytest.mark.parametrize(
    ("uniform", "token"), [(0.0, 1), (0.19, 1), (0.21, 2), (0.69, 2), (0.71, 3), (0.9999999999, 3)]
)
def test_that_a_uniform_number_picks_the_token_at_its_share(uniform: float, token: int) -> None:
    assert drawn(log(0, 0.2, 0.5, 0.3, 0), uniform) == token


@pytest.mark.parametrize(("top_p", "possible"), [(0.4, {2}), (0.6, {2, 3}), (0.81, {1, 2, 3}), (1.0, {0, 1, 2, 3})])
def test_that_top_p_leaves_the_fewest_likeliest_tokens(top_p: float, possible: set[int]) -> None:
    logits = log(0.05, 0.15, 0.5, 0.3)
    assert {drawn(logits, i / 200, top_p=top_p) for i in range(200)} == possible


def test_that_a_flat_distribution_wider_than_the_presorted_part_is_still_cut_rightly() -> None:
    flat = [0.0] * 5000
    picked = {drawn(flat, i / 100, top_p=0.5) for i in range(100)}
    assert len(picked) == 100
    assert drawn(flat, 0.9999, top_p=0.9) != drawn(flat, 0.0, top_p=0.9)


def test_that_frequencies_follow_temperature_and_weights() -> None:
    logits = torch.tensor([log(0.1, 0.2, 0.3, 0.4)])
    count = 4000
    draws = [Draw(i, 2.0, 1.0, (i + 0.5) / count) for i in range(count)]
    tokens, _ = next_tokens(logits.expand(count, -1), draws)
    expected = torch.tensor([0.1, 0.2, 0.3, 0.4]).sqrt()
    assert tokens.bincount() / count == pytest.approx(expected / expected.sum(), abs=1e-3)


@pytest.mark.parametrize("temperature", [1e-5, 1e30])
def test_that_extreme_temperatures_compute(temperature: float) -> None:
    assert drawn([5.0, 900.0, -900.0], 0.5, temperature=temperature) == 1


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_that_unfit_logits_are_told_and_do_not_disturb_other_rows(bad: float) -> None:
    logits = torch.tensor([[0.0, bad, 1.0], log(0.2, 0.7, 0.1), [bad, 0.0, 3.0], [0.0, 2.0, 1.0]])
    for top_p in (1.0, 0.9):
        tokens, fit = next_tokens(logits, [Draw(0, 1.0, top_p, 0.5), Draw(1, 1.0, top_p, 0.5)])
        assert fit.tolist() == [False, True, False, True]
        assert tokens.tolist()[1::2] == [1, 1]


def test_that_logits_of_minus_infinity_rule_tokens_out() -> None:
    assert drawn([float("-inf"), 0.0, float("-inf")], 0.999) == 1


def test_that_a_seeded_completion_is_the_same_in_any_company(tiny_engine: TextEngine) -> None:
    def ask(**more: Any) -> Any:
        return sequence(tiny_engine, "abc", max_tokens=20, temperature=0.8, top_p=0.9, seed=5, **more)

    alone, in_company = ask(), ask()
    run(tiny_engine, alone)
    others = [sequence(tiny_engine, text, max_tokens=9, temperature=t) for text, t in (("x", 1.0), ("yy yy", 0.0))]
    run(tiny_engine, others[0], in_company, others[1])
    assert alone.tokens == in_company.tokens


def test_that_other_seeds_give_other_completions(tiny_engine: TextEngine) -> None:
    rows = [sequence(tiny_engine, "abc", max_tokens=20, temperature=1.5, seed=seed) for seed in range(5)]
    rows += [sequence(tiny_engine, "abc", max_tokens=20, temperature=1.5) for _ in range(5)]
    for row in rows:
        row.id = str(id(row))
    run(tiny_engine, *rows)
    assert len({tuple(row.tokens) for row in rows}) == 10


def test_that_a_greedy_row_stays_greedy_beside_sampled_ones(tiny_engine: TextEngine) -> None:
    alone, mixed = (sequence(tiny_engine, "abc", max_tokens=12) for _ in range(2))
    run(tiny_engine, alone)
    run(tiny_engine, mixed, sequence(tiny_engine, "zz", max_tokens=12, temperature=3.0, top_p=0.5))
    assert alone.tokens == mixed.tokens


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": float("inf")}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.01}, "top_p"),
        ({"top_p": float("nan")}, "top_p"),
        ({"stop": ("a", "")}, "stop"),
    ],
)
def test_that_sampling_which_makes_no_sense_is_refused(wrong: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        SamplingParams(**wrong)
