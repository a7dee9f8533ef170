"""Runs of load on a running service, each from idle to idle under settings of its own."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Final, Self

import msgspec
import numpy as np

from service.analysis.compare.comparison import ServiceFacts
from service.analysis.compare.plan import PlannedRun, Side
from service.analysis.compare.progress import Pace, Progress
from service.analysis.compare.run import MeasuredRun
from service.analysis.observed.batches import mean_size
from service.commands.options import Server
from service.commands.remote import RemoteService, ServiceWatch
from service.load.report import LoadReport
from service.load.run import FINISH_WITHIN_S, LoadProgress, run_load
from service.messages.load import RunLoad
from service.messages.settings import Settings
from service.messages.telemetry import BatchRecord

Tell = Callable[[Progress], None]
WARM_UP: Final = "warming up"
WARM_UP_ENDS_WITHIN_S: Final = 15.0  # after its last request: nobody waits for what is not counted
MATCHING: Final = "measuring the throughput of A"


class MeasuringError(Exception):
    """Nothing could be measured; the text is a sentence that says what to do."""


async def settings_in_force(server: Server) -> Settings:
    """Raises `ServiceUnreachableError`."""
    async with RemoteService(server.url, server.token) as remote:
        return (await remote.settings()).settings


async def put_in_force(server: Server, settings: Settings) -> None:
    """Raises `ServiceUnreachableError`."""
    async with RemoteService(server.url, server.token) as remote:
        await remote.change(msgspec.structs.asdict(settings))


class MeasuredService:
    """One service that is measured. Its settings are as they were before when it is left, however that happens."""

    def __init__(self, remote: RemoteService, server: Server, tell: Tell) -> None:
        self._remote = remote
        self._server = server
        self._tell = tell
        self._watch = ServiceWatch(remote)

    @classmethod
    @asynccontextmanager
    async def at(cls, server: Server, tell: Tell) -> AsyncIterator[Self]:
        """That service; raises `ServiceUnreachableError`."""
        async with RemoteService(server.url, server.token) as remote:
            before = await remote.settings()
            service = cls(remote, server, tell)
            try:
                async with service._watch:
                    yield service
            finally:
                await service._adopt(before.settings)

    async def facts(self) -> ServiceFacts:
        """What is measured on."""
        replicas = await self._watch.replicas()
        first = replicas[0]
        return ServiceFacts(
            url=self._server.url, model=first.model, device=first.device, dtype=first.dtype, replicas=len(replicas)
        )

    @property
    def most_memory_bytes(self) -> int:
        """Of all replicas, during the last run."""
        return self._watch.most_memory_bytes

    async def throughput(self, side: Side, duration_s: float) -> float:
        """What this side reaches, in requests a second."""
        self._tell(Progress(done=0, total=0, doing=MATCHING, left_s=0.0))
        report, batches = await self.run(side.settings, side.load, duration_s)
        run = run_of(report, batches)
        return run.answered / run.ran_s

    async def warm_up(self, sides: Iterable[tuple[Settings, RunLoad]], seconds: float) -> None:
        """A short run of each side, so that nothing is computed or connected for the first time in a round."""
        for settings, load in sides:
            if seconds > 0:
                self._tell(Progress(done=0, total=0, doing=WARM_UP, left_s=0.0))
                await self.run(settings, load, seconds, finish_within_s=WARM_UP_ENDS_WITHIN_S)

    async def measure(
        self,
        runs: Sequence[PlannedRun],
        duration_s: float,
        take: Callable[[PlannedRun, MeasuredRun], None],
        done: int = 0,
    ) -> None:
        """Make `runs`, telling how it goes on, and hand out each with what was measured; `done` were made before."""
        pace = Pace(duration_s)
        for place, planned in enumerate(runs):
            begun_s = time.monotonic()

            def tell(doing: str, place: int = place, begun_s: float = begun_s) -> None:
                left_s = pace.left_s(runs[place:], time.monotonic() - begun_s)
                self._tell(Progress(done=done + place, total=done + len(runs), doing=doing, left_s=left_s))

            run = await self._run_planned(planned, duration_s, tell)
            pace.note(planned.key, time.monotonic() - begun_s)
            take(planned, run)

    async def _run_planned(self, planned: PlannedRun, duration_s: float, tell: Callable[[str], None]) -> MeasuredRun:
        tell(planned.title)
        report, batches = await self.run(
            planned.settings, planned.load, duration_s, lambda progress: tell(_doing(planned, progress))
        )
        return run_of(report, batches)

    async def run(
        self,
        settings: Settings,
        load: RunLoad,
        duration_s: float,
        on_progress: Callable[[LoadProgress], None] | None = None,
        finish_within_s: float = FINISH_WITHIN_S,
    ) -> tuple[LoadReport, list[BatchRecord]]:
        """Send `load` under these settings, from an idle service to an idle one: its report, and what was executed."""
        await self._watch.until_idle()
        await self._adopt(settings)
        self._watch.forget()
        url, token, model = self._server
        report = await run_load(
            url,
            load,
            duration_s,
            token=token,
            model=model,
            on_progress=on_progress,
            finish_within_s=finish_within_s,
        )
        await self._watch.until_idle()
        return report, self._watch.batches()

    async def _adopt(self, settings: Settings) -> None:
        await self._remote.change(msgspec.structs.asdict(settings))


def _doing(planned: PlannedRun, progress: LoadProgress) -> str:
    totals = progress.totals
    if progress.elapsed_s < progress.duration_s:
        return f"{planned.title}, {totals.sent} sent"
    return f"{planned.title}, waiting for {totals.outstanding} answer{'s' if totals.outstanding != 1 else ''}"


def run_of(report: LoadReport, batches: Sequence[BatchRecord]) -> MeasuredRun:
    """What is compared of a run; raises `MeasuringError` if not one request was answered."""
    totals = report.totals
    if not totals.ok:
        why = " ".join(report.warnings) or "Send more, or for longer."
        raise MeasuringError(f"No request was answered, so there is nothing to compare. {why}")
    requests = sorted(report.requests, key=lambda request: request.intended_s)
    latencies_s = [
        request.finished_s - request.intended_s
        for request in requests
        if request.outcome in ("ok", "cancelled") and request.finished_s is not None
    ]
    lag_ms = report.lag_ms
    return MeasuredRun(
        seed=report.seed,
        ran_s=report.ran_s,
        latencies_s=tuple(latencies_s),
        tokens=sum(request.tokens for request in requests if request.outcome == "ok"),
        broken_off=totals.cancelled,
        refused=totals.refused,
        failed=totals.failed,
        dropped=totals.dropped,
        mean_batch=_mean_batch(batches),
        lag_p99_ms=None if lag_ms is None else lag_ms.p99,
    )


def _mean_batch(batches: Sequence[BatchRecord]) -> float | None:
    ran = [(batch, batch.started_s) for batch in batches if batch.started_s is not None]
    size = np.array([float(batch.size) for batch, _ in ran])
    run_s = np.array([(batch.finished_s or started_s) - started_s for batch, started_s in ran])
    return mean_size(size, run_s, np.array([batch.formation == "continuous" for batch, _ in ran], np.bool_))
