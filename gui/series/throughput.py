"""Throughput: tokens and requests a second in two panes, and the rate that is offered."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

import numpy as np

from gui.series.declaration import Declaration, Readout, figure_entry
from gui.series.time_range import TimeRange, step_line, stride
from service.analysis.observed.columns import Floats
from service.analysis.observed.history import History
from service.analysis.observed.register import Figures, readout
from service.analysis.observed.requests import samples_between
from service.analysis.observed.rolling import STEP_S, step_of
from service.messages.workload import TEXT

TOKENS_WINDOW_S: Final = 1.0
REQUESTS_WINDOW_S: Final = 2.0  # twice over, since requests end by whole batches
FRESH_S: Final = 1.5
LONGEST_ON_AXIS: Final = 5  # letters of a unit
PIXELS_AVERAGED: Final = 3  # in a long window of time what is faster than this would only be a hedge of lines
RATES: Final = ("tokens_per_s", "requests_per_s", "offered_per_s")

PLOT: Final = Declaration(
    name="throughput",
    title="Throughput",
    unit="",
    entries=(
        figure_entry("tokens_per_s", "none", "t2", f". The curve is over {TOKENS_WINDOW_S:g} s"),
        figure_entry("requests_per_s", "none", "t2", f". The curve is over {REQUESTS_WINDOW_S:g} s, twice"),
        figure_entry("offered_per_s", "dash", "t3"),
    ),
    empty_text="Tokens and requests a second,\nagainst what is offered",
    axis_units=("tok/s", "req/s"),
)


@cache
def declared(unit: str) -> Declaration:
    """With the rate of what is counted, in the plural.

    >>> declared("rows").axis_units, declared("items").axis_units, declared("numbers").entries[0].name
    (('/s', 'req/s'), ('/s', 'req/s'), 'numbers/s')
    """
    if unit == TEXT.unit:
        return PLOT
    rate = f"{unit}/s"
    return replace(
        PLOT,
        entries=(replace(PLOT.entries[0], name=rate), *PLOT.entries[1:]),
        empty_text=PLOT.empty_text.replace(TEXT.unit.capitalize(), unit.capitalize()),
        axis_units=(rate if len(rate) <= LONGEST_ON_AXIS else "/s", PLOT.axis_units[1]),
    )


@dataclass(frozen=True)
class Throughput:
    """What the two panes show; `offered` are the corners of a step with NaN where no rate is offered."""

    tokens: tuple[Floats, Floats]
    requests: tuple[Floats, Floats]
    offered: tuple[Floats, Floats]

    @property
    def peaks(self) -> tuple[float, float]:
        """The largest value of each pane."""
        return _largest(self.tokens[1]), max(_largest(self.requests[1]), _largest(self.offered[1]))


def throughput(history: History, view: TimeRange) -> Throughput:
    """Rates over a sliding window that ends at each step of time, and is as wide as two columns at least."""
    every = stride(view)
    first, last = step_of(view.start_s) // every * every - 1, step_of(view.end_s)
    if history.last_s is not None:
        last = max(first - 1, min(last, step_of(history.last_s) - 1))  # none, where the last is before the view
    times = (np.arange(first, last + 1) + 1) * STEP_S
    tokens = _blank_without_service(history, times, _tokens_per_s(history, first, last, view.pixel_s))
    requests = _blank_without_service(history, times, _requests_per_s(history, first, last, view.pixel_s))
    return Throughput(
        tokens=_held(history, view, (times[::every], tokens[::every])),
        requests=_held(history, view, (times[::every], requests[::every])),
        offered=_offered(history, view),
    )


def readout_at(history: History, at_s: float, pixel_s: float = 0.0) -> Readout:
    """The rates at that moment, of the curves."""
    tokens, requests, offered = values_at(history, at_s, pixel_s)
    return readout_of(Figures(tokens_per_s=tokens, requests_per_s=requests, offered_per_s=offered), history.unit)


def readout_of(figures: Figures, unit: str) -> Readout:
    """The rates among the figures; tokens are called by the workload's unit."""
    tokens, requests, offered = readout(figures, RATES).items()
    return dict(((f"{unit}/s", tokens[1]), requests, offered))


def values_at(history: History, at_s: float, pixel_s: float = 0.0) -> tuple[float, float, float]:
    """Tokens, requests and offered requests a second, as a plot with such pixels shows them; NaN where unknown."""
    if history.last_s is None or history.first_s is None or at_s < history.first_s:
        return math.nan, math.nan, math.nan
    step = min(step_of(at_s), step_of(history.last_s)) - 1
    offered = history.load_timeline.offered_at(at_s)
    tokens = _tokens_per_s(history, step, step, pixel_s)
    requests = _requests_per_s(history, step, step, pixel_s)
    return float(tokens[0]), float(requests[0]), math.nan if offered is None else offered


def _tokens_per_s(history: History, first: int, last: int, pixel_s: float) -> Floats:
    width = _width(TOKENS_WINDOW_S, pixel_s)
    return _sliding_sum(history.batches.tokens.read(first - width + 1, last), width) / (width * STEP_S)


def _requests_per_s(history: History, first: int, last: int, pixel_s: float) -> Floats:
    width = _width(REQUESTS_WINDOW_S, pixel_s)
    begin = first - 2 * (width - 1)
    finished, _, _ = samples_between(history.requests.samples, begin * STEP_S, (last + 1) * STEP_S)
    steps = np.clip(np.floor(finished / STEP_S).astype(np.int64) - begin, 0, last - begin)
    counts = np.bincount(steps, minlength=last - begin + 1).astype(np.float64)
    return _sliding_sum(_sliding_sum(counts, width) / width, width) / (width * STEP_S)


def _width(window_s: float, pixel_s: float) -> int:
    """Steps of time to average over."""
    return math.ceil(max(window_s, PIXELS_AVERAGED * pixel_s) / STEP_S)


def _sliding_sum(values: Floats, width: int) -> Floats:
    sums = np.cumsum(np.concatenate(([0.0], values)))
    result: Floats = np.maximum(sums[width:] - sums[:-width], 0.0)
    return result


def _blank_without_service(history: History, times: Floats, rates: Floats) -> Floats:
    if history.first_s is not None:
        rates[times < history.first_s] = np.nan
    rates[history.has_failed_at(times)] = np.nan
    return rates


def _held(history: History, view: TimeRange, line: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    """The line drawn on to the edge while frames still come: the step under way has no value of its own yet."""
    times, values = line
    is_fresh = history.last_s is not None and history.last_s > view.end_s - FRESH_S
    if len(times) == 0 or not is_fresh or history.ended_s is not None:
        return line
    return np.append(times, view.end_s), np.append(values, values[-1])


def _offered(history: History, view: TimeRange) -> tuple[Floats, Floats]:
    begun = [(at_s, rate) for at_s, rate in history.load_timeline.offered if at_s < view.end_s]
    if not begun:
        return np.zeros(0), np.zeros(0)
    starts = np.maximum(np.array([at_s for at_s, _ in begun]), view.start_s)
    rates = np.array([np.nan if rate is None else rate for _, rate in begun])
    end_s = view.end_s if history.ended_s is None else min(history.ended_s, view.end_s)
    return step_line(np.minimum(starts, end_s), rates, end_s)


def _largest(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.max()) if len(known) else 0.0
