"""The result of `python -m service predict`, as a file and as text, beside what was measured."""

from __future__ import annotations

import math
from typing import Final

import msgspec
import numpy as np

from service.analysis.observed.batches import CONTINUOUS, mean_size
from service.analysis.observed.history import History
from service.analysis.observed.register import ENTRIES
from service.analysis.observed.requests import SAMPLED, samples_between
from service.analysis.predict.cost import Capacity
from service.analysis.predict.figures import percentiles
from service.analysis.predict.load import observed_requests
from service.analysis.predict.predict import HORIZON_S, Estimate, Prediction
from service.messages.settings import Settings, setting_text
from service.messages.text import counted, format_number
from service.messages.workload import TEXT

SHOWN: Final = {
    **dict.fromkeys(("p50_s", "p95_s", "ttft_p50_s", "ttft_p95_s"), 3),
    **dict.fromkeys(("tpot_p50_s", "tpot_p95_s"), 4),
    "requests_per_s": 2,
    "tokens_per_s": 1,
    "mean_batch": 2,
}
"""The figures of the table, by their keys in the register, with their decimals."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of the requests answered within a span, as `Prediction` has them."""

    p50_s: float | None
    p95_s: float | None
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    tpot_p50_s: float | None
    tpot_p95_s: float | None
    requests_per_s: float
    tokens_per_s: float
    mean_batch: float | None
    requests: int


def measured(history: History, start_s: float, end_s: float) -> Measured:
    """The figures of a span of time, counted as a simulation's."""
    samples = history.requests.samples
    pairs = {name: percentiles(samples_between(samples, start_s, end_s, name)[1]) for name in SAMPLED}
    known = {name: [None if math.isnan(each) else each for each in pair] for name, pair in pairs.items()}
    answered = (samples["finished"] > start_s) & (samples["finished"] <= end_s)
    requests = observed_requests(history, -np.inf, end_s)
    is_answered = (requests.answered_s > start_s) & (requests.answered_s <= end_s)
    batches = history.batches.columns
    ran = (batches["started"] >= start_s) & (batches["started"] < end_s)
    run_s = np.minimum(batches["finished"][ran], end_s) - batches["started"][ran]
    return Measured(
        **dict(zip(("p50_s", "p95_s"), known["latency"], strict=True)),
        **dict(zip(("ttft_p50_s", "ttft_p95_s"), known["ttft"], strict=True)),
        **dict(zip(("tpot_p50_s", "tpot_p95_s"), known["tpot"], strict=True)),
        requests_per_s=float(np.count_nonzero(answered)) / (end_s - start_s),
        tokens_per_s=float(requests.tokens[is_answered].sum()) / (end_s - start_s),
        mean_batch=mean_size(batches["size"][ran], run_s, batches["formation"][ran] == CONTINUOUS),
        requests=int(np.count_nonzero(answered)),
    )


class PredictionReport(msgspec.Struct, frozen=True, kw_only=True):
    """The output of `--json`.

    Attributes:
        unit: name of the tokens, in the plural.
        settings: in force while it watched, to which `measured` and `expected` belong.
        expected: prediction for the settings in force; compared with `measured` it shows the simulation's accuracy.
        capacity: of one replica with full batches under the settings asked for.
        marginal_s, marginal_error_s: time that one more request adds to its batch, and its standard error.
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


def table(report: PredictionReport) -> str:
    """A table of the figures as measured now, simulated now, and predicted for the settings asked for."""
    now, expected, then = report.measured, report.expected, report.prediction
    rows = [
        _row(_title(key, report.unit), getattr(now, key), getattr(expected, key), getattr(then, key), decimals)
        for key, decimals in SHOWN.items()
    ]
    load = f"closed loop of {then.users} users" if then.users else f"open loop of {then.rate_per_s:.2f} requests/s"
    lines = [
        f"load: {load}, watched for {report.watched_s:g} s",
        f"now:  {_format_settings(report.settings)}",
        f"then: {_format_settings(then.settings)}",
        "",
        f"{'':<16}{'measured now':>14}{'simulated now':>16}{'predicted then':>30}",
        *rows,
        f"one more request makes its batch {report.marginal_s:.3f} s longer (± {report.marginal_error_s:.3f})",
    ]
    if then.saturated:
        refused = f" {then.refused_share.value:.0%} of them are refused." if then.refused_share.value else ""
        lines.append(
            "Saturated: requests come faster than these settings can serve them. The latencies are those that they "
            f"grow to in {then.horizon_s:g} s, and go on growing as long as the load lasts.{refused}"
        )
        return "\n".join(lines)
    capacity = report.capacity  # which saturated settings show as the rate of answers
    rates = f"{capacity.requests_per_s:.2f} requests/s, {capacity.tokens_per_s:.0f} {report.unit}/s"
    lines.append(f"a replica's full batches of {capacity.max_batch_size} then give {rates}")
    if then.is_after_backlog:
        lines.append(f"These hold once the backlog is worked off: {backlog_words(then)}.")
    return "\n".join(lines)


def backlog_words(prediction: Prediction) -> str:
    """How long the requests that wait now take."""
    waiting, after = counted(prediction.backlog, "request"), prediction.worked_off_s
    if after is None:
        return f"{waiting} waiting take longer than {HORIZON_S:.0f} s"
    return f"{waiting} waiting take about {after.value:.0f} s, {after.low:.0f} to {after.high:.0f}"


def _title(key: str, unit: str) -> str:
    """The name of the figure in the register, with its unit, or the rate of the workload's unit."""
    if key == "tokens_per_s":
        return f"{unit}/s"
    return f"{ENTRIES[key].name} ({ENTRIES[key].unit})".removesuffix(" ()")


def _row(name: str, now: float | None, expected: Estimate | None, then: Estimate | None, decimals: int) -> str:
    interval = "" if then is None else f"({then.low:.{decimals}f} to {then.high:.{decimals}f})"
    simulated, predicted = (format_number(None if e is None else e.value, decimals) for e in (expected, then))
    return f"{name:<16}{format_number(now, decimals):>14}{simulated:>16}{predicted:>12} {interval:>17}"


def _format_settings(settings: Settings) -> str:
    return ", ".join(f"{name}={setting_text(getattr(settings, name))}" for name in Settings.__struct_fields__)
