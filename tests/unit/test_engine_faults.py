"""What goes wrong for one row goes wrong for that row alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import torch

from service.engine.engine import TextEngine
from service.engine.job import DeviceLostError
from service.engine.out_of_memory import Failure, attempt
from service.engine.row import Row
from tests.unit.tiny_models import Listener, loaded, run, sequence, tiny_llama

pytestmark = pytest.mark.usefixtures("single_thread")

POISON = "Z"
AHEAD = pytest.mark.parametrize("is_ahead", [False, True], ids=["read first", "launched ahead"])
MATES = ["a", "bcd", "the third one", "e e e", "fgh", "ijklmnop", "q"]


class PoisonedModel:
    """A tiny model that does something bad whenever the poison is among the tokens it reads."""

    def __init__(self, harm: Callable[[Any, torch.Tensor], Any], poison: int) -> None:
        self._model = tiny_llama()
        self.get_input_embeddings = self._model.get_input_embeddings
        self._harm = harm
        self._poison = poison
        self.generation_config = None
        self.calls = 0

    def forward(self, *, input_ids: torch.Tensor, logits_to_keep: Any, position_ids: Any, **rest: Any) -> Any:
        self.calls += 1
        output = self._model(input_ids=input_ids, logits_to_keep=logits_to_keep, position_ids=position_ids, **rest)
        poisoned = (input_ids == self._poison).any(dim=-1)
        return self._harm(output, poisoned) if poisoned.any() else output

    __call__ = forward


def raises(error: BaseException) -> Callable[[Any, torch.Tensor], Any]:
    def harm(output: Any, poisoned: torch.Tensor) -> Any:
        raise error

    return harm


def fills(value: float) -> Callable[[Any, torch.Tensor], Any]:
    def harm(output: Any, poisoned: torch.Tensor) -> Any:
        output.logits[poisoned] = value
        return output

    return harm


def one_nan(output: Any, poisoned: torch.Tensor) -> Any:
    output.logits[poisoned, :, 17] = float("nan")
    return output


def loses_a_row(output: Any, poisoned: torch.Tensor) -> Any:
    output.logits = output.logits[:-1]
    return output


def returns_nothing(output: Any, poisoned: torch.Tensor) -> Any:
    return None


HARMS = {
    "ValueError": (raises(ValueError("bad token")), "ValueError: bad token"),
    "CancelledError": (raises(asyncio.CancelledError()), "CancelledError"),
    "SystemExit": (raises(SystemExit(3)), "SystemExit: 3"),
    "StopIteration": (raises(StopIteration()), "StopIteration"),
    "GeneratorExit": (raises(GeneratorExit()), "GeneratorExit"),
    "IndexError": (raises(IndexError("index out of range in self")), "index out of range"),
    "RecursionError": (raises(RecursionError("too deep")), "RecursionError"),
    "MemoryError": (raises(MemoryError()), "MemoryError"),
    "OutOfMemoryError": (raises(torch.OutOfMemoryError("CUDA out of memory")), "OutOfMemoryError"),
    "allocator": (raises(RuntimeError("DefaultCPUAllocator: can't allocate memory")), "can't allocate"),
    "NaN logits": (fills(float("nan")), "not numbers"),
    "one NaN logit": (one_nan, "not numbers"),
    "infinite logits": (fills(float("inf")), "not numbers"),
    "no finite logit": (fills(float("-inf")), "not numbers"),
    "wrong length back": (loses_a_row, "rows"),
    "nothing back": (returns_nothing, "AttributeError"),
}


def poisoned_engine(harm: Callable[[Any, torch.Tensor], Any], is_ahead: bool = False) -> TextEngine:
    clean = TextEngine(loaded(tiny_llama()))
    (poison,) = clean.encode(POISON, 1)
    engine = TextEngine(loaded(PoisonedModel(harm, poison)))
    engine.forward.is_ahead = is_ahead
    return engine


@pytest.fixture(scope="module")
def expected() -> dict[str, tuple[str, list[int]]]:
    engine = TextEngine(loaded(tiny_llama()))
    answers = {}
    for text in MATES:
        alone = sequence(engine, text, max_tokens=12)
        answers[text] = (run(engine, alone).texts[text], alone.tokens)
    assert not any(POISON in text for text, _ in answers.values()), "a clean mate would write the poison itself"
    return answers


@pytest.mark.parametrize("kind", HARMS)
@pytest.mark.parametrize("place", [0, 3, 7])
@AHEAD
def test_that_only_the_poisoned_row_gets_the_error(
    kind: str, place: int, is_ahead: bool, expected: dict[str, tuple[str, list[int]]]
) -> None:
    harm, message = HARMS[kind]
    engine = poisoned_engine(harm, is_ahead)
    rows = [sequence(engine, text, max_tokens=12) for text in MATES]
    rows.insert(place, sequence(engine, f"me {POISON}", max_tokens=12))
    listener = run(engine, *rows)
    assert listener.endings[f"me {POISON}"].finish_reason == "error"
    assert message in (listener.endings[f"me {POISON}"].error or "")
    for row in rows[:place] + rows[place + 1 :]:
        assert (listener.texts[row.id], row.tokens) == expected[row.id]


@AHEAD
def test_that_an_error_half_way_repeats_no_text(is_ahead: bool, expected: dict[str, tuple[str, list[int]]]) -> None:
    failures = iter([False] * 4 + [True] + [False] * 100)
    model = tiny_llama()
    forward = model.forward

    def flaky(*args: Any, **kwargs: Any) -> Any:
        if next(failures):
            raise RuntimeError("a passing trouble")
        return forward(*args, **kwargs)

    model.forward = _like(forward, flaky)
    engine = TextEngine(loaded(model))
    engine.forward.is_ahead = is_ahead
    rows = [sequence(engine, text, max_tokens=12) for text in MATES]
    listener = run(engine, *rows)
    for row in rows:
        assert (listener.texts[row.id], row.tokens) == expected[row.id]


def test_that_sampling_goes_on_with_the_same_draws_after_an_error() -> None:
    model = tiny_llama()
    forward = model.forward
    sizes: list[int] = []

    def fails_once_in_company(*args: Any, **kwargs: Any) -> Any:
        sizes.append(len(kwargs["input_ids"]))
        if len(sizes) == 4:
            raise RuntimeError("a passing trouble")
        return forward(*args, **kwargs)

    clean = TextEngine(loaded(tiny_llama()))
    flaky_model = tiny_llama()
    flaky_model.forward = _like(forward, fails_once_in_company)
    flaky = TextEngine(loaded(flaky_model))
    answers = []
    for engine in (clean, flaky):
        rows = [sequence(engine, text, max_tokens=12, temperature=0.9, seed=7) for text in MATES]
        run(engine, *rows)
        answers.append([row.tokens for row in rows])
    assert answers[0] == answers[1]


@pytest.mark.promise("T10")
def test_that_a_batch_too_big_for_memory_is_split_until_it_fits(expected: dict[str, tuple[str, list[int]]]) -> None:
    model = tiny_llama()
    forward = model.forward
    sizes: list[int] = []

    def small_device(*args: Any, **kwargs: Any) -> Any:
        size = len(kwargs["input_ids"])
        if size > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        sizes.append(size)
        return forward(*args, **kwargs)

    model.forward = _like(forward, small_device)
    engine = TextEngine(loaded(model))
    rows = [sequence(engine, text, max_tokens=12) for text in MATES]
    listener = run(engine, *rows)
    assert max(sizes) == 2
    for row in rows:
        assert (listener.texts[row.id], row.tokens) == expected[row.id]


@pytest.mark.promise("T10")
def test_that_the_size_that_memory_held_is_remembered_for_the_next_batches() -> None:
    model = tiny_llama()
    tries: list[int] = []
    forward = model.forward

    def small_device(*args: Any, **kwargs: Any) -> Any:
        tries.append(len(kwargs["input_ids"]))
        if tries[-1] > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(*args, **kwargs)

    model.forward = _like(forward, small_device)
    engine = TextEngine(loaded(model))
    batches = [[sequence(engine, text, max_tokens=3) for text in MATES[:4]] for _ in range(2)]
    works = [engine.generate(batch, Listener()) for batch in batches]

    assert tries[0] == 4
    assert max(tries[1:]) == 2
    assert [work.splits for work in works] == [1, 1]


def test_that_a_model_broken_for_all_gives_everyone_an_error() -> None:
    model = tiny_llama()
    model.forward = _like(model.forward, raises(RuntimeError("no device")))
    engine = TextEngine(loaded(model))
    listener = run(engine, *(sequence(engine, text) for text in MATES))
    assert {each.finish_reason for each in listener.endings.values()} == {"error"}


@pytest.mark.parametrize("is_open", [False, True], ids=["closed", "open"])
def test_that_a_lost_device_ends_all_rows_at_once_and_is_raised(is_open: bool) -> None:
    model, calls = tiny_llama(), []

    def lost(*args: Any, **kwargs: Any) -> Any:
        calls.append(len(kwargs["input_ids"]))
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")

    model.forward = _like(model.forward, lost)
    engine, listener = TextEngine(loaded(model)), Listener()
    rows = [sequence(engine, text) for text in MATES]
    with pytest.raises(DeviceLostError, match="illegal memory access"):
        engine.generate(rows, listener, (lambda work, can_join: []) if is_open else None)
    assert {each.finish_reason for each in listener.endings.values()} == {"error"}
    assert (len(listener.endings), calls) == (len(MATES), [len(MATES)])


@pytest.mark.parametrize("is_open", [False, True], ids=["closed", "open"])
def test_that_a_device_found_lost_later_ends_all_rows_too(is_open: bool) -> None:
    """The first error says nothing of the device; the second comes while it is sought which row has caused it."""
    model, calls = tiny_llama(), []

    def failing(*args: Any, **kwargs: Any) -> Any:
        calls.append(len(kwargs["input_ids"]))
        raise RuntimeError("an error") if len(calls) == 1 else torch.AcceleratorError("CUDA error: an assert")

    model.forward = _like(model.forward, failing)
    engine, listener = TextEngine(loaded(model)), Listener()
    rows = [sequence(engine, text) for text in MATES]
    with pytest.raises(DeviceLostError, match="an assert"):
        engine.generate(rows, listener, (lambda work, can_join: []) if is_open else None)
    assert {each.error for each in listener.endings.values()} == {
        "The device failed: AcceleratorError: CUDA error: an assert"
    }
    assert len(listener.endings) == len(MATES)


@pytest.mark.parametrize("is_lost", [False, True], ids=["there", "lost"])
def test_that_the_device_is_asked_where_a_library_raises(is_lost: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """cuBLAS's own error is the first that a lost device shows in many cases; so it was on an H200."""

    def synchronize() -> None:
        if is_lost:
            raise torch.AcceleratorError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)

    def multiply() -> None:
        raise RuntimeError("CUBLAS_STATUS_EXECUTION_FAILED when calling cublasGemmEx\nmore of it")

    failure = attempt(multiply)
    assert isinstance(failure, Failure)
    assert failure.is_of_lost_device is is_lost
    assert failure.text == "RuntimeError: CUBLAS_STATUS_EXECUTION_FAILED when calling cublasGemmEx"


