"""Fewer points that look the same: the smallest and the largest value of each column of pixels."""

from __future__ import annotations

import numpy as np

from gui.series.time_range import TimeRange
from gui.store.columns import Floats, Ints


def thinned(times: Floats, values: Floats, view: TimeRange) -> tuple[Floats, Floats]:
    """At most two points a column, for `times` in order; a column without any number is a break (NaN)."""
    if len(times) <= 2 * view.columns:
        return times, values
    columns = np.floor(view.positions(times)).astype(np.int64)
    firsts = np.flatnonzero(np.diff(columns, prepend=columns[0] - 1))
    low, high = np.fmin.reduceat(values, firsts), np.fmax.reduceat(values, firsts)
    return np.repeat(times[firsts], 2), np.stack((low, high), axis=1).ravel()


def one_per_cell(positions: Floats, heights: Floats, rows: int) -> Ints:
    """Indices of points so chosen that no two stand in the same cell of pixels; `heights` run from 0 to 1."""
    if len(positions) == 0:
        return np.zeros(0, np.int64)
    cells = np.floor(positions).astype(np.int64) * (rows + 1) + np.clip(heights * rows, 0, rows).astype(np.int64)
    chosen = np.full(int(cells.max()) + 1, -1, np.int64)
    chosen[cells] = np.arange(len(cells))
    return chosen[chosen >= 0]


def step_line(starts: Floats, values: Floats, end: float) -> tuple[Floats, Floats]:
    """The corners of a line that holds each value until the next one starts.

    >>> xs, ys = step_line(np.array([0.0, 2.0]), np.array([4.0, 16.0]), end=3.0)
    >>> list(zip(xs.tolist(), ys.tolist()))
    [(0.0, 4.0), (2.0, 4.0), (2.0, 16.0), (3.0, 16.0)]
    """
    xs = np.repeat(np.append(starts, end), 2)[1:-1]
    return xs, np.repeat(values, 2)
