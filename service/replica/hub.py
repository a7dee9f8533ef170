"""The control path: through one hub settings go out to all replicas, and telemetry comes in. Knows no Ray."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

import msgspec

from service.engine.cores import usable_cores
from service.messages.life import LoadProgress, furthest_behind
from service.messages.settings import SettingError, Settings, VersionedSettings
from service.messages.telemetry import Deployment
from service.ray_serve.redeployer import Application, Redeployer, Redeployment
from service.replica.background import start_for_life
from service.replica.exposition import ReplicaMetrics
from service.replica.frames import FrameLog, frame_interval_s
from service.replica.recorder import HubAnswer, ReplicaReport
from service.replica.settings_board import SettingsBoard

logger = logging.getLogger(__name__)

READER_TIMEOUT_S = 1.0  # after which a reader gets an empty answer; the window takes 3 s of silence for a break
KEPT_CALLS: Final = 64
KEPT_ENDS: Final = 16

SILENT_POLL_S: Final = 0.5
"""While a replica is silent, Serve is asked this often whether it has ended."""


class HubState(msgspec.Struct, frozen=True, kw_only=True):
    """What a hub that takes the place of another has to know.

    Attributes:
        service: see `TelemetryFrame`.
        life: number of hubs of this service before.
        given: number of names given to replicas; none is given twice.
        names: of the replicas that are not known to have ended, by Serve's names for them.
        ended: the latest that have, in their order, each with whether it left as it was asked to.
        redeployment: that is under way.
        calls: the latest that have changed something; one that comes again, later than others, would undo these.
    """

    service: str
    in_force: VersionedSettings
    life: int = 0
    given: int = 0
    names: dict[str, str] = {}
    ended: dict[str, bool] = {}
    redeployment: Redeployment | None = None
    calls: tuple[str, ...] = ()


class Store(Protocol):
    """Keeps bytes beyond the end of a hub's process. Both methods block."""

    def load(self) -> bytes | None:
        """What was saved last, if anything was."""

    def save(self, state: bytes) -> None: ...


