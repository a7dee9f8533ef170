"""The opened queue of a decorated function: when batches are formed, what a listener is told, and what stays Ray's."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from ray import serve

from service.batching.queue import Batch
from service.messages.settings import Formation, Settings, VersionedSettings
from service.probe.decorator import batch
from service.ray_serve.batch_queue import Future, OpenQueue, open_queue_of

pytestmark = pytest.mark.usefixtures("replica_context")

ROOT = Path(__file__).parents[2]
README = ROOT / "service" / "probe" / "README.md"
INSTALLED = """
import sys
sys.meta_path = [each for each in sys.meta_path if "editable" not in str(each)]
sys.path += [{0!r}, {0!r} + "/service/probe"]
import batchscope
"""
"""Imports it as where it is installed, not as in a checkout, which finds modules of ours whatever has their names."""


class Told:
    """Listens, and lets a test wait for what it has heard."""

    def __init__(self) -> None:
        self.queue: OpenQueue | None = None
        self.enqueued: list[int] = []
        self.formed: list[tuple[int, Batch[Any]]] = []
        self.results = self.failed = self.cancelled = self.ended = 0
        self.tuned: list[Settings] = []
        self._heard = asyncio.Event()

    def listen_to(self, queue: OpenQueue) -> None:
        self.queue, queue.listener = queue, self

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                await self._heard.wait()
                self._heard.clear()

    def on_enqueued(self, request: Future, size: int) -> None:
        self.enqueued.append(size)
        self._heard.set()

    def on_formed(self, requests: Sequence[Future], batch: Batch[Any]) -> None:
        self.formed.append((len(requests), batch))
        self._heard.set()

    def on_started(self, requests: Sequence[Future]) -> None:
        pass

    def on_ended(self, requests: Sequence[Future]) -> None:
        self.ended += 1
        self._heard.set()

    def on_result(self, request: Future, *, is_last: bool) -> None:
        self.results += 1

    def on_failed(self, request: Future, error: BaseException) -> None:
        self.failed += 1

    def on_cancelled(self, request: Future) -> None:
        self.cancelled += 1
        self._heard.set()

    def on_tuned(self, settings: Settings) -> None:
        self.tuned.append(settings)


class Doubling:
    """A function that doubles numbers, batch by batch, each of them when the test lets it.

    Attributes:
        batches: that it was called with.
    """

    def __init__(self, formation: Formation = "late", **options: Any) -> None:
        self.batches: list[list[Any]] = []
        self.told = Told()
        self._gate = asyncio.Semaphore(0)
        self._calls: list[asyncio.Task[Any]] = []

        @serve.batch(**{"max_batch_size": 16, "batch_wait_timeout_s": 0.0, **options})
        async def double(numbers: list[Any]) -> list[Any]:
            self.batches.append(numbers)
            await self._gate.acquire()
            return [2 * number for number in numbers]

        open_queue_of(double, formation, self.told.listen_to)
        self.function: Any = double

    def call(self, *numbers: Any) -> list[asyncio.Task[Any]]:
        calls = [asyncio.ensure_future(self.function(number)) for number in numbers]
        self._calls += calls
        return calls

    async def until_formed(self, count: int) -> None:
        await self.told.until(lambda: len(self.told.formed) == count)

    async def answers(self) -> list[Any]:
        """Let all batches run; what the callers got."""
        for _ in self._calls:
            self._gate.release()
        return await asyncio.gather(*self._calls, return_exceptions=True)

    def apply(self, version: int, **settings: Any) -> None:
        assert self.told.queue is not None
        self.told.queue.apply(VersionedSettings(version=version, settings=Settings(**settings)))


@pytest.mark.parametrize("formation", ["late", "continuous"])
async def test_that_a_batch_grows_as_long_as_the_function_is_busy(formation: Formation) -> None:
    doubling = Doubling(formation)
    for number in range(6):
        doubling.call(number)
        await doubling.told.until(lambda: len(doubling.told.enqueued) == number + 1)  # noqa: B023
    assert await doubling.answers() == [0, 2, 4, 6, 8, 10]
    assert doubling.batches == [[0], [1, 2, 3, 4, 5]]
    assert [each.formation for _, each in doubling.told.formed] == [formation] * 2


async def test_that_in_early_ray_seals_batches_also_while_the_function_is_busy() -> None:
    doubling = Doubling("early")
    for number in range(4):
        doubling.call(number)
        await doubling.until_formed(number + 1)
    assert await doubling.answers() == [0, 2, 4, 6]
    assert doubling.batches == [[0], [1], [2], [3]]
    assert {(each.formation, each.release_reason) for _, each in doubling.told.formed} == {("early", "drained")}


@pytest.mark.parametrize(("formation", "at_a_time"), [("late", 2), ("continuous", 1)])
async def test_that_as_many_batches_run_at_a_time_as_there_are_places(formation: Formation, at_a_time: int) -> None:
    doubling = Doubling(formation, max_batch_size=2, max_concurrent_batches=2)
    doubling.call(*range(8))
    await doubling.until_formed(at_a_time)
    await asyncio.gather(*doubling.call())
    assert len(doubling.told.formed) == at_a_time
    assert await doubling.answers() == [0, 2, 4, 6, 8, 10, 12, 14]
    assert doubling.batches == [[0, 1], [2, 3], [4, 5], [6, 7]]


async def test_that_settings_are_in_force_for_the_next_batch_which_carries_their_number() -> None:
    doubling = Doubling()
    doubling.call(0)
    await doubling.until_formed(1)
    doubling.call(1, 2, 3, 4)
    doubling.apply(7, max_batch_size=2, batch_wait_timeout_s=0.0)
    await doubling.answers()
    assert doubling.batches == [[0], [1, 2], [3, 4]]
    assert [(each.rules_version, each.cap) for _, each in doubling.told.formed] == [(0, 16), (7, 2), (7, 2)]


@pytest.mark.parametrize(("before", "after"), [("early", "late"), ("late", "early")])
async def test_that_the_formation_can_be_changed_while_requests_wait(before: Formation, after: Formation) -> None:
    doubling = Doubling(before)
    doubling.call(0)
    await doubling.until_formed(1)
    doubling.call(1)
    doubling.apply(2, formation=after, batch_wait_timeout_s=0.0)
    doubling.call(2)
    assert sorted(await doubling.answers()) == [0, 2, 4]
    assert doubling.told.formed[-1][1].formation in (before, after)
    assert sum(size for size, _ in doubling.told.formed) == 3


async def test_that_a_request_whose_caller_leaves_is_not_computed() -> None:
    doubling = Doubling()
    doubling.call(0)
    await doubling.until_formed(1)
    (leaves,) = doubling.call(1)
    doubling.call(2)
    await doubling.told.until(lambda: len(doubling.told.enqueued) == 3)
    leaves.cancel()
    await doubling.told.until(lambda: doubling.told.cancelled == 1)
    await doubling.answers()
    assert doubling.batches == [[0], [2]]


async def test_that_a_batch_that_fails_fails_for_each_of_its_callers_alone() -> None:
    doubling = Doubling()
    doubling.call(0)
    await doubling.until_formed(1)
    doubling.call(None, 1)
    first, *others = await doubling.answers()
    assert first == 0
    assert [type(each) for each in others] == [TypeError, TypeError]
    await doubling.told.until(lambda: doubling.told.ended == 2)
    assert (doubling.told.results, doubling.told.failed) == (1, 2)


async def test_that_a_stream_is_told_piece_by_piece() -> None:
    @serve.batch(max_batch_size=2, batch_wait_timeout_s=0.0)
    async def counted(limits: list[int]) -> AsyncIterator[list[Any]]:
        for number in range(max(limits)):
            yield [number if number < limit else StopAsyncIteration for limit in limits]

    told = Told()
    open_queue_of(counted, "late", told.listen_to)
    streams: Any = [counted(2), counted(3)]
    assert [[piece async for piece in stream] for stream in streams] == [[0, 1], [0, 1, 2]]
    await told.until(lambda: told.ended == 1)
    assert told.results == 2 + 3 + 2, "and the end of each"


class TestWithASizeFunction:
    async def test_that_a_batch_is_as_large_as_the_function_says(self) -> None:
        doubling = Doubling(max_batch_size=10, batch_size_fn=sum)
        doubling.call(1)
        await doubling.until_formed(1)
        doubling.call(6, 4, 5, 3, 3)
        assert await doubling.answers() == [2, 12, 8, 10, 6, 6]
        assert doubling.batches == [[1], [6, 4], [5, 3], [3]]
        assert doubling.told.enqueued == [1, 6, 4, 5, 3, 3]

    async def test_that_an_item_that_is_too_large_alone_fails_alone(self) -> None:
        doubling = Doubling(max_batch_size=10, batch_size_fn=sum)
        doubling.call(11, 2)
        error, answer = await doubling.answers()
        assert isinstance(error, RuntimeError)
        assert "max_batch_size" in str(error)
        assert answer == 4

    async def test_that_an_item_that_cannot_be_measured_fails_alone(self) -> None:
        doubling = Doubling(max_batch_size=10, batch_size_fn=sum)
        doubling.call("a", 2)
        error, answer = await doubling.answers()
        assert isinstance(error, TypeError)
        assert answer == 4


async def test_that_a_setter_is_in_force_and_told() -> None:
    doubling = Doubling()
    doubling.call(0)
    await doubling.until_formed(1)
    doubling.function.set_max_batch_size(2)
    doubling.call(1, 2, 3)
    await doubling.answers()
    assert doubling.batches == [[0], [1, 2], [3]]
    assert [each.max_batch_size for each in doubling.told.tuned] == [2]


async def test_that_what_the_code_says_beyond_the_bounds_holds_until_that_is_changed() -> None:
    doubling = Doubling(max_batch_size=2, batch_wait_timeout_s=1000.0)
    doubling.call(0)
    await doubling.told.until(lambda: len(doubling.told.enqueued) == 1)
    assert doubling.told.queue is not None
    assert doubling.told.queue.settings.batch_wait_timeout_s == 5.0
    doubling.apply(2, max_batch_size=3, batch_wait_timeout_s=5.0)
    doubling.call(1, 2)
    await doubling.answers()
    assert doubling.batches == [[0, 1, 2]]


async def test_that_a_listener_that_fails_harms_no_request(caplog: pytest.LogCaptureFixture) -> None:
    doubling = Doubling()
    doubling.call(0)
    await doubling.until_formed(1)
    doubling.told.on_enqueued = lambda request, size: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    doubling.call(1)
    assert await doubling.answers() == [0, 2]
    assert "The telemetry of double has ended" in caplog.text


class TestTheDecorator:
    async def test_that_it_is_used_as_rays_is(self) -> None:
        @batch
        async def bare(numbers: list[int]) -> list[int]:
            return [number + 1 for number in numbers]

        class Adder:
            @batch(max_batch_size=4, batch_wait_timeout_s=0.0, formation="early")
            async def add(self, numbers: list[int]) -> list[int]:
                return [number + 1 for number in numbers]

        assert await bare(1) == 2
        assert await Adder().add(2) == 3

    async def test_that_the_example_of_its_document_works(self) -> None:
        text = README.read_text()
        code = re.search(r"<!-- the probe in an application -->\n```python\n(.*?)```", text, re.DOTALL)
        assert code is not None
        names: dict[str, Any] = {}
        exec(code[1], names)
        assert await names["Model"].func_or_class().predict(1.5) == 3.0

    def test_that_it_refuses_what_rays_refuses_and_another_formation(self) -> None:
        with pytest.raises(TypeError, match="async def"):
            batch(lambda numbers: numbers)  # type: ignore[call-overload]
        with pytest.raises(ValueError, match="max_batch_size"):
            batch(max_batch_size=0)
        with pytest.raises(ValueError, match="late, early, continuous, got 'soon'"):
            batch(formation="soon")  # type: ignore[call-overload]

    def test_that_a_package_of_the_applications_that_has_the_name_of_ours_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "service").mkdir()
        (tmp_path / "service" / "__init__.py").touch()
        command = [sys.executable, "-c", INSTALLED.format(str(ROOT))]
        told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert told.returncode == 1
        assert f"in {tmp_path / 'service'}: rename that one." in told.stderr
