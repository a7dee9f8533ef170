"""A replica's news reach the hub whatever becomes of a call to it, and its settings follow the hub's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from service.engine.compute_thread import EngineThreads
from service.engine.stub import AT_ONCE, StubEngine
from service.messages.settings import Settings, VersionedSettings
from service.replica.generation import Generation
from service.replica.hub_link import LAST_WORDS_S, HubLink
from service.replica.recorder import HubAnswer, ReplicaReport
from tests.unit.test_telemetry import batch, status
from tests.virtual_time import now_s, run_in_virtual_time

pytestmark = pytest.mark.usefixtures("replica_context")

FIRST = VersionedSettings(version=1, settings=Settings())
SECOND = VersionedSettings(version=2, settings=Settings(max_batch_size=3))


class ScriptedHub:
    """Answers each call with the next of a script, an error or a value; then it never answers again."""

    def __init__(self, reports: list[Exception | HubAnswer], follows: list[Exception | VersionedSettings]) -> None:
        self.heard: list[ReplicaReport] = []
        self._reports, self._follows = reports, follows

    async def follow(self, name: str, held: VersionedSettings) -> VersionedSettings:
        return await _next(self._follows)

    async def report(self, report: ReplicaReport) -> HubAnswer:
        self.heard.append(report)
        return await _next(self._reports)

    @property
    def batches(self) -> list[list[str]]:
        """Of each report, the batches in it."""
        return [[each.id for each in report.batches] for report in self.heard]


async def _next(script: list[Exception | object]) -> object:
    if not script:
        await asyncio.get_running_loop().create_future()
    answer = script.pop(0)
    if isinstance(answer, Exception):
        raise answer
    return answer


def link_to(hub: ScriptedHub) -> tuple[HubLink, Generation]:
    generation = Generation("r1", StubEngine(AT_ONCE), EngineThreads(ThreadPoolExecutor(1)), FIRST, clock=now_s)
    return HubLink(generation, hub, lambda: status(at_s=now_s())), generation


def run(work: Callable[[Generation, HubLink], Awaitable[None]], hub: ScriptedHub) -> None:
    async def main() -> None:
        link, generation = link_to(hub)
        await work(generation, link)

    run_in_virtual_time(main())


async def until_silent(link: HubLink) -> None:
    """Report until the script is over."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await link.report_news()


def test_that_what_a_lost_report_held_comes_with_the_next_one() -> None:
    hub = ScriptedHub([ConnectionError("lost"), HubAnswer(0, 0.2), HubAnswer(0, 0.2)], [])

    async def work(generation: Generation, link: HubLink) -> None:
        generation.recorder.note_batch(batch(1))
        await until_silent(link)

    run(work, hub)
    assert hub.batches == [["r1-b1"], ["r1-b1"], [], []]


def test_that_a_hub_that_took_another_ones_place_hears_again_what_that_one_heard_of_late() -> None:
    hub = ScriptedHub([HubAnswer(0, 0.2), HubAnswer(1, 0.2), HubAnswer(1, 0.2)], [])

    async def work(generation: Generation, link: HubLink) -> None:
        generation.recorder.note_batch(batch(1))
        await until_silent(link)

    run(work, hub)
    assert hub.batches == [["r1-b1"], [], ["r1-b1"], []]


def test_that_it_hears_nothing_that_is_long_past() -> None:
    hub = ScriptedHub([HubAnswer(0, 30.0), HubAnswer(0, 0.2), HubAnswer(1, 0.2), HubAnswer(1, 0.2)], [])

    async def work(generation: Generation, link: HubLink) -> None:
        generation.recorder.note_batch(batch(1))
        await until_silent(link)

    run(work, hub)
    assert hub.batches == [["r1-b1"], [], [], [], []]


def test_that_the_last_report_holds_what_was_not_acknowledged() -> None:
    hub = ScriptedHub([HubAnswer(0, 0.2), ConnectionError("lost"), HubAnswer(0, 0.2)], [])

    async def work(generation: Generation, link: HubLink) -> None:
        generation.recorder.note_batch(batch(1))
        await link.report_last(has_failed=False)

    run(work, hub)
    assert hub.batches == [["r1-b1"], [], []]
    assert [report.is_last for report in hub.heard] == [False, True, True], "it is said again where it is lost"


def test_that_the_last_report_holds_what_a_hub_before_was_told_of_late() -> None:
    hub = ScriptedHub([HubAnswer(0, 30.0), HubAnswer(1, 0.2), HubAnswer(1, 0.2)], [])

    async def work(generation: Generation, link: HubLink) -> None:
        generation.recorder.note_batch(batch(1))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await link.report_news()
        await link.report_last(has_failed=False)

    run(work, hub)
    assert hub.batches == [["r1-b1"], [], ["r1-b1"]]
    assert [report.is_last for report in hub.heard] == [False, False, True]


def test_that_a_replica_that_has_failed_does_not_say_that_it_leaves_as_it_was_asked_to() -> None:
    hub = ScriptedHub([HubAnswer(0, 0.2), HubAnswer(0, 0.2)], [])

    async def work(generation: Generation, link: HubLink) -> None:
        generation.recorder.note_batch(batch(1))
        await link.report_last(has_failed=True)

    run(work, hub)
    assert (hub.batches, [report.is_last for report in hub.heard]) == ([["r1-b1"], []], [False, False])


def test_that_a_replica_does_not_wait_with_its_end_for_a_hub_that_is_silent() -> None:
    hub = ScriptedHub([], [])

    async def work(generation: Generation, link: HubLink) -> None:
        await link.report_last(has_failed=False)
        assert now_s() == pytest.approx(LAST_WORDS_S)

    run(work, hub)


def test_that_settings_are_adopted_from_a_hub_that_failed_to_answer_before() -> None:
    hub = ScriptedHub([], [ConnectionError("gone"), FIRST, SECOND])

    async def work(generation: Generation, link: HubLink) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await link.follow_settings()
        assert generation.batcher.in_force == SECOND

    run(work, hub)
