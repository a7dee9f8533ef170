"""Hold as a part of the service: it keeps objectives by the hub's telemetry, and moves the hub's settings. No Ray."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Awaitable
from functools import partial
from typing import Final, Protocol

import msgspec

from service.analysis.goal.hold import Follower, Hold, Move, Said, Seen
from service.analysis.predict.control import NICENESS
from service.messages.clock import monotonic_clock_id
from service.messages.objectives import Objectives
from service.messages.settings import SettingError, VersionedSettings
from service.messages.telemetry import TelemetryEvent
from service.replica.background import start_for_life

logger = logging.getLogger(__name__)

READER: Final = "hold"
RETRY_S: Final = 0.5

_decoder: msgspec.json.Decoder[TelemetryEvent] = msgspec.json.Decoder(TelemetryEvent)


class HubForHold(Protocol):
    """What Hold asks of the hub. A call fails, or takes longer, where the hub is being restarted."""

    def frames_after(self, reader: str, number: int | None) -> Awaitable[tuple[int, list[bytes]] | None]:
        """See `Hub.frames_after`."""

    def revise(
        self, call: str, changes: dict[str, object], reason: str, upon: int | None
    ) -> Awaitable[VersionedSettings | SettingError]:
        """See `Hub.revise`."""


class Holder:
    """Holds the objectives as long as it lives, or until somebody else has changed settings."""

    def __init__(self, hub: HubForHold, objectives: Objectives) -> None:
        if hasattr(os, "nice"):
            os.nice(NICENESS)  # replicas have priority
        self._hub = hub
        self._hold = Hold(objectives)
        self._follower = Follower(monotonic_clock_id(), objectives)
        self._number: int | None = None
        self._task = start_for_life(self._follow(), "Holding the objectives")

    async def check_health(self) -> None:
        if self._task.done():
            raise RuntimeError("Hold has ended") from self._task.exception()

    async def _follow(self) -> None:
        while True:
            try:
                await self._take_frames()
            except Exception as error:  # of Ray's, as while the hub is being restarted
                logger.warning("The hub does not answer (%s); Hold waits for it", error)
                await asyncio.sleep(RETRY_S)

    async def _take_frames(self) -> None:
        answer = await self._hub.frames_after(READER, self._number)
        self._number, events = (self._number, []) if answer is None else answer
        for event in events:
            seen = self._follower.take(_decoder.decode(event))
            if seen is not None:
                await self._step(seen)

    async def _step(self, seen: Seen) -> None:
        match await asyncio.to_thread(partial(self._hold.step, seen)):
            case Move() as move:
                changes = msgspec.structs.asdict(move.settings)
                answer = await self._hub.revise(secrets.token_hex(8), changes, move.note, seen.version)
                if isinstance(answer, SettingError):
                    logger.warning("Hold's settings are refused: %s", answer)
                elif answer.settings != move.settings:
                    logger.warning("Hold: %s", self._hold.let_go(seen.settings, answer.settings).sentence)
                else:
                    logger.info("Hold: %s", move.reason)
                    self._follower.note_move(answer.version, seen.at_s)
            case Said() as said:
                logger.warning("Hold: %s", said.sentence)
