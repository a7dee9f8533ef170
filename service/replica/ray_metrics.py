"""The figures of batches as metrics of Ray, so that the Prometheus of a cluster has them beside Ray's own."""

from __future__ import annotations

from typing import Any, Final

from ray.serve import metrics

from service.messages.telemetry import ReplicaStatus
from service.replica.changes import Changes
from service.replica.metrics import BATCH_COUNTERS, GAUGES, OF_BATCHES, OF_WAITS_MS, Figure, Histogram

PREFIX: Final = "ray_"
"""Ray puts this in front of every name, and `_total` behind that of a counter."""
TOTAL: Final = "_total"
FUNCTION_TAG: Final = "function_name"
FUNCTION: Final = {FUNCTION_TAG: "handle_batch"}
"""As Ray tags its own. Under `early` Ray counts what it seals itself, as `seal`."""


class RayMetrics:
    """A listener of a replica's changes, with the names of `service.replica.metrics`.

    Figures that count one value several times, and names that Ray does not take, are left out.
    """

    def __init__(self) -> None:
        self._measures = [(each, _histogram(each)) for each in OF_BATCHES if each.weight is None]
        self._waits = _histogram(OF_WAITS_MS)
        self._counters = [(each, _single(metrics.Counter, each)) for each in BATCH_COUNTERS]
        self._gauges = [(each, _single(metrics.Gauge, each)) for each in GAUGES if ":" not in each.name]

    def __call__(self, changes: Changes, status: ReplicaStatus) -> None:
        for batch in changes.ended_batches:
            for measure, histogram in self._measures:
                if (value := measure.value(batch)) is not None:
                    histogram.observe(value, FUNCTION)
            for figure, counter in self._counters:
                for labels, amount in figure.amounts(batch):
                    if amount > 0:  # Ray counts nothing else
                        counter.inc(amount, _tags(figure, labels))
        for waited_s in changes.waited_s:
            self._waits.observe(waited_s * 1e3, FUNCTION)
        for present, gauge in self._gauges:
            for labels, amount in present.amounts(status):
                gauge.set(amount, _tags(present, labels))


def ray_name(name: str) -> str:
    """The name that Ray makes this one of.

    >>> ray_name("ray_serve_batches_processed_total"), ray_name("batchscope_queue_requests")
    ('serve_batches_processed', 'batchscope_queue_requests')
    """
    return name.removeprefix(PREFIX).removesuffix(TOTAL)


def _histogram(histogram: Histogram) -> metrics.Histogram:
    return metrics.Histogram(ray_name(histogram.name), histogram.help, list(histogram.bounds), (FUNCTION_TAG,))


def _single(kind: type[Any], figure: Figure[Any]) -> Any:
    return kind(ray_name(figure.name), figure.help, (FUNCTION_TAG, *figure.labels))


def _tags(figure: Figure[Any], labels: tuple[str, ...]) -> dict[str, str]:
    return FUNCTION | dict(zip(figure.labels, labels, strict=True))
