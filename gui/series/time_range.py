"""The stretch of time that a plot shows, cut into the columns of pixels that show it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from service.analysis.observed.columns import Floats, Ints


@dataclass(frozen=True)
class TimeRange:
    """From `start_s` to `end_s`, in `columns` of equal length whose edges are multiples of that length.

    So a moment falls into the same column of the grid however the range moves, and nothing that is drawn shimmers.

    Attributes:
        columns: of the screen's own pixels.
        ratio: how many of them are a pixel of the widget, more than 1 on a screen of high density.
    """

    start_s: float
    end_s: float
    columns: int
    ratio: float = 1.0

    @classmethod
    def ending_at(cls, end_s: float, span_s: float, columns: int, ratio: float = 1.0) -> TimeRange:
        """The range of whole columns whose last one contains `end_s`; it moves by pixels of the widget if it can.

        >>> TimeRange.ending_at(10.3, span_s=4.0, columns=8)
        TimeRange(start_s=6.5, end_s=10.5, columns=8, ratio=1.0)
        >>> TimeRange.ending_at(10.3, span_s=4.0, columns=16, ratio=2.0)
        TimeRange(start_s=6.5, end_s=10.5, columns=16, ratio=2.0)
        """
        columns = max(columns, 1)
        column_s = span_s / columns
        step = int(ratio) if ratio == int(ratio) else 1
        last = (math.floor(end_s / (step * column_s)) + 1) * step
        return cls((last - columns) * column_s, last * column_s, columns, ratio)

    @property
    def span_s(self) -> float:
        return self.end_s - self.start_s

    @property
    def column_s(self) -> float:
        return self.span_s / self.columns

    @property
    def pixel_s(self) -> float:
        """How long a pixel of the widget lasts."""
        return self.column_s * self.ratio

    def positions(self, times: Floats) -> Floats:
        """Where moments lie, in columns from the left edge."""
        result: Floats = (times - self.start_s) * (self.columns / self.span_s)
        return result

    def grid_columns(self, times: Floats) -> Ints:
        """The columns of the grid that moments fall into, whatever part of it is in view."""
        result: Ints = np.floor(times / self.column_s).astype(np.int64)
        return result

    def position(self, at_s: float) -> float:
        return (at_s - self.start_s) * (self.columns / self.span_s)

    def time_at(self, position: float) -> float:
        return self.start_s + position * self.column_s

    def contains(self, at_s: float) -> bool:
        return self.start_s <= at_s <= self.end_s

    def overlaps(self, starts: Floats, ends: Floats) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Which intervals are at least partly within."""
        return (starts < self.end_s) & (ends > self.start_s)
