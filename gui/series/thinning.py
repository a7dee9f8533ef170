"""Fewer points that look the same."""

from __future__ import annotations

import math

import numpy as np

from gui.series.time_range import TimeRange
from service.analysis.observed.columns import Floats, Ints
from service.analysis.observed.rolling import STEP_S


def stride(view: TimeRange) -> int:
    """Every how many steps of time a line needs a point: one a column of pixels suffices.

    The lines are sums and percentiles over seconds, longer than a column lasts, so no peak falls between two points.
    """
    return max(1, math.floor(view.column_s / STEP_S))


def one_per_cell(columns: Ints, rows: Ints, width: int) -> Ints:
    """Indices of points so chosen that no two stand in the same cell of `width` columns and one row.

    Columns are counted on the grid of time, not from the edge of the view, so that the choice stays as time runs on.
    """
    if len(columns) == 0:
        return np.zeros(0, np.int64)
    cells = columns // width
    places = (cells - cells.min()) * (int(rows.max()) + 1) + rows
    chosen = np.full(int(places.max()) + 1, -1, np.int64)
    chosen[places] = np.arange(len(places))
    return chosen[chosen >= 0]


def step_line(starts: Floats, values: Floats, end: float) -> tuple[Floats, Floats]:
    """The corners of a line that holds each value until the next one starts.

    >>> xs, ys = step_line(np.array([0.0, 2.0]), np.array([4.0, 16.0]), end=3.0)
    >>> list(zip(xs.tolist(), ys.tolist()))
    [(0.0, 4.0), (2.0, 4.0), (2.0, 16.0), (3.0, 16.0)]
    """
    xs = np.repeat(np.append(starts, end), 2)[1:-1]
    return xs, np.repeat(values, 2)
