"""The functions that are served in batches, the contract they keep, and what becomes of one that breaks it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from service.engine.function import MOST_FAILED, FunctionEngine
from service.engine.job import Conversation, Line, Progress, TokenIds
from service.messages.pipes import SOURCE_ROOT
from service.messages.telemetry import BatchWork
from service.workloads import adder
from service.workloads.adder import Adder
from service.workloads.catalog import BUILT_IN, WorkloadError, about, find
from service.workloads.house_price import FEATURES, WEIGHTS, HousePrice
from service.workloads.train_house_price import held_out_error, read_table, train
from service.workloads.workload import Workload


class Echo(Workload):
    """Does what a test tells it with each batch."""

    name: ClassVar = "echo"
    description: ClassVar = "Gives back"
    examples: ClassVar = ("1",)

    def __init__(self, compute: Callable[[list[Any]], Any] = list) -> None:
        self._compute = compute

    def __call__(self, inputs: list[Any]) -> Any:
        return self._compute(inputs)


class CalledOnce(Echo):
    retry_members: ClassVar = False


def computed(compute: Callable[[list[Any]], Any], *inputs: Any, kind: type[Echo] = Echo) -> list[Progress]:
    """The progress of a batch, in the order in which it was told."""
    engine = FunctionEngine(kind(compute))
    told: list[Progress] = []
    engine.generate([engine.job(str(n), each, None) for n, each in enumerate(inputs)], told.extend)
    return told


# -- the contract -----------------------------------------------------------------------------------------------------


def test_that_each_input_gets_its_own_output_as_json() -> None:
    told = computed(lambda inputs: [{"twice": 2 * each} for each in inputs], 1, 2)
    assert [(p.job.id, p.text, p.tokens, p.finish_reason) for p in told] == [
        ("0", '{"twice": 2}', 1, "stop"),
        ("1", '{"twice": 4}', 1, "stop"),
    ]


def fail(_: list[Any]) -> Any:
    raise KeyError("no such house")


BROKEN = [
    (lambda inputs: inputs[:1], "it returned 1 outputs for 2 inputs."),
    (lambda inputs: tuple(inputs), "it returned tuple, not a list."),
    (lambda inputs: None, "it returned NoneType, not a list."),
    (fail, "KeyError: 'no such house'"),
]


@pytest.mark.parametrize(("compute", "reason"), BROKEN, ids=["too few", "a tuple", "nothing", "an exception"])
def test_that_a_batch_whose_function_breaks_the_contract_fails_in_words(
    compute: Callable[[list[Any]], Any], reason: str
) -> None:
    told = computed(compute, 1, 2, kind=CalledOnce)
    assert [p.finish_reason for p in told] == ["error", "error"]
    assert {p.error for p in told} == {f"The workload echo failed on this batch of 2: {reason}"}


class Heavy(Echo):
    def weight(self, value: Any) -> Any:
        return value


def test_that_an_input_needs_as_many_tokens_of_a_batch_as_it_weighs() -> None:
    jobs = [FunctionEngine(kind()).job("0", 5, None) for kind in (Echo, Heavy)]
    assert [job.prompt_tokens + job.max_tokens for job in jobs] == [1, 5]


@pytest.mark.parametrize("weight", [0, 1.5, True, None])
def test_that_a_weight_that_is_no_whole_number_from_1_on_refuses_the_input(weight: Any) -> None:
    with pytest.raises(ValueError, match="its weight must be a whole number from 1 on, not"):
        FunctionEngine(Heavy()).job("0", weight, None)


POISON = -1


def refusing(refusal: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """Gives back what it gets, but where the poison is in it what `refusal` does."""
    return lambda inputs: refusal(inputs) if POISON in inputs else inputs


def raising(error: BaseException) -> Callable[[list[Any]], Any]:
    def refuse(_: list[Any]) -> Any:
        raise error

    return refuse


REFUSALS: dict[str, Callable[[list[Any]], Any]] = {
    "ValueError": raising(ValueError("not this one")),
    "CancelledError": raising(asyncio.CancelledError()),
    "SystemExit": raising(SystemExit(1)),
    "MemoryError": raising(MemoryError()),
    "RecursionError": raising(RecursionError()),
    "fewer": lambda inputs: [each for each in inputs if each != POISON],
    "more": lambda inputs: [*inputs, 0],
    "nothing": lambda inputs: None,
    "a dict": lambda inputs: {each: each for each in inputs},
    "a stream of numbers": lambda inputs: iter([inputs]),
}


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=list(REFUSALS))
def test_that_an_input_that_the_function_cannot_take_fails_alone(refusal: Callable[[list[Any]], Any]) -> None:
    for place in range(8):
        inputs = [POISON if number == place else number for number in range(8)]
        ends = {int(p.job.id): p for p in computed(refusing(refusal), *inputs) if p.finish_reason}
        assert {number: each.text for number, each in ends.items() if number != place} == {
            number: str(number) for number in range(8) if number != place
        }
        assert str(ends[place].error).startswith("The workload echo failed on this input: ")


def test_that_all_that_the_function_cannot_take_fail_alone() -> None:
    inputs = [POISON, 1, POISON, POISON, 4, 5, POISON]
    ends = {int(p.job.id): p for p in computed(refusing(raising(ValueError("not this one"))), *inputs)}
    assert [number for number, each in ends.items() if each.finish_reason == "error"] == [0, 2, 3, 6]
    assert [each.text for each in ends.values() if each.finish_reason == "stop"] == ["1", "4", "5"]


def test_that_a_function_that_can_take_nothing_is_not_called_for_each_input() -> None:
    sizes: list[int] = []

    def fail_always(inputs: list[Any]) -> Any:
        sizes.append(len(inputs))
        raise ValueError("it is broken")

    ends = computed(fail_always, *range(256))
    assert {p.finish_reason for p in ends} == {"error"}
    assert len(ends) == 256
    assert sizes.count(1) == MOST_FAILED
    assert len(sizes) < 30


def test_that_what_was_streamed_is_not_streamed_again() -> None:
    def breaks_off(inputs: list[Any]) -> Iterator[list[str]]:
        yield ["a"] * len(inputs)
        raise ValueError("no more")

    progress = computed(breaks_off, 1, 2)
    assert [(p.text, p.finish_reason) for p in progress] == [("a", None), ("a", None), ("", "error"), ("", "error")]


def test_that_a_job_that_is_cancelled_while_parts_are_called_is_not_called_again() -> None:
    sizes: list[int] = []

    def fail_at_first(inputs: list[Any]) -> Any:
        sizes.append(len(inputs))
        if len(sizes) == 1:
            jobs[3].cancel()
            raise ValueError("not all of them")
        return inputs

    engine = FunctionEngine(Echo(fail_at_first))
    jobs = [engine.job(str(number), number, None) for number in range(4)]
    progress: list[Progress] = []
    work = engine.generate(jobs, progress.extend)
    assert {p.job.id: p.finish_reason for p in progress} == {"0": "stop", "1": "stop", "2": "stop", "3": "cancelled"}
    assert (sizes, work) == ([4, 2, 1], BatchWork(steps=3))


def test_that_an_output_that_json_cannot_spell_fails_alone() -> None:
    good, bad = computed(lambda inputs: [inputs[0], float("nan")], 1, 2)
    assert (good.text, good.finish_reason) == ("1", "stop")
    assert bad.finish_reason == "error"
    assert bad.error is not None
    assert bad.error.startswith("The result cannot be written as JSON")


NESTED: list[Any] = []
for _ in range(5000):
    NESTED = [NESTED]


@pytest.mark.parametrize("output", ["a\ud800", {"\udfff": 1}, NESTED, 10**5000], ids=["text", "key", "depth", "digits"])
def test_that_an_output_that_cannot_be_sent_fails_alone(output: Any) -> None:
    bad, good = computed(lambda inputs: [output, "é"], 1, 2)
    assert (good.text, good.finish_reason) == ('"é"', "stop")
    assert bad.finish_reason == "error"
    assert bad.error is not None
    assert bad.error.startswith("The result cannot be written as JSON")
    assert bad.error.isascii()


def test_that_a_streamed_text_that_cannot_be_sent_ends_alone() -> None:
    told = computed(lambda inputs: iter([["a", "b"], ["\ud800", "c"], ["d", "e"]]), 1, 2)
    good, bad = ([p for p in told if p.job.id == name] for name in "10")
    assert ("".join(p.text for p in good), good[-1].finish_reason) == ("bce", "stop")
    assert [(p.text, p.finish_reason) for p in bad] == [("a", None), ("", "error")]
    assert bad[-1].error is not None
    assert bad[-1].error.startswith("The result cannot be sent as text")


def test_that_the_reason_of_a_failure_can_be_sent(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)  # what is logged here cannot be sent from a test process to its parent either

    def fail_oddly(_: list[Any]) -> Any:
        raise KeyError("\ud800")

    def fail_plainly(_: list[Any]) -> Any:
        raise RuntimeError("odd \ud800")

    for compute in (fail_oddly, fail_plainly):
        (told,) = computed(compute, 1)
        assert told.error is not None
        assert told.error.encode()


def test_that_a_function_may_stream() -> None:
    def spell(inputs: list[str]) -> Iterator[list[str | None]]:
        for place in range(max(map(len, inputs))):
            yield [text[place] if place < len(text) else None for text in inputs]

    told = computed(spell, "abc", "d")
    texts = {name: "".join(p.text for p in told if p.job.id == name) for name in "01"}
    assert texts == {"0": "abc", "1": "d"}
    assert [(p.tokens, p.finish_reason) for p in told[-2:]] == [(3, "stop"), (1, "stop")]


def test_that_a_cancelled_request_leaves_a_stream_and_the_last_one_ends_it() -> None:
    pieces = 0

    def endless(inputs: list[str]) -> Iterator[list[str | None]]:
        nonlocal pieces
        while True:
            pieces += 1
            yield ["."] * len(inputs)

    engine = FunctionEngine(Echo(endless))
    first, second = (engine.job(name, "", None) for name in ("first", "second"))
    told: list[Progress] = []

    def emit(progress: list[Progress]) -> None:
        told.extend(progress)
        if pieces:
            (first if pieces == 1 else second).cancel()

    engine.generate([first, second], emit)
    assert [(p.job.id, p.finish_reason) for p in told] == [
        ("first", None),
        ("second", None),
        ("first", "cancelled"),
        ("second", None),
        ("second", "cancelled"),
    ]
    assert pieces == 3


def test_that_a_stream_of_something_else_than_texts_fails() -> None:
    told = computed(lambda inputs: iter([["a", 1]]), 1, 2, kind=CalledOnce)
    reason = "The workload echo failed on this batch of 2: it streamed something else than texts."
    assert [p.error for p in told] == [reason, reason]


def test_that_what_was_cancelled_is_not_computed() -> None:
    seen: list[Any] = []
    engine = FunctionEngine(Echo(lambda inputs: seen.append(inputs) or inputs))
    kept, cancelled = engine.job("kept", 1, None), engine.job("cancelled", 2, None)
    cancelled.cancel()
    told: list[Progress] = []
    work = engine.generate([kept, cancelled], told.extend)
    assert seen == [[1]]
    assert {p.job.id: p.finish_reason for p in told} == {"kept": "stop", "cancelled": "cancelled"}
    assert work == BatchWork(steps=1)


def test_that_in_an_open_batch_newcomers_are_the_next_call() -> None:
    engine = FunctionEngine(Echo())
    newcomers = iter([[engine.job("b", 2, None), engine.job("c", 3, None)], []])
    work = engine.generate([engine.job("a", 1, None)], lambda _: None, lambda *_: next(newcomers))
    assert work == BatchWork(steps=2)


def test_that_a_line_is_parsed_and_json_is_not() -> None:
    engine = FunctionEngine(Echo())
    assert engine.job("line", Line("[1]"), None).input == [1]
    assert engine.job("json", "[1]", None).input == "[1]"
    with pytest.raises(ValueError, match=r"'\{' cannot be read; write a line such as '1'"):
        engine.job("bad", Line("{"), None)


@pytest.mark.parametrize(
    ("prompt", "kind"),
    [(TokenIds((1, 2)), "token ids"), (Conversation(({"role": "user", "content": "3"},)), "messages")],
    ids=["token ids", "messages"],
)
def test_that_what_a_language_model_alone_takes_is_refused_in_words(prompt: Any, kind: str) -> None:
    with pytest.raises(ValueError, match=f"The workload echo is no language model and takes no {kind}"):
        FunctionEngine(Echo()).job("a", prompt, None)


def test_that_what_a_workload_did_not_expect_is_refused_in_words() -> None:
    class Careless(Echo):
        def check(self, value: Any) -> Any:
            return value["features"]

    engine = FunctionEngine(Careless())
    with pytest.raises(ValueError, match=r"The workload echo cannot take '3': TypeError: 'int' object is not"):
        engine.job("a", Line("3"), None)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (Line("[" * 100_000), "cannot be read; write a line such as '1'"),
        (Line("9" * 5000), "cannot be read; write a line such as '1'"),
        (NESTED, "The workload careless cannot take this list: RecursionError"),
    ],
    ids=["deep line", "long number", "deep list"],
)
def test_that_an_input_beyond_measure_is_refused_in_words(value: Any, sentence: str) -> None:
    class Careless(Echo):
        name: ClassVar = "careless"

        def check(self, value: Any) -> Any:
            raise ValueError(f"not {value}")

    with pytest.raises(ValueError, match=sentence):
        FunctionEngine(Careless()).job("a", value, None)


def test_that_what_a_listener_raises_passes_through_and_nobody_is_told_twice() -> None:
    told: list[Progress] = []

    def listen(progress: list[Progress]) -> None:
        told.extend(progress)
        if progress:
            raise RuntimeError("gone")

    engine = FunctionEngine(Echo())
    with pytest.raises(RuntimeError, match="gone"):
        engine.generate([engine.job("a", 1, None)], listen)
    assert [p.finish_reason for p in told] == ["stop"]


# -- those that are built in ------------------------------------------------------------------------------------------


def test_that_every_built_in_workload_takes_its_own_examples() -> None:
    assert [each.name for each in BUILT_IN] == ["text", "adder", "house-price"]
    for each in BUILT_IN[1:]:
        workload = find(each.name)()
        assert all(workload.check(workload.parse(line)) is not None for line in each.examples)


def test_that_the_adder_adds_one_to_each_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adder, "WORK_S", 0.0)
    assert Adder()([3, -1, 2**53]) == [4, 0, 2**53 + 1]


@pytest.mark.parametrize("value", [True, 1.5, "3", None, 2**53 + 1])
def test_that_the_adder_refuses_what_is_no_whole_number(value: object) -> None:
    with pytest.raises(ValueError, match="takes a whole number such as 3"):
        Adder().check(value)


@pytest.mark.parametrize("value", [[1] * 7, [1] * 9, [*[1] * 7, "1"], [*[1] * 7, -1], [*[1] * 7, float("nan")], {}, 5])
def test_that_a_house_is_so_many_numbers(value: object) -> None:
    with pytest.raises(ValueError, match=r"list of 8 numbers, none negative: living_area_sqft, .*garage_cars"):
        HousePrice().check(value)


def test_that_the_weights_are_in_the_package_which_is_all_that_another_machine_is_sent() -> None:
    assert WEIGHTS.is_relative_to(SOURCE_ROOT / "service")


def test_that_prices_do_not_depend_on_the_batch() -> None:
    workload = HousePrice()
    workload.load("cpu")
    houses = [workload.check(workload.parse(line)) for line in workload.examples]
    together, alone = workload(houses), [workload([house])[0] for house in houses]
    assert together == pytest.approx(alone, rel=1e-4)
    assert all(20_000 < price < 800_000 for price in together)


def test_that_the_script_reproduces_the_error_of_the_weights_on_houses_held_out() -> None:
    training, held_out = read_table()
    assert (len(training.prices), len(held_out.prices), held_out.features.shape[1]) == (2340, 585, len(FEATURES))
    workload = HousePrice()
    workload.load("cpu")
    shipped, again = (held_out_error(network, held_out) for network in (workload.network, train(training)))
    assert shipped.median == pytest.approx(0.077, rel=0.05)
    assert again.median == pytest.approx(shipped.median, rel=0.05)
    assert again.r_squared == pytest.approx(shipped.r_squared, rel=0.05)


# -- by name ----------------------------------------------------------------------------------------------------------

OWN = """
from service.workloads.workload import Workload

