"""Rows that ran together over time where requests join and leave: too many changes to draw each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from gui.series.time_range import TimeRange
from service.analysis.observed.columns import Floats, Ints

CROWDED: Final = 2  # stretches a column: from there on the line would only be a hedge
COLUMNS_AVERAGED: Final = 7


@dataclass(frozen=True)
class ActiveRows:
    """For each column of the view how many ran, while any did: on average and at most; 0 where none did.

    Where columns hold many changes, the average is one over some columns.
    """

    mean: Floats
    most: Floats


def active_rows(started: Floats, finished: Floats, size: Floats, view: TimeRange) -> ActiveRows:
    """From stretches with the same members, each as if it alone were in the columns it covers in part."""
    left, right = (np.clip(view.positions(times), 0.0, view.columns) for times in (started, finished))
    stretch, column = _cells(left, right)
    covered = np.minimum(right[stretch], column + 1.0) - np.maximum(left[stretch], column)
    covered = np.maximum(covered, 0.0)
    rows, ran, most = (np.zeros(view.columns) for _ in range(3))
    np.add.at(rows, column, covered * size[stretch])
    np.add.at(ran, column, covered)
    np.maximum.at(most, column, size[stretch] * (covered > 0))
    is_crowded = len(started) > CROWDED * view.columns
    if is_crowded:
        rows, ran = (np.convolve(sums, np.ones(COLUMNS_AVERAGED), "same") for sums in (rows, ran))
    return ActiveRows(np.divide(rows, ran, out=np.zeros(view.columns), where=(ran > 0) & (most > 0)), most)


def _cells(left: Floats, right: Floats) -> tuple[Ints, Ints]:
    """Every pair of a stretch and a column that it reaches into."""
    first, last = np.floor(left).astype(np.int64), np.ceil(right).astype(np.int64)
    count = np.maximum(last - first, 0)
    stretch = np.repeat(np.arange(len(left)), count)
    before = np.cumsum(count) - count
    return stretch, np.arange(len(stretch)) - before[stretch] + first[stretch]
