"""The report of a demo. A figure without a measurement is null."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import msgspec
import numpy as np

from gui.control.clocks import FrameTimes
from service.analysis.observed.batches import mean_size_of
from service.messages.life import Ready
from service.messages.load import ClientRequest, ClientTotals
from service.messages.settings import SettingsChange
from service.messages.telemetry import BatchRecord

FIGURES: Final[Mapping[str, str]] = {
    "requests.sent": "sent",
    "requests.ok": "answered",
    "requests.failed": "unanswered",
    "latency_s.p50": "p50_s",
    "latency_s.p95": "p95_s",
    "latency_s.p99": "p99_s",
    "throughput.requests_per_s": "requests_per_s",
    "throughput.tokens_per_s": "tokens_per_s",
    "batches.count": "batches",
    "batches.mean_size": "mean_batch",
    "batches.max_size": "largest_batch",
}
"""What the report's figures are called in the register, which defines them."""


class Requests(msgspec.Struct, frozen=True):
    """Counts of requests; `failed` are all that were sent and not answered: errors, refusals and cancellations."""

    sent: int
    ok: int
    failed: int


class Latency(msgspec.Struct, frozen=True):
    """Seconds from the intended send time to the last token, of answered requests."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


class Throughput(msgspec.Struct, frozen=True):
    """Answered requests and their tokens over the time from the first intended send to the last token."""

    requests_per_s: float | None = None
    tokens_per_s: float | None = None


class Batches(msgspec.Struct, frozen=True):
    count: int = 0
    mean_size: float | None = None
    max_size: int | None = None


class Change(msgspec.Struct, frozen=True):
    field: str
    value: str | int | float
    in_force_after_ms: float


class Startup(msgspec.Struct, frozen=True):
    """Seconds: `window` from the process's creation to the first frame, `ready` from Start to the first answer."""

    window: float | None
    ready: float | None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    model: str | None
    device: str | None
    requests: Requests
    latency_s: Latency
    throughput: Throughput
    batches: Batches
    settings_changes: list[Change]
    frames: FrameTimes  # of the window while the load ran
    startup_s: Startup

    def as_json(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"


class Measurements:
    """Collects telemetry and results of the load generator while the demo's load runs."""

    def __init__(self) -> None:
        self.ready: Ready | None = None
        self.ready_after_s: float | None = None
        self.window_after_s: float | None = None
        self.frames = FrameTimes(0, None, None, None)
        self.totals = ClientTotals()
        self._requests: dict[str, ClientRequest] = {}
        self._batches: dict[str, BatchRecord] = {}
        self._changes: list[SettingsChange] = []

    def add_requests(self, requests: Collection[ClientRequest]) -> None:
        self._requests.update((request.id, request) for request in requests)

    def add_batches(self, batches: Collection[BatchRecord]) -> None:
        self._batches.update((batch.id, batch) for batch in batches)

    def add_changes(self, changes: Collection[SettingsChange]) -> None:
        self._changes += changes

    def report(self) -> Report:
        """The report of the measurements so far."""
        return Report(
            model=self.ready.model if self.ready else None,
            device=self.ready.device if self.ready else None,
            requests=Requests(self.totals.sent, self.totals.ok, self.totals.sent - self.totals.ok),
            latency_s=self._latency(),
            throughput=self._throughput(),
            batches=self._sizes(),
            settings_changes=[change for each in self._changes for change in _fields_of(each)],
            frames=self.frames,
            startup_s=Startup(_rounded(self.window_after_s), _rounded(self.ready_after_s)),
        )

    @property
    def _answered(self) -> list[ClientRequest]:
        return [request for request in self._requests.values() if request.outcome == "ok"]

    def _latency(self) -> Latency:
        latencies = [request.latency_s for request in self._answered if request.latency_s is not None]
        if not latencies:
            return Latency()
        return Latency(*(_rounded(float(np.percentile(latencies, level))) for level in (50, 95, 99)))

    def _throughput(self) -> Throughput:
        answered = self._answered
        ends = [request.finished_s for request in answered if request.finished_s is not None]
        if not ends:
            return Throughput()
        span_s = max(ends) - min(request.intended_s for request in self._requests.values())
        if span_s <= 0:
            return Throughput()
        tokens = sum(request.tokens for request in answered)
        return Throughput(_rounded(len(answered) / span_s), _rounded(tokens / span_s))

    def _sizes(self) -> Batches:
        ran = list(self._batches.values())
        sizes = [batch.size for batch in ran]
        return Batches(len(ran), _rounded(mean_size_of(ran)), max(sizes)) if ran else Batches()


def _fields_of(change: SettingsChange) -> list[Change]:
    after_ms = round(change.in_force_after_ms, 3)
    return [Change(field, getattr(change.settings, field), after_ms) for field in change.changed_fields]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