def test_that_text_which_cannot_be_written_ends_its_row_alone(
    monkeypatch: pytest.MonkeyPatch, tiny_engine: TextEngine
) -> None:
    advance = Row.advance

    def fails_for_one(row: Row, token: int, *told: Any) -> Any:
        if row.sequence.id == "b":
            raise UnicodeError("no such character")
        return advance(row, token, *told)

    monkeypatch.setattr(Row, "advance", fails_for_one)
    listener = run(tiny_engine, *(sequence(tiny_engine, text, max_tokens=3) for text in "abc"))
    assert [listener.reason(name) for name in "abc"] == ["length", "error", "length"]
    assert "no such character" in (listener.endings["b"].error or "")


def test_that_tokens_which_are_no_numbers_harm_their_row_alone(tiny_engine: TextEngine) -> None:
    bad = sequence(tiny_engine, "bad", max_tokens=3)
    bad.prompt_ids = ("x",)  # type: ignore[assignment]
    listener = run(tiny_engine, sequence(tiny_engine, "good", max_tokens=3), bad)
    assert [listener.reason(name) for name in ("good", "bad")] == ["length", "error"]


def test_that_what_the_listener_raises_passes_through(tiny_engine: TextEngine) -> None:
    def emit(progress: list[Any]) -> None:
        raise ConnectionError("nobody listens")

    with pytest.raises(ConnectionError):
        tiny_engine.generate([sequence(tiny_engine, "a")], emit)


def test_that_the_keyboards_interrupt_is_no_failure() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        attempt(interrupted)


def test_that_a_failure_keeps_words_and_no_traceback() -> None:
    failure = attempt(lambda: [][1])
    assert failure == Failure("IndexError: list index out of range", is_out_of_memory=False)


def test_that_a_cancelled_row_is_not_computed_again_after_an_error() -> None:
    engine = poisoned_engine(raises(ValueError("bad")))
    rows = [sequence(engine, text, max_tokens=5) for text in (POISON, "a", "b")]

    class CancelOnError(Listener):
        def __call__(self, progress: list[Any]) -> None:
            super().__call__(progress)
            if any(each.finish_reason == "error" for each in progress):
                rows[2].cancel()

    listener = CancelOnError()
    engine.generate(rows, listener)
    assert [listener.reason(row.id) for row in rows] == ["error", "length", "cancelled"]


def _like(forward: Callable[..., Any], replacement: Callable[..., Any]) -> Callable[..., Any]:
    """`replacement` with the signature of `forward`, which the engine inspects."""

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return replacement(*args, **kwargs)

    wrapped.__wrapped__ = forward  # type: ignore[attr-defined]
    return wrapped
