"""`GET /metrics`: what all replicas have counted, in Prometheus' text format."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, NamedTuple

from prometheus_client import generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from service.messages.settings import VersionedSettings
from service.messages.telemetry import ReplicaStatus
from service.replica.metrics import (
    COUNTERS,
    GAUGES,
    HISTOGRAMS,
    SETTINGS,
    STATUS_COUNTERS,
    Amounts,
    Buckets,
    Counts,
    Figure,
    Histogram,
    Labels,
)
from service.replica.recorder import ReplicaReport

KEPT_ENDED: Final = 64
"""Replicas that have ended and whose counts are still given: a counter that went back would be taken for a new one."""
OF_REPLICA: Final = ("model_name", "replica")
"""Labels of every figure of a replica; vLLM's boards choose by the first, Ray's by the second."""
AGE: Final = Figure[float](
    "batchscope_report_age_seconds",
    "Seconds since the replica has reported; its other figures are as old.",
    lambda age_s: [((), age_s)],
    kind="gauge",
)


class Known(NamedTuple):
    """What a replica has reported last, and when."""

    counts: Counts
    status: ReplicaStatus
    heard_s: float

    @property
    def labels(self) -> Labels:
        return self.status.model, self.status.replica


class ReplicaMetrics:
    """The latest counts of each replica. Until it is asked for them it keeps what was reported and computes nothing."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._live: dict[str, Known] = {}
        self._ended: dict[str, Known] = {}

    def note(self, report: ReplicaReport) -> None:
        """A replica has reported; each report holds all that it has counted."""
        self._live[report.status.replica] = Known(report.counts, report.status, self._clock())

    def end(self, replica: str) -> None:
        """A replica has ended: its counts stay, and nothing of it is present."""
        known = self._live.pop(replica, None)
        if known is not None:
            self._ended[replica] = known
            if len(self._ended) > KEPT_ENDED:
                del self._ended[next(iter(self._ended))]

    def scrape(self, in_force: VersionedSettings) -> Scrape:
        """All of it as it is now, and the settings in force."""
        return Scrape(tuple(self._live.values()), tuple(self._ended.values()), in_force, self._clock())


@dataclass(frozen=True)
class Scrape(Collector):
    """What one reader is given."""

    live: Sequence[Known]
    ended: Sequence[Known]
    in_force: VersionedSettings
    at_s: float

    def text(self) -> bytes:
        """It takes some milliseconds a replica; any thread may call it."""
        return generate_latest(self)

    def collect(self) -> Iterator[Metric]:
        counted = [*self.ended, *self.live]
        for histogram in HISTOGRAMS:
            yield _histogram(histogram, counted)
        for counter in COUNTERS:
            sums = [(known, known.counts.counters[counter.name]) for known in counted if _has(known, counter)]
            yield _family(counter, [(known, amounts.items()) for known, amounts in sums])
        for counter in STATUS_COUNTERS:
            yield _family(counter, [(known, counter.amounts(known.status)) for known in counted])
        for gauge in GAUGES:
            yield _family(gauge, [(known, gauge.amounts(known.status)) for known in self.live])
        yield _family(AGE, [(known, AGE.amounts(self.at_s - known.heard_s)) for known in self.live])
        for setting in SETTINGS:
            yield _family(setting, [(None, setting.amounts(self.in_force))])


def _has(known: Known, figure: Figure[Any]) -> bool:
    return figure.name in known.counts.counters


def _histogram(histogram: Histogram, counted: Iterable[Known]) -> Metric:
    family = HistogramMetricFamily(histogram.name, histogram.help, labels=OF_REPLICA)
    bounds = [*map(str, histogram.bounds), "+Inf"]
    for known in counted:
        buckets: Buckets | None = known.counts.histograms.get(histogram.name)
        if buckets is not None:
            counts = list(zip(bounds, accumulate(map(float, buckets.counts)), strict=True))
            family.add_metric(known.labels, counts, buckets.total)
    return family


def _family(figure: Figure[Any], found: Iterable[tuple[Known | None, Amounts]]) -> Metric:
    """The values of a figure; those of no replica have no labels of one."""
    found = list(found)
    of_replica = () if any(known is None for known, _ in found) else OF_REPLICA
    families = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}
    family: Any = families[figure.kind](figure.name, figure.help, labels=(*of_replica, *figure.labels))
    for known, amounts in found:
        for labels, amount in amounts:
            family.add_metric((*(known.labels if known else ()), *labels), amount)
    metric: Metric = family
    return metric