class Doubler(Workload):
    name = "doubler"
    description = "Doubles numbers"
    examples = ("21",)

    def __call__(self, inputs):
        return [2 * each for each in inputs]

class Nameless(Doubler):
    description = ""

class Lazy(Workload):
    name, description, examples = "lazy", "Computes nothing", ("1",)

class Choosy(Doubler):
    def check(self, value):
        raise ValueError("I take nothing.")

class Stranger:
    pass
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_workloads.py").write_text(OWN)
    (tmp_path / "broken_workloads.py").write_text("import a_package_that_nobody_has")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("own")
def test_that_a_workload_of_ones_own_is_found_by_module_and_class() -> None:
    assert find("own_workloads:Doubler")()([21]) == [42]
    told = about("own_workloads:Doubler")
    assert (told.name, told.unit, told.inputs, told.generates, told.streams) == (
        "doubler",
        "items",
        "inputs",
        False,
        False,
    )


WRONG = [
    (
        "adding",
        r"There is no workload 'adding'; there are text, adder, house-price, and your own as package.module:Class",
    ),
    (
        "nowhere:Doubler",
        r"There is no module 'nowhere' for the workload; start in its folder, or put that on PYTHONPATH",
    ),
    (
        "broken_workloads:Doubler",
        r"cannot be imported: ModuleNotFoundError: No module named 'a_package_that_nobody_has'",
    ),
    (
        "own_workloads:Missing",
        r"let the class Missing in own_workloads inherit from service.workloads.workload.Workload",
    ),
    ("own_workloads:Stranger", r"let the class Stranger in own_workloads inherit"),
    ("own_workloads:Nameless", r"lacks description; give the class these attributes"),
    ("own_workloads:Lazy", r"lacks __call__"),
    ("own_workloads:Choosy", r"refuses its own example: I take nothing"),
]


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(("name", "sentence"), WRONG, ids=[name for name, _ in WRONG])
def test_that_a_workload_that_cannot_be_had_is_refused_in_words(name: str, sentence: str) -> None:
    with pytest.raises(WorkloadError, match=sentence):
        find(name)
