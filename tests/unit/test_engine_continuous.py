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
from service.engine.model.passes import Part
from service.engine.model.resolve import ModelFolder
from service.engine.out_of_memory import MemoryLimit
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
@given(guests=st.lists(GUESTS, min_size=1, max_size=6), joining_tokens=st.sampled_from([1, 5, 64]))
def test_that_each_row_is_as_alone_whichever_rows_join_and_leave(
    tiny_engine: TextEngine, guests: list[Guest], joining_tokens: int
) -> None:
    party = invited(tiny_engine, guests)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny_engine.forward, "joining_tokens", joining_tokens)
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
    assert rows[:7] == [[first.id]] * 5 + [[first.id, newcomer.id]] * 2, "32 tokens, 8 in each of the first's steps"


def test_that_more_is_read_in_a_step_where_more_join_than_run(
    tiny_engine: TextEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiny_engine.forward, "joining_tokens", 8)
    joining = [Guest("x" * 16, 4, joins_at=2) for _ in range(4)]
    party = invited(tiny_engine, [Guest("one", 12, 0), Guest("two", 12, 0), Guest("left", 2, 0), *joining])
    listener = run_open(tiny_engine, party)

    newcomers = [each.id for _, each in party[3:]]
    starts = [next(n for n, step in enumerate(listener.steps) if id in ids(step)) for id in newcomers]
    assert starts == [5] * 4, (
        "64 tokens, in each step of two rows that run 16 = 8 · 4/2; a row that has left does not count"
    )


def test_that_later_requests_wait_until_the_prompts_before_theirs_are_read(
    tiny_engine: TextEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiny_engine.forward, "joining_tokens", 8)
    later = [Guest(f"g{n}", 3, joins_at=n) for n in range(3, 6)]
    party = invited(tiny_engine, [Guest("abc", 12, 0), Guest("x" * 32, 3, joins_at=1), *later])
    listener = run_open(tiny_engine, party)

    starts = [next(n for n, step in enumerate(listener.steps) if each.id in ids(step)) for _, each in party]
    assert starts == [0, 4, 5, 5, 5]


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