class Hub:
    """Every method may be called by every replica at any time; a call that waits is answered within seconds."""

    def __init__(
        self,
        settings: Settings,
        application: Application,
        store: Store,
        service: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """The hub of an `application`, in its event loop.

        Args:
            settings: with which the service begins.
            store: holds what the hub of the same `service` knew that was here before, if there was one.
        """
        self._store = store
        self._state = _state_after(store.load(), settings, service)
        store.save(msgspec.json.encode(self._state))
        self._saving = asyncio.Lock()
        self._saver = ThreadPoolExecutor(1, "hub")  # one: what is saved last is what stays
        self._board = SettingsBoard(self._state.in_force, self._keep_settings, clock)
        self._log = FrameLog(clock, frame_interval_s(usable_cores()), service, self._state.life)
        self._metrics = ReplicaMetrics(clock)
        for name in self._state.names.values():
            self._board.expect(name)
            self._log.expect(name)
        for name, has_left in self._state.ended.items():  # the readers of the hub before may not know
            self._log.end(name, has_left=has_left)
        self._loads: dict[str, LoadProgress] = {}
        self._stopping: set[str] = set()  # Serve's names
        self._redeployer = Redeployer(application, self._loads, self._keep_redeployment, clock)
        if self._state.redeployment is not None:
            self._redeployer.go_on(self._state.redeployment)
        elif self._state.names:
            self._redeployer.watch()
        self._tasks = [
            start_for_life(self._close_frames(), "Closing telemetry frames"),
            start_for_life(self._watch_silent(), "Watching silent replicas"),
        ]

    @property
    def has_replicas(self) -> bool:
        """Whether there is one that is not known to have ended."""
        return bool(self._state.names)

    @property
    def in_force(self) -> VersionedSettings:
        return self._board.in_force

    async def note_loading(self, replica: str, progress: LoadProgress) -> None:
        """How far a replica, by Serve's name for it, is with loading its model."""
        self._loads[replica] = progress

    async def loading(self) -> LoadProgress | None:
        """Of the replica that is furthest behind."""
        return furthest_behind(self._loads.values())

    async def register(self, replica: str) -> tuple[str, VersionedSettings]:
        """A short name for a replica that starts, which Serve calls `replica`, and the settings in force."""
        async with self._saving:
            name = self._state.names.get(replica)
            if name is None:
                given = self._state.given + 1
                name = f"r{given}"
                await self._save(given=given, names=self._state.names | {replica: name})
        self._log.expect(name)
        self._redeployer.watch()
        return name, self._board.join(name)

    async def follow(self, name: str, held: VersionedSettings) -> VersionedSettings:
        """See `SettingsBoard.follow`; `name` is the replica's own."""
        return await self._board.follow(name, held)

    async def revise(
        self, call: str, changes: dict[str, object], reason: str = "", upon: int | None = None
    ) -> VersionedSettings | SettingError:
        """Change settings for all replicas; a refusal is returned, so that Ray does not wrap it.

        `call` is another text for each call, `reason` that of a program. Where another version than `upon` is in force
        by then, nothing is changed, and what is in force is returned.
        """
        try:
            change = await self._board.revise(changes if await self._is_first(call) else {}, reason, upon)
        except SettingError as refusal:
            return refusal
        if change is not None:
            self._log.add_change(change)
        return self._board.in_force

    async def deployment(self) -> Deployment:
        """How many replicas there are, what Ray lets them hold, and how far a change of that is."""
        return await self._redeployer.look()

    async def redeploy(self, call: str, changes: dict[str, object], bytes_each: int) -> Deployment | SettingError:
        """See `Redeployer.redeploy`; a refusal is returned, so that Ray does not wrap it.

        `call` is another text for each call.
        """
        if not await self._is_first(call):
            return await self.deployment()
        try:
            return await self._redeployer.redeploy(changes, bytes_each)
        except SettingError as refusal:
            return refusal

    async def report(self, report: ReplicaReport) -> HubAnswer:
        """Take in a replica's report."""
        if self._log.add_report(report):
            self._metrics.note(report)
        if report.is_last:
            await self._end(report.status.replica, has_left=True)
        return HubAnswer(self._state.life, self._log.report_interval_s)

    async def note_stopping(self) -> None:
        """Remember which replicas Serve stops: one of these that ends without a last word has left, and is not lost."""
        known = await self._redeployer.known()
        # Of a deployment that is deleted, Serve names no replica any more while the last of them still end.
        self._stopping -= known - self._redeployer.leaving
        self._stopping |= self._redeployer.leaving if known else self._state.names.keys()

    async def metrics(self) -> bytes:
        """What all replicas have counted, in Prometheus' text format."""
        return await asyncio.to_thread(self._metrics.scrape(self._board.in_force).text)

    async def frames_after(self, replica: str, number: int | None) -> tuple[int, list[bytes]] | None:
        """See `FrameLog.after`; ``None`` for a reader at a replica that leaves, which would wait for the reader."""
        if replica in self._redeployer.leaving:
            return None
        return await self._log.after(number, READER_TIMEOUT_S)

    async def check_health(self) -> None:
        for task in self._tasks:
            if task.done():
                raise RuntimeError("the hub's task has ended") from task.exception()

    async def _close_frames(self) -> None:
        while True:
            await asyncio.sleep(self._log.interval_s)
            if self._log.has_news:
                self._log.close_frame(self._board.in_force, self._redeployer.deployment)

    async def _watch_silent(self) -> None:
        """Tell a replica that has ended from one that is late: only Serve knows, and it may take seconds to notice."""
        while True:
            await asyncio.sleep(SILENT_POLL_S)
            silent = self._log.silent_replicas()
            if not silent:
                continue
            try:
                known = await self._redeployer.known()
                # Of a replica that came, or was heard of, while Serve was asked, `known` says nothing.
                ended = {name: replica for replica, name in self._state.names.items() if replica not in known}
                for name in ended.keys() & set(silent) & set(self._log.silent_replicas()):
                    await self._end(name, has_left=ended[name] in self._stopping)
            except Exception as error:  # of Ray's, whose controller may be late too, or gone
                logger.warning("Ray does not say whether %s has ended: %s", " or ".join(silent), error)

    async def _end(self, name: str, *, has_left: bool) -> None:
        """A replica has ended; nothing is done where that is known."""
        async with self._saving:
            names = {replica: each for replica, each in self._state.names.items() if each != name}
            if len(names) == len(self._state.names):
                return
            ended = {**self._state.ended, name: has_left}
            await self._save(names=names, ended=dict(list(ended.items())[-KEPT_ENDS:]))
        self._board.forget(name)
        self._log.end(name, has_left=has_left)
        self._metrics.end(name)

    async def _is_first(self, call: str) -> bool:
        """Whether the call comes for the first time, so that it is to be carried out."""
        async with self._saving:
            if call in self._state.calls:
                return False
            await self._save(calls=(*self._state.calls, call)[-KEPT_CALLS:])
            return True

    async def _keep_settings(self, in_force: VersionedSettings) -> None:
        async with self._saving:
            await self._save(in_force=in_force)

    async def _keep_redeployment(self, redeployment: Redeployment | None) -> None:
        async with self._saving:
            await self._save(redeployment=redeployment)

    async def _save(self, **changes: object) -> None:
        """To be called with the lock held."""
        state = msgspec.structs.replace(self._state, **changes)
        await asyncio.get_running_loop().run_in_executor(self._saver, self._store.save, msgspec.json.encode(state))
        self._state = state


def _state_after(stored: bytes | None, settings: Settings, service: str) -> HubState:
    """The state in which a hub begins, given what was stored by the one before, if there was one."""
    before = None if stored is None else msgspec.json.decode(stored, type=HubState)
    if before is None or before.service != service:
        return HubState(service=service, in_force=VersionedSettings(version=1, settings=settings))
    return msgspec.structs.replace(before, life=before.life + 1)
