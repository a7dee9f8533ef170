"""The replica's side of the control path: settings come in from the hub, telemetry goes out to it. Knows no Ray."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Protocol

from service.messages.settings import VersionedSettings
from service.messages.telemetry import ReplicaStatus
from service.replica.frames import SHORTEST_INTERVAL_S
from service.replica.recorder import HubAnswer, Recorder, ReplicaReport
from service.replica.requests import LiveRequests

logger = logging.getLogger(__name__)

HEARTBEAT_S: Final = 0.5
RETRY_S: Final = 0.5
LAST_WORDS_S: Final = 0.5
RETRY_LAST_S: Final = 0.1


class HubCalls(Protocol):
    """What a replica asks of the hub. A call fails, or takes longer, where the hub is being restarted."""

    def follow(self, name: str, held: VersionedSettings) -> Awaitable[VersionedSettings]:
        """See `Hub.follow`."""

    def report(self, report: ReplicaReport) -> Awaitable[HubAnswer]:
        """See `Hub.report`."""


class InStep(Protocol):
    """What is kept in step with the hub: a replica's `Generation`, or a function that is observed.

    Attributes:
        replica: its name.
    """

    replica: str
    recorder: Recorder
    requests: LiveRequests

    @property
    def in_force(self) -> VersionedSettings: ...
    def apply(self, in_force: VersionedSettings) -> None: ...


class HubLink:
    """Keeps a replica in step with the hub; each of its two tasks runs as long as the replica lives."""

    def __init__(self, generation: InStep, hub: HubCalls, status: Callable[[], ReplicaStatus]) -> None:
        """`status` gives the replica's own at the moment; each report holds one."""
        self._generation = generation
        self._hub = hub
        self._status = status
        self._life: int | None = None  # of the hub that has answered last

    async def follow_settings(self) -> None:
        """Adopt every change of the settings as soon as the hub reports it; asking again acknowledges it."""
        while True:
            held = self._generation.in_force
            try:
                in_force = await self._hub.follow(self._generation.replica, held)
            except Exception as error:
                logger.warning("The hub does not answer (%s); the settings stay as they are", error)
                await asyncio.sleep(RETRY_S)
                continue
            if in_force.version != held.version:
                assert in_force.version > held.version, "a version of the settings only grows"
                self._generation.apply(in_force)

    async def report_news(self) -> None:
        """Report all that is new as often as the hub wants to know, and that the replica lives when nothing is."""
        interval_s = SHORTEST_INTERVAL_S
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_S):
                    await self._generation.recorder.news.wait()
            interval_s = await self._report() or interval_s
            await asyncio.sleep(interval_s)

    async def report_last(self, *, has_failed: bool) -> None:
        """The replica ends: report what the hub has not heard of, if it is still there.

        That it leaves as it was asked to is reported as well, unless it `has_failed` and is replaced. A request that it
        still holds has been given up by its client, and the engine does not know yet.
        """
        self._generation.requests.end_all("cancelled")
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                for is_last in (False, not has_failed):  # a hub that is new answers the first, and the second repeats
                    while await self._report(is_last=is_last) is None:  # noqa: ASYNC110 — until the hub answers
                        await asyncio.sleep(RETRY_LAST_S)

    async def _report(self, *, is_last: bool = False) -> float | None:
        """Report once; returns the seconds until the next, or ``None`` where it did not arrive."""
        recorder = self._generation.recorder
        report = recorder.report(self._status(), is_last=is_last)
        try:
            answer = await self._hub.report(report)
        except Exception as error:
            logger.warning("The hub does not answer (%s); the telemetry waits for it", error)
            return None
        if self._life in (None, answer.life):
            recorder.acknowledge(report.number)
        else:
            recorder.repeat()
        self._life = answer.life
        return answer.interval_s
