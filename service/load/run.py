"""One run of load from beginning to end, in the caller's event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

import msgspec

from service.load.client import Client, UnreachableError
from service.load.flight import Flight
from service.load.generator import Generator
from service.load.loops import Clock
from service.load.process import allow_connections
from service.load.report import LoadReport, ReportedRequest, load_figures, spoilers
from service.messages.clock import monotonic_clock_id
from service.messages.load import Cancel, ClientTotals, ClosedLoop, RunLoad, StopLoad
from service.messages.objectives import NO_OBJECTIVES, Objectives
from service.messages.text import UserError
from service.messages.workload import TEXT

FINISH_WITHIN_S: Final = 120.0
PROGRESS_INTERVAL_S: Final = 0.2


class LoadProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How a run stands, `elapsed_s` after its start."""

    elapsed_s: float
    duration_s: float
    totals: ClientTotals


OnProgress = Callable[[LoadProgress], None]


async def run_load(
    url: str,
    load: RunLoad,
    duration_s: float,
    *,
    token: str | None = None,
    model: str | None = None,
    unit: str = TEXT.unit,
    on_progress: OnProgress | None = None,
    stop: asyncio.Event | None = None,
    finish_within_s: float = FINISH_WITHIN_S,
    id_prefix: str = "",
    objectives: Objectives = NO_OBJECTIVES,
) -> LoadReport:
    """Send `load` for at most `duration_s`, wait for the answers, and return the report.

    An open loop sends what is due within `duration_s`, so two runs of one seed are sent the same, however busy the
    machine; a closed loop sends until then.
    `unit` is what the answers are counted in, in the plural. The requests' ids begin with `id_prefix`. Those that meet
    `objectives` count for goodput. `stop` ends the run at once and cancels the requests under way, as does the end of
    `finish_within_s` after the last arrival. Raises `UserError` where nothing could be sent.
    """
    async with Client(url, token, model) as client:
        try:
            await client.learn_model()
        except UnreachableError as e:
            raise UserError(f"{e} Start the service first, or give its address.") from e
        run = _Run(client, url, load, duration_s, unit, id_prefix, objectives)
        return await run.conduct(on_progress or (lambda _progress: None), stop or asyncio.Event(), finish_within_s)


class _Run:
    """Generator, clock and journal of one run."""

    def __init__(
        self,
        client: Client,
        url: str,
        load: RunLoad,
        duration_s: float,
        unit: str,
        id_prefix: str,
        objectives: Objectives,
    ) -> None:
        self._client = client
        self._url = url
        self._unit = unit
        self._load = load
        self._duration_s = duration_s
        self._objectives = objectives
        self._clock = Clock()
        self._ended: list[Flight] = []
        self._refusals: list[str] = []
        self._is_over = asyncio.Event()
        self._generator = Generator(client, self._clock, self, allow_connections(), id_prefix, duration_s)

    async def conduct(self, on_progress: OnProgress, stop: asyncio.Event, finish_within_s: float) -> LoadReport:
        started, start_s = time.time(), self._clock.now()
        self._generator.obey(self._load)
        if self._refusals:
            raise UserError(self._refusals[0])
        reporter = asyncio.create_task(self._report_progress(on_progress, start_s))
        try:
            await self._over_or(stop, self._duration_s)
            if isinstance(self._load.pattern, ClosedLoop):  # an open loop knows its last arrival
                self._generator.obey(StopLoad())
            await self._over_or(stop, finish_within_s)
            self._generator.obey(StopLoad())
            self._generator.obey(Cancel())
            await self._client.idle()
        finally:  # also where the caller is cancelled: its requests end, and users would send the next ones
            self._generator.obey(StopLoad())
            reporter.cancel()
        on_progress(self._progress(start_s))
        return self._report(started, start_s)

    async def _over_or(self, stop: asyncio.Event, timeout_s: float) -> None:
        waits = [asyncio.create_task(event.wait()) for event in (self._is_over, stop)]
        await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def _report_progress(self, on_progress: OnProgress, start_s: float) -> None:
        while True:
            on_progress(self._progress(start_s))
            await asyncio.sleep(PROGRESS_INTERVAL_S)

    def _progress(self, start_s: float) -> LoadProgress:
        return LoadProgress(
            elapsed_s=self._clock.now() - start_s,
            duration_s=self._duration_s,
            totals=self._generator.totals(),
        )

    def _report(self, started: float, start_s: float) -> LoadReport:
        requests = tuple([ReportedRequest.of(flight, start_s) for flight in self._ended])
        figures, totals = load_figures(requests, self._objectives), self._generator.totals()
        return LoadReport(
            url=self._url,
            model=self._client.model,
            unit=self._unit,
            pattern=self._load.pattern,
            seed=self._load.seed,
            prompts=len(self._load.prompts),
            max_tokens=self._load.max_tokens,
            prompt_words=self._load.prompt_words,
            temperature=self._load.temperature,
            stream=self._load.stream,
            started=started,
            clock=monotonic_clock_id(),
            start_s=start_s,
            duration_s=self._duration_s,
            totals=totals,
            objectives=self._objectives,
            **msgspec.structs.asdict(figures),
            warnings=(*self._refusals, *spoilers(totals, figures, requests)),
            requests=requests,
        )

    # Reports of the generator ----------------------------------------------------------------------------------------

    def flight_changed(self, flight: Flight) -> None:
        if flight.outcome is not None:
            self._ended.append(flight)
            flight.forget_text()
        self.load_changed()

    def load_changed(self) -> None:
        if not self._generator.is_busy:
            self._is_over.set()

    def refused(self, reason: str) -> None:
        self._refusals.append(reason)
