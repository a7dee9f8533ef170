"""The stretches of time in which the engine was slowed: what was measured in them holds for nothing else.

Two signs show it, each over `OVER_S`. The engine's threads got less than `LEAST_SHARE` of the processor time that they
asked for: beside the window and the load generator on two cores they get four fifths or more, beside one busy program
two thirds, since the engine then computes with fewer threads, and beside two a third. Or the steps took `MOST_FACTOR`
times what steps of like batches took, wherever the reason lies: like are batches of one formation, about as many rows,
about as long requests, and as many other batches beside them; what the quickest quarter of these took is what a step
takes. One busy program slows a step by less than that, so that its traces stay in the figures and in the findings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from service.analysis.observed.annotations import ClockJump, Stretch
from service.analysis.observed.columns import Bools, Floats, Ints
from service.analysis.observed.history import History
from service.analysis.observed.processor import LEAST_ASKED, processor_spans
from service.analysis.observed.rolling import WINDOW_S
from service.messages.text import percent, seconds
from service.messages.workload import TEXT

LEAST_SHARE: Final = 0.5
MOST_FACTOR: Final = 2.0
CELL_S: Final = 1.0  # of the grid on which both are summed up
OVER_S: Final = 3.0
LEAST_ALIKE: Final = 4  # batches, from which on it is known what a step of theirs takes
LEAST_RUN: Final = 1 / 3  # of the time, that the engine asked for a core, or ran batches that can be judged
JOINED_S: Final = 3.0  # stretches with less between them are one
REPORTED_S: Final = 2.5  # later than that nothing is reported yet
LOOKED_BACK_S: Final = 600.0
MOST_READING: Final = 0.5  # of a batch's time
NOTHING: Final = (np.zeros(0), np.zeros(0), np.zeros(0), np.zeros(0))


@dataclass(frozen=True)
class Contention(Stretch):
    """A stretch in which the engine was slowed.

    Attributes:
        factor: how many times as long a step took as it takes otherwise; ``None`` where few or no like batches ran.
        share: of the processor time that the engine asked for, what it got; ``None`` where it is not reported.
        jump_s: of the time of day, where that was it; else 0.
    """

    factor: float | None = None
    share: float | None = None
    jump_s: float = 0.0

    @classmethod
    def of_jump(cls, jump: ClockJump) -> Contention:
        return cls(jump.start_s, jump.end_s, f"clock {jump.by_s:+.0f} s".replace("-", "−"), jump_s=jump.by_s)

    @property
    def is_over(self) -> bool:
        return self.end_s is not None

    @property
    def lacks_processor(self) -> bool:
        """Whether the telemetry shows why."""
        return self.share is not None and self.share < LEAST_SHARE

    @property
    def brief(self) -> str:
        """What happened, in a few words.

        >>> Contention(0.0, 8.0, "", factor=3.1, share=0.33).brief, Contention(0.0, 0.0, "", jump_s=60.0).brief
        ('The engine was slowed', 'The time of day jumped')
        """
        if self.jump_s:
            return "The time of day jumped"
        return f"The engine {'was' if self.is_over else 'is'} slowed"

    @property
    def words(self) -> str:
        """What happened, without its time.

        >>> Contention(0.0, 8.0, "", factor=3.1, share=0.33).words
        'a step took 3.1 times as long: the engine got 33 % of the processor time that it asked for'
        >>> Contention(0.0, None, "", factor=3.1).words
        'a step takes 3.1 times as long'
        """
        if self.jump_s:
            way = "forward" if self.jump_s > 0 else "back"
            return (
                f"the time of day jumped {way} by {seconds(abs(self.jump_s))}: the machine slept, or its clock was set"
            )
        takes, got = ("took", "got") if self.is_over else ("takes", "gets")
        asked = "asked" if self.is_over else "asks"
        parts = []
        if self.factor is not None:
            parts.append(f"a step {takes} {self.factor:.1f} times as long")
        if self.lacks_processor or not parts:
            parts.append(f"the engine {got} {percent(self.share or 0.0)} of the processor time that it {asked} for")
        return ": ".join(parts)


def contentions(history: History, at_s: float, since_s: float | None = None) -> tuple[Contention, ...]:
    """The stretches between `since_s` (ten minutes before) and `at_s` in which the engine was slowed, in order of time.

    They are those that were known at `at_s`; one that lasts then has no end.
    """
    first_s = at_s - LOOKED_BACK_S if since_s is None else since_s
    first_s = max(first_s, history.first_s if history.first_s is not None else at_s, history.service_begun_s(at_s))
    jumps = (Contention.of_jump(jump) for jump in history.jumps if first_s <= jump.end_s <= at_s)
    return tuple(sorted((*_slowed(history, first_s, at_s), *jumps), key=lambda each: each.start_s))


def disturbance(history: History, at_s: float) -> Contention | None:
    """The last of them, where it lies in the ten seconds before `at_s`, of which most figures are."""
    latest = contentions(history, at_s)[-1:]
    return next((each for each in latest if each.overlaps(at_s - WINDOW_S, at_s)), None)


def during(stretches: Iterable[Stretch], started: Floats, finished: Floats) -> Bools:
    """Which of the batches that ran from `started` to `finished` ran in one of the stretches."""
    ran = np.zeros(len(started), np.bool_)
    for each in stretches:
        ran |= (started < (math.inf if each.end_s is None else each.end_s)) & (finished > each.start_s)
    return ran


def _slowed(history: History, since_s: float, at_s: float) -> Sequence[Contention]:
    count = int((at_s - since_s) // CELL_S)
    if count < OVER_S / CELL_S:
        return ()
    edges = at_s - CELL_S * np.arange(count, -1, -1)
    slowed = np.flatnonzero(_Engine.of_history(history, edges).slowed())
    if not len(slowed):
        return ()
    breaks = np.flatnonzero(np.diff(slowed) > JOINED_S / CELL_S + 1)
    firsts, stops = slowed[[0, *(breaks + 1)]].tolist(), (slowed[[*breaks, -1]] + 1).tolist()
    spans = [Stretch(edges[first], edges[stop], "") for first, stop in zip(firsts, stops, strict=True)]
    engine = _Engine.of_history(history, edges, spans)
    return [engine.contention(first, stop) for first, stop in zip(firsts, stops, strict=True)]


@dataclass(frozen=True)
class _Engine:
    """What all engines did in each cell of the time between `edges`, in seconds.

    Attributes:
        got_s, asked_s: processor time.
        ran_s: that batches decoded of which it is known what they should take.
        due_s: that they should have decoded.
    """

    edges: Floats
    got_s: Floats
    asked_s: Floats
    ran_s: Floats
    due_s: Floats

    @classmethod
    def of_history(cls, history: History, edges: Floats, slowed: Sequence[Stretch] = ()) -> _Engine:
        """What a step takes is that of the batches outside of the stretches that are known to be `slowed`."""
        spans = processor_spans(history, edges[0] - CELL_S, edges[-1])
        long_s = spans.end_s - spans.start_s
        started, finished, decoded_s, due_s = _judged_batches(history, float(edges[0]), float(edges[-1]), slowed)
        return cls(
            edges,
            _in_cells(edges, spans.start_s, spans.end_s, spans.got_s / long_s),
            _in_cells(edges, spans.start_s, spans.end_s, spans.asked_s / long_s),
            _in_cells(edges, started, finished, decoded_s / (finished - started)),
            _in_cells(edges, started, finished, due_s / (finished - started)),
        )

    def slowed(self) -> Bools:
        """Whether the engine was slowed in each cell, and in a span of `OVER_S` around it."""
        cells = round(OVER_S / CELL_S)
        around: Bools = np.convolve(self._is_slow(cells), np.ones(cells, int), "full") > 0
        return around & self._is_slow(1)

    def contention(self, first: int, stop: int) -> Contention:
        """The stretch of the cells from `first` up to `stop`."""
        got_s, asked_s, ran_s, due_s = (
            float(each[first:stop].sum()) for each in (self.got_s, self.asked_s, self.ran_s, self.due_s)
        )
        start_s, end_s = float(self.edges[first]), float(self.edges[stop])
        share = got_s / asked_s if asked_s > LEAST_ASKED * (end_s - start_s) else None
        factor = ran_s / due_s if due_s > 0 and ran_s >= LEAST_RUN * (end_s - start_s) else None
        how = f"slowed {factor:.1f} ×" if factor is not None else f"processor got {percent(share or 0.0)}"
        lasts = end_s > self.edges[-1] - REPORTED_S
        long_s = (float(self.edges[-1]) if lasts else end_s) - start_s
        return Contention(start_s, None if lasts else end_s, f"{how}, {long_s:.0f} s", factor=factor, share=share)

    def _is_slow(self, cells: int) -> Bools:
        """Whether the engine was slowed in each span of that number of cells, one entry for each."""
        got_s, asked_s, ran_s, due_s = (
            np.convolve(each, np.ones(cells), "valid") for each in (self.got_s, self.asked_s, self.ran_s, self.due_s)
        )
        least_s = LEAST_RUN * cells * CELL_S
        lacks: Bools = (asked_s >= least_s) & (got_s < LEAST_SHARE * asked_s)
        is_late: Bools = (ran_s >= least_s) & (ran_s >= MOST_FACTOR * due_s)
        return lacks | is_late


def _in_cells(edges: Floats, start_s: Floats, end_s: Floats, rate: Floats) -> Floats:
    """What flows at these rates from `start_s` to `end_s`, summed up between the edges."""
    total = np.zeros(len(edges))
    for sign, times in ((1.0, start_s), (-1.0, end_s)):
        order = np.argsort(times, kind="stable")
        before = np.searchsorted(times[order], edges)
        rates = np.concatenate([[0.0], np.cumsum(rate[order])])
        moments = np.concatenate([[0.0], np.cumsum((rate * (times - edges[0]))[order])])
        total += sign * (rates[before] * (edges - edges[0]) - moments[before])
    return np.diff(total)


def _judged_batches(
    history: History, since_s: float, at_s: float, slowed: Sequence[Stretch]
) -> tuple[Floats, Floats, Floats, Floats]:
    """Start and end of the batches that can be judged, how long they decoded, and how long that should take.

    It takes enough batches that are alike and were not `slowed`. Those that mostly read prompts are not judged, since
    what is left of them for a step is not known well.
    Functions are not judged: a call takes what its input asks for. Nor are other servers, which do not say how long
    they read prompts.
    """
    table = history.batches.columns
    if history.unit != TEXT.unit or history.server or not len(table):
        return NOTHING
    started, finished = table["started"], table["finished"]
    prefill_s = np.where(np.isfinite(table["prefill_s"]), table["prefill_s"], 0.0)
    chosen = (finished <= at_s) & (started >= since_s) & (table["steps"] > 0) & (table["splits"] <= 0)
    chosen[chosen] &= finished[chosen] - started[chosen] > prefill_s[chosen] / MOST_READING
    rows = np.flatnonzero(chosen)
    if not len(rows):
        return NOTHING
    started, finished, steps = started[rows], finished[rows], table["steps"][rows]
    decoding_s = finished - started - prefill_s[rows]
    _, group = np.unique(_kinds(history, rows), axis=0, return_inverse=True)
    group = group.reshape(-1)
    counts = ~during(slowed, started, finished)
    step_s = _first_quartiles((decoding_s / steps)[counts], group[counts], int(group.max()) + 1)
    due_s = steps * step_s[group]
    known = np.isfinite(due_s)
    return started[known], finished[known], decoding_s[known], due_s[known]


def _kinds(history: History, rows: Ints) -> Ints:
    """What makes batches alike, a line each: formation, rows, lengths of requests, and batches that ran beside."""
    table, requests = history.batches.columns, history.requests.columns
    started, finished = table["started"], table["finished"]
    ran = np.isfinite(started)
    ends = np.stack([started[rows], finished[rows]], axis=1)
    beside = _running_s(started[ran], finished[ran], ends) / (ends[:, 1] - ends[:, 0])
    length = requests["prompt_tokens"] + requests["max_tokens"] / 2
    held = np.isfinite(requests["started"]) & (requests["prompt_tokens"] >= 0)
    begun, ended, length = requests["started"][held], requests["finished"][held], length[held]
    lengths = _sums_at(begun, ended, length, started[rows])
    lengths /= np.maximum(_sums_at(begun, ended, np.ones_like(length), started[rows]), 1.0)
    return np.stack(
        [
            table["formation"][rows],
            np.round(2 * np.log2(table["size"][rows])).astype(int),  # alike up to a factor of 1.4
            np.round(2 * np.log2(lengths + 8.0)).astype(int),
            np.round(beside).astype(int),
        ],
        axis=1,
    )


def _running_s(started: Floats, finished: Floats, ends: Floats) -> Floats:
    """The run time of all batches between both `ends`, a pair a line."""

    def until(times: Floats, at_s: Floats) -> Floats:
        ordered = np.sort(times[np.isfinite(times)]) - ends[0, 0]
        sums = np.concatenate([[0.0], np.cumsum(ordered)])
        before = np.searchsorted(ordered, at_s - ends[0, 0])
        result: Floats = before * (at_s - ends[0, 0]) - sums[before]
        return result

    ran_s = until(started, ends) - until(finished, ends)
    result: Floats = ran_s[:, 1] - ran_s[:, 0]
    return result


def _sums_at(begun: Floats, ended: Floats, values: Floats, at_s: Floats) -> Floats:
    """The sums of the values of what was there at each of these moments, that which just began included."""
    total = np.zeros(len(at_s))
    for sign, times in ((1.0, begun), (-1.0, ended)):
        order = np.argsort(times, kind="stable")
        sums = np.concatenate([[0.0], np.cumsum(values[order])])
        total += sign * sums[np.searchsorted(times[order], at_s, "right")]
    return total


def _first_quartiles(values: Floats, group: Ints, groups: int) -> Floats:
    """The first quartile of the values of each group; NaN of fewer than `LEAST_ALIKE`."""
    order = np.lexsort((values, group))
    counts = np.bincount(group, minlength=groups)
    places = np.cumsum(counts) - counts + counts // 4
    quartiles = np.full(groups, math.nan)
    is_known = counts >= LEAST_ALIKE
    quartiles[is_known] = values[order][places[is_known]]
    return quartiles
