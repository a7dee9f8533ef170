"""The span of time that the plots show, in columns of pixels: how it moves, and lines with a point a column."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from service.analysis.observed.columns import Floats, Ints
from service.analysis.observed.history import KEPT_S
from service.analysis.observed.rolling import STEP_S


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

    def middles(self) -> Floats:
        """The moments in the middles of the columns."""
        return self.start_s + (np.arange(self.columns) + 0.5) * self.column_s

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


SHORTEST_S: Final = 2.0
LONGEST_S: Final = KEPT_S
YOUNG_S: Final = (15.0, 30.0, 45.0, 60.0)
"""What is shown of a run that is no older, so that its first seconds are not squeezed into an edge."""


class Viewport:
    """The state of the common time axis.

    Attributes:
        kept_s: how far back one can look.
        least_s: how much of that is in view at least; what is left of the first moment is empty. Infinite
            unless stretches are played.

    ```
    live ──scroll──▶ scrolled ──to_live──▶ live        scrolling to the newest moment is also to_live
      └──freeze──▶ frozen ──thaw──▶ live               frozen can be scrolled, too; to_live then leads to
                                                       the moment it was frozen at
    ```
    """

    def __init__(self, window_s: float = 60.0) -> None:
        self.window_s = window_s
        self.kept_s = KEPT_S
        self.least_s = math.inf
        self._frozen_s: float | None = None
        self._end_s: float | None = None

    @property
    def is_frozen(self) -> bool:
        return self._frozen_s is not None

    @property
    def is_scrolled(self) -> bool:
        return self._end_s is not None

    @property
    def is_live(self) -> bool:
        return not self.is_frozen and not self.is_scrolled

    def span_s(self, age_s: float) -> float:
        """How long a span is shown of a run that is this old at the right edge: all of it, where it is young.

        Where the user scrolls back the span stays as it is.

        >>> [Viewport(window_s=60.0).span_s(age_s) for age_s in (0.0, 15.5, 46.0, 300.0)], Viewport(30.0).span_s(31.0)
        ([15.0, 30.0, 60.0, 60.0], 30.0)
        """
        if self.is_scrolled and self.least_s == math.inf:
            return self.window_s
        return min(self.window_s, next((span_s for span_s in YOUNG_S if age_s <= span_s), self.window_s))

    def newest_s(self, now_s: float) -> float:
        """The latest moment that can be shown."""
        return now_s if self._frozen_s is None else self._frozen_s

    def end_s(self, now_s: float) -> float:
        """The moment at the right edge; what is no longer kept cannot be shown."""
        newest_s = self.newest_s(now_s)
        if self._end_s is None:
            return newest_s
        return min(max(self._end_s, self._oldest_end_s(now_s)), newest_s)

    def _oldest_end_s(self, now_s: float) -> float:
        return now_s - self.kept_s + min(self.window_s, self.least_s)

    def freeze(self, now_s: float) -> None:
        self._frozen_s = now_s

    def thaw(self) -> None:
        self._frozen_s = self._end_s = None

    def to_live(self) -> None:
        self._end_s = None

    def scroll(self, by_s: float, now_s: float) -> None:
        """Move the view; positive is towards now, and reaching the newest moment follows it again."""
        end_s = max(self.end_s(now_s) + by_s, min(self._oldest_end_s(now_s), self.newest_s(now_s)))
        self._end_s = None if end_s >= self.newest_s(now_s) else end_s

    def zoom(self, factor: float, at_s: float, now_s: float) -> None:
        """Show `factor` times as much; `at_s` stays where it is, or the right edge while that is the newest moment."""
        end_s = self.end_s(now_s)
        window_s = min(max(self.window_s * factor, SHORTEST_S), max(LONGEST_S, self.kept_s))
        if self.is_scrolled:
            moved_s = (end_s - at_s) * (window_s / self.window_s)
            self.window_s = window_s
            self._end_s = at_s + moved_s
            self.scroll(0.0, now_s)
        self.window_s = window_s


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
