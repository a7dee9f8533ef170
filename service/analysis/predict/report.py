"""What `python -m service predict` tells, as a file and for a reader."""

from __future__ import annotations

import msgspec

from service.analysis.predict.cost import Capacity
from service.analysis.predict.measured import Measured
from service.analysis.predict.predict import Estimate, Prediction
from service.messages.settings import Settings
from service.messages.workload import TEXT


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What `--json` writes.

    Attributes:
        unit: what the tokens are, in the plural.
        settings: in force while it watched, for which `measured` and `expected` are told.
        expected: what the same simulation says of the settings in force, beside `measured`: how far it can be trusted.
        capacity: of one replica whose batches are full under the settings asked for.
        marginal_s, marginal_error_s: what one more request adds to the time of its batch, and its standard error.
    """

    url: str
    unit: str = TEXT.unit
    watched_s: float
    settings: Settings
    measured: Measured
    expected: Prediction
    prediction: Prediction
    capacity: Capacity
    marginal_s: float
    marginal_error_s: float


def table(report: Report) -> str:
    """What is measured now, what the simulation makes of it, and what it says of the settings asked for."""
    now, expected, then = report.measured, report.expected, report.prediction
    rows = [
        _row("p50 latency (s)", now.p50_s, expected.p50_s, then.p50_s, 3),
        _row("p95 latency (s)", now.p95_s, expected.p95_s, then.p95_s, 3),
        _row("requests/s", now.requests_per_s, expected.requests_per_s, then.requests_per_s, 2),
        _row(f"{report.unit}/s", now.tokens_per_s, expected.tokens_per_s, then.tokens_per_s, 1),
        _row("mean batch", now.mean_batch, expected.mean_batch, then.mean_batch, 2),
    ]
    return "\n".join(
        [
            f"load: {_spelled_load(then)}, watched for {report.watched_s:g} s",
            f"now:  {_spelled(report.settings)}",
            f"then: {_spelled(then.settings)}",
            "",
            f"{'':<16}{'measured now':>14}{'simulated now':>16}{'predicted then':>30}",
            *rows,
            f"capacity of a full batch: {report.capacity.requests_per_s:.2f} requests/s, "
            f"{report.capacity.tokens_per_s:.0f} {report.unit}/s a replica",
            f"one more request makes its batch {report.marginal_s:.3f} s longer (± {report.marginal_error_s:.3f})",
            *_warnings(then),
        ]
    )


def _row(name: str, now: float | None, expected: Estimate, then: Estimate, decimals: int) -> str:
    measured_now = "–" if now is None else f"{now:.{decimals}f}"
    interval = f"({then.low:.{decimals}f} to {then.high:.{decimals}f})"
    return f"{name:<16}{measured_now:>14}{expected.value:>16.{decimals}f}{then.value:>12.{decimals}f} {interval:>17}"


def _spelled_load(prediction: Prediction) -> str:
    if prediction.users:
        return f"closed loop of {prediction.users} users"
    return f"open loop of {prediction.rate_per_s:.2f} requests/s"


def _spelled(settings: Settings) -> str:
    return ", ".join(f"{name}={getattr(settings, name)}" for name in Settings.__struct_fields__)


def _warnings(then: Prediction) -> list[str]:
    if not then.saturated:
        return []
    refused = f" {then.refused_share.value:.0%} of them are refused." if then.refused_share.value else ""
    return [
        f"Saturated: requests come faster than these settings can serve them. The latencies are those of the next "
        f"{then.horizon_s:g} s and grow as long as the load lasts.{refused}"
    ]
