"""The control path: one small deployment through which settings go out to all replicas and telemetry comes in."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from ray import serve

from service.batching.queue import wait_for_change
from service.engine.cores import usable_cores
from service.messages.life import LoadProgress, furthest_behind
from service.messages.options import DEPLOYMENT_NAME
from service.messages.settings import SettingError, Settings, VersionedSettings
from service.messages.telemetry import Deployment
from service.ray_serve.application import ServeApplication
from service.ray_serve.gpus import require_gpu
from service.ray_serve.patches import keep_replica_on_loopback
from service.ray_serve.redeployer import Redeployer
from service.replica.background import start_for_life
from service.replica.frames import FrameLog, frame_interval_s
from service.replica.recorder import ReplicaReport
from service.replica.settings_board import SettingsBoard

logger = logging.getLogger(__name__)

READER_TIMEOUT_S = 5.0

SILENT_POLL_S: Final = 0.5
"""While a replica is silent, Serve is asked this often whether it has ended."""

POLL_S: Final = 0.1
"""A replica that ends instead of reporting is noticed as soon as this."""

NAMES_TIMEOUT_S: Final = 60.0
"""Longer than Serve takes to replace a replica that hangs."""


class ReplicaNames:
    """Gives each replica a name that no other has or had.

    A hub that Serve has restarted knows none of the names that were given before. Each replica reports its own as soon
    as it finds the new hub; until all of them have, no name is given.
    """

    def __init__(self, living: Callable[[], Awaitable[frozenset[str]]]) -> None:
        """`living` returns the replicas that have started and not ended, by Serve's names for them."""
        self._living = living
        self._names: dict[str, str] = {}  # by those of Serve's
        self._last = 0
        self._reported = asyncio.Event()

    async def give(self, replica: str) -> str:
        """A new name for a replica that starts."""
        try:
            async with asyncio.timeout(NAMES_TIMEOUT_S):
                while await self._living() - self._names.keys():
                    await wait_for_change(self._reported, deadline_s=POLL_S, now_s=0.0)
        except TimeoutError:
            logger.warning(
                "Not every replica has reported its name within %g s; one may be given twice", NAMES_TIMEOUT_S
            )
        name = f"r{self._last + 1}"
        self.note(replica, name)
        return name

    def note(self, replica: str, name: str) -> None:
        """A replica has this name."""
        self._names[replica] = name
        self._last = max(self._last, int(name.removeprefix("r")))
        self._reported.set()

    def outside(self, known: frozenset[str]) -> frozenset[str]:
        """The names of the replicas that are not among the `known`."""
        return frozenset(name for replica, name in self._names.items() if replica not in known)

    def forget(self, replica: str) -> str | None:
        """A replica has gone; returns the name it had."""
        return self._names.pop(replica, None)


@serve.deployment(
    name="Hub",
    num_replicas=1,
    max_ongoing_requests=10_000,
    graceful_shutdown_timeout_s=0.2,
    graceful_shutdown_wait_loop_s=0.1,
    ray_actor_options={"num_cpus": 0},
    logging_config={"enable_access_log": False},
)
class Hub:
    """Every method may be called by every replica at any time; a call that waits is answered within seconds.

    `register` alone may take longer, where Serve has restarted the hub and a replica that hangs does not report.
    """

    def __init__(self, settings: Settings, gpu_device: str | None = None) -> None:
        """With the `gpu_device` that replicas compute on, where that is a GPU; raises `StartError` if there is none.

        A replica that waits for a GPU cannot say so itself, and under `serve run` the cluster is known only here.
        """
        keep_replica_on_loopback()
        if gpu_device is not None:
            require_gpu(gpu_device)
        self._board = SettingsBoard(settings)
        self._log = FrameLog(interval_s=frame_interval_s(usable_cores()))
        self._loads: dict[str, LoadProgress] = {}
        application = ServeApplication(serve.get_replica_context().app_name, DEPLOYMENT_NAME)
        self._redeployer = Redeployer(application, self._loads, self._note_left)
        self._names = ReplicaNames(self._redeployer.living)
        self._tasks = [
            start_for_life(self._close_frames(), "Closing telemetry frames"),
            start_for_life(self._watch_silent(), "Watching silent replicas"),
        ]

    async def note_loading(self, replica: str, progress: LoadProgress) -> None:
        """How far a replica, by Serve's name for it, is with loading its model."""
        self._loads[replica] = progress

    async def loading(self) -> LoadProgress | None:
        """Of the replica that is furthest behind."""
        return furthest_behind(self._loads.values())

    async def register(self, replica: str) -> tuple[str, VersionedSettings]:
        """A short name for a replica that starts, which Serve calls `replica`, and the settings in force."""
        name = await self._names.give(replica)
        self._redeployer.watch()
        return name, self._board.in_force

    async def follow(self, replica: str, name: str, held: VersionedSettings) -> VersionedSettings:
        """See `SettingsBoard.follow`; `name` is the one that was given to what Serve calls `replica`."""
        self._names.note(replica, name)
        return await self._board.follow(name, held)

    async def revise(self, changes: dict[str, object]) -> VersionedSettings | SettingError:
        """Change settings for all replicas; a refusal is returned, so that Ray does not wrap it."""
        try:
            change = await self._board.revise(changes)
        except SettingError as refusal:
            return refusal
        if change is not None:
            self._log.add_change(change)
        return self._board.in_force

    async def deployment(self) -> Deployment:
        """How many replicas there are, what Ray lets them hold, and how far a change of that is."""
        return await self._redeployer.look()

    async def redeploy(self, changes: dict[str, object], bytes_each: int) -> Deployment | SettingError:
        """See `Redeployer.redeploy`; a refusal is returned, so that Ray does not wrap it."""
        try:
            return await self._redeployer.redeploy(changes, bytes_each)
        except SettingError as refusal:
            return refusal

    async def report(self, report: ReplicaReport) -> float:
        """Take in a replica's report; returns how many seconds it should gather news before the next."""
        self._log.add_report(report)
        return self._log.report_interval_s

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
            except Exception as error:  # of Ray's, whose controller may be late too, or gone
                logger.warning("Serve does not say whether %s has ended: %s", " or ".join(silent), error)
                continue
            # Of a replica that came, or was heard of, while Serve was asked, `known` says nothing.
            for name in self._names.outside(known).intersection(silent, self._log.silent_replicas()):
                self._log.lose(name)
                self._board.forget(name)

    def _note_left(self, replica: str) -> None:
        name = self._names.forget(replica)
        if name is not None:
            self._log.let_go(name)
            self._board.forget(name)
