"""Rows that join and leave a running batch get what each would get alone."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from service.engine.engine import TextEngine
from service.engine.job import Progress, SamplingParams, Sequence
from service.engine.model.batch_cache import BatchCache
from service.engine.model.load import LoadedModel, load
from service.engine.model.passes import ForwardPass, Part
from service.engine.model.resolve import ModelFolder
from service.engine.out_of_memory import MemoryLimit
from service.messages.settings import Settings as ServiceSettings
from service.messages.telemetry import BatchWork
from tests.unit.tiny_models import Listener, run


@dataclass(frozen=True)
class Guest:
    """A request that joins after so many steps, and is cancelled after so many, if at all."""

    text: str
    max_tokens: int
    joins_at: int
    leaves_at: int | None = None


class Door:
    """An `admit` that lets each guest in when its step has come; `step` counts how often it was asked."""

    def __init__(self, guests: SequenceOf[tuple[Guest, Sequence]]) -> None:
        self.step = 0
        self.works: list[BatchWork] = []
        self._guests = list(guests)

    def __call__(self, work: BatchWork, can_join: bool) -> list[Sequence]:
        self.step += 1
        self.works.append(work)
        for guest, sequence in self._guests:
            if guest.leaves_at is not None and self.step >= guest.leaves_at:
                sequence.cancel()
        return self.due() if can_join else []

    def due(self) -> list[Sequence]:
        coming = [each for each in self._guests if each[0].joins_at <= self.step]
        self._guests = [each for each in self._guests if each not in coming]
        return [sequence for _, sequence in coming]

    def next(self) -> list[Sequence]:
        """The engine was idle: the next guest comes as the first of a new batch."""
        self.step = max(self.step, min((guest.joins_at for guest, _ in self._guests), default=self.step))
        return self.due()


def run_open(engine: TextEngine, guests: SequenceOf[tuple[Guest, Sequence]]) -> Listener:
    listener, door = Listener(), Door(guests)
    while coming := door.next():
        listener.work = engine.generate(coming, listener, door)
    assert set(listener.endings) == {sequence.id for _, sequence in guests}
    return listener


def alone(engine: TextEngine, each: Sequence) -> list[int]:
    single = Sequence(each.id, each.prompt_ids, each.sampling)
    run(engine, single)
    return single.tokens


def invited(engine: TextEngine, guests: SequenceOf[Guest]) -> list[tuple[Guest, Sequence]]:
    return [
        (g, Sequence(str(i), engine.encode(g.text, g.max_tokens), SamplingParams(max_tokens=g.max_tokens)))
        for i, g in enumerate(guests)
    ]


GUESTS = st.builds(
    Guest,
    text=st.text(min_size=1, max_size=15),
    max_tokens=st.integers(1, 24),
    joins_at=st.integers(0, 20),
    leaves_at=st.one_of(st.none(), st.integers(0, 24)),
)


@settings(max_examples=50, deadline=None)
@given(
    guests=st.lists(GUESTS, min_size=1, max_size=6),
    joining_tokens=st.sampled_from([1, 5, 64]),
    free_padding=st.sampled_from([0, 8, 512]),
)
def test_that_each_row_is_as_alone_whichever_rows_join_and_leave(
    tiny_engine: TextEngine, guests: list[Guest], joining_tokens: int, free_padding: int
) -> None:
    party = invited(tiny_engine, guests)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny_engine.forward, "joining_tokens", joining_tokens)
        patch.setattr(tiny_engine.forward, "free_padding", free_padding)
        listener = run_open(tiny_engine, party)
    for guest, each in party:
        expected = alone(tiny_engine, each)
        if guest.leaves_at is None:
            assert each.tokens == expected
        assert each.tokens == expected[: len(each.tokens)]
        assert listener.endings[each.id].finish_reason in ("length", "stop", "cancelled")


@pytest.fixture(scope="module")
def real_model(model_folder: ModelFolder, single_thread: None) -> LoadedModel:
    return load(model_folder, "cpu", "float32")


def test_that_in_float32_the_real_model_says_the_same_to_requests_that_join(real_model: LoadedModel) -> None:
    engine = TextEngine(real_model)
    prompts = ("Once upon a time", "The capital of France is", "def fibonacci(n):", "Hi")
    party = invited(engine, [Guest(prompt, 12 - 2 * i, joins_at=3 * i) for i, prompt in enumerate(prompts)])
    run_open(engine, party)
    for _, each in party:
        assert each.tokens == alone(engine, each)


def test_that_a_newcomer_joins_in_the_next_step_whose_prompt_is_read_in_parts(
    tiny_engine: TextEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiny_engine.forward, "joining_tokens", 8)
    party = invited(tiny_engine, [Guest("short", 12, joins_at=0), Guest("x" * 32, 2, joins_at=2)])
    (_, first), (_, newcomer) = party
    listener = run_open(tiny_engine, party)

    rows = [ids(step) for step in listener.steps]
    alone = 5 + tiny_engine.forward.is_ahead
    assert rows[: alone + 2] == [[first.id]] * alone + [[first.id, newcomer.id]] * 2, (
        "32 tokens, 8 in each of its steps"
    )


class Watched:
    """A forward pass that notes how many tokens each of its parts has."""

    def __init__(self, compute: ForwardPass) -> None:
        self.steps: list[list[int]] = []
        self._compute = compute

    def __call__(self, parts: SequenceOf[Part]) -> torch.Tensor:
        self.steps.append([part.ids.numel() for part in parts])
        return self._compute(parts)


@settings(max_examples=40, deadline=None)
@given(guests=st.lists(GUESTS, min_size=1, max_size=24), chunk_tokens=st.sampled_from([16, 24, 128]))
def test_that_no_step_reads_more_of_joining_prompts_than_prefill_chunk_tokens(
    tiny_engine: TextEngine, guests: list[Guest], chunk_tokens: int
) -> None:
    watched = Watched(tiny_engine.forward.compute)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny_engine.forward, "compute", watched)
        patch.setattr(tiny_engine.forward, "joining_tokens", 0)
        tiny_engine.adopt(ServiceSettings(prefill_chunk_tokens=chunk_tokens))
        run_open(tiny_engine, invited(tiny_engine, guests))
    joining = [tokens for _, *others in watched.steps for tokens in others]
    assert all(tokens <= chunk_tokens for tokens in joining)


def test_that_the_text_is_the_same_however_long_a_prompt_is_read_at_a_time(
    tiny_engine: TextEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    guests = [Guest("first", 24, 0), Guest("second", 20, 0), Guest("x" * 90, 8, 2), Guest("y" * 40, 6, 2)]
    told = []
    for chunk_tokens in (16, 128, 1024):
        monkeypatch.setattr(tiny_engine.forward, "joining_tokens", 0)
        tiny_engine.adopt(ServiceSettings(prefill_chunk_tokens=chunk_tokens))
        party = invited(tiny_engine, guests)
        run_open(tiny_engine, party)
        told.append([each.tokens for _, each in party])
    assert told[0] == told[1] == told[2] == [alone(tiny_engine, each) for _, each in party]


def test_that_running_rows_get_their_tokens_between_the_parts_of_a_prompt_that_joins(
    tiny_engine: TextEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiny_engine.forward, "prefixes", None)
    monkeypatch.setattr(tiny_engine.forward, "joining_tokens", 0)
    tiny_engine.adopt(ServiceSettings(prefill_chunk_tokens=16))
    party = invited(tiny_engine, [Guest("one", 20, 0), Guest("two", 20, 0), Guest("x" * 64, 2, 2)])
    listener = run_open(tiny_engine, party)
    first, second, newcomer = (each.id for _, each in party)
    rows = [set(ids(step)) for step in listener.steps]
    alone = 5 + tiny_engine.forward.is_ahead
    assert rows[: alone + 2] == [{first, second}] * alone + [{first, second, newcomer}] * 2, "64 tokens, 16 in a step"


def test_that_rows_that_join_together_keep_the_value_with_which_they_began(
    tiny_engine: TextEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiny_engine.forward, "prefixes", None)
    watched = Watched(tiny_engine.forward.compute)
    monkeypatch.setattr(tiny_engine.forward, "compute", watched)
    monkeypatch.setattr(tiny_engine.forward, "joining_tokens", 32)
    party = invited(tiny_engine, [Guest("one", 20, 0), Guest("x" * 64, 8, 1), Guest("y" * 64, 2, 5)])
    door = Door(party)

    def admit(work: BatchWork, can_join: bool) -> list[Sequence]:
        joined = door(work, can_join)
        if door.step == 2:  # half of the first newcomer's prompt is read
            tiny_engine.adopt(ServiceSettings(prefill_chunk_tokens=16))
        return joined

    tiny_engine.generate(door.next(), Listener(), admit)
    assert [tokens for _, *others in watched.steps for tokens in others if tokens > 1] == [32, 32, 16, 16, 16, 16]


def test_that_a_device_has_a_value_of_its_own_where_none_is_set(tiny_engine: TextEngine) -> None:
    usual = tiny_engine.forward.joining_tokens
    tiny_engine.adopt(ServiceSettings(prefill_chunk_tokens=64))
    assert tiny_engine.forward.joining_tokens == 64
    tiny_engine.adopt(ServiceSettings())
    assert tiny_engine.forward.joining_tokens == usual == 128


def test_that_later_requests_wait_until_the_prompts_before_theirs_are_read(
    tiny_engine: TextEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiny_engine.forward, "joining_tokens", 8)
    later = [Guest(f"g{n}", 3, joins_at=n) for n in range(3, 6)]
    party = invited(tiny_engine, [Guest("abc", 12, 0), Guest("x" * 32, 3, joins_at=1), *later])
    listener = run_open(tiny_engine, party)

    starts = [next(n for n, step in enumerate(listener.steps) if each.id in ids(step)) for _, each in party]
    later_by = tiny_engine.forward.is_ahead
    assert starts == [0, *(start + later_by for start in (4, 5, 5, 5))]


def ids(step: SequenceOf[Progress]) -> list[str]:
    return [each.job.id for each in step]


def test_that_the_work_is_told_between_the_steps(tiny_engine: TextEngine) -> None:
    guests = invited(tiny_engine, [Guest("abcdefgh", 4, joins_at=0), Guest("ab", 1, joins_at=2)])
    (_, first), (_, second) = guests
    door = Door(guests)
    work = tiny_engine.generate(door.next(), Listener(), door)

    assert [each.steps for each in door.works] == [1, 2, 3, 4]
    assert work.prompts == len(first.prompt_ids) + len(second.prompt_ids)
    assert work.vacant == 0, "the place of a row that has left can be taken"
    assert work.prefill_s > 0


def test_that_a_poisonous_prompt_that_joins_harms_only_its_request(
    tiny_engine: TextEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison = tiny_engine.encode("poison", 4)[0]
    compute = tiny_engine.forward.compute

    def guarded(parts: SequenceOf[Part]) -> torch.Tensor:
        if any((part.ids == poison).any() and part.ids.shape[1] > 1 for part in parts):
            raise ValueError("poison")
        return compute(parts)

    monkeypatch.setattr(tiny_engine.forward, "compute", guarded)
    party = invited(tiny_engine, [Guest("abc", 9, 0), Guest("poison", 9, 2), Guest("def", 5, 2), Guest("ghi", 5, 4)])
    listener = run_open(tiny_engine, party)

    assert [listener.reason(each.id) for _, each in party] == ["length", "error", "length", "length"]
    monkeypatch.undo()
    for _, each in (party[0], party[2], party[3]):
        assert each.tokens == alone(tiny_engine, each)


def test_that_all_begin_once_more_if_joining_rows_cannot_be_put_beside_the_others(
    tiny_engine: TextEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = BatchCache.append
    failures = iter([RuntimeError("a passing trouble")])

    def half(cache: BatchCache, other: BatchCache) -> None:
        append(cache, other)
        if failure := next(failures, None):
            raise failure

    monkeypatch.setattr(BatchCache, "append", half)
    party = invited(tiny_engine, [Guest("abc", 9, 0), Guest("def", 6, 1), Guest("ghi", 5, 4)])
    listener = run_open(tiny_engine, party)

    assert [listener.reason(each.id) for _, each in party] == ["length"] * 3
    monkeypatch.undo()
    for _, each in party:
        assert each.tokens == alone(tiny_engine, each)


def test_that_a_request_without_memory_beside_the_others_waits_until_one_has_left(
    tiny_engine: TextEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute, rows = tiny_engine.forward.compute, list[int]()

    def small(parts: SequenceOf[Part]) -> torch.Tensor:
        logits = compute(parts)
        if sum(len(part.ids) for part in parts) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        rows.append(len(logits))
        return logits

    monkeypatch.setattr(tiny_engine.forward, "compute", small)
    monkeypatch.setattr(tiny_engine, "_memory", MemoryLimit())
    party = invited(tiny_engine, [Guest("abc", 9, 0), Guest("def", 4, 0), Guest("ghi", 5, 1)])
    listener = run_open(tiny_engine, party)

    assert [listener.reason(each.id) for _, each in party] == ["length"] * 3
    assert rows.count(2) > 4
    assert listener.work.splits == 1, "a request that waits is counted once, not at every step"
    monkeypatch.undo()
    for _, each in party:
        assert each.tokens == alone(tiny_engine, each)
