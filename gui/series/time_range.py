"""The span of time that the plots show, in columns of pixels, and how it follows, zooms and scrolls."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from service.analysis.observed.columns import Floats, Ints
from service.analysis.observed.history import KEPT_S


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


SHORTEST_S: Final = 2.0
LONGEST_S: Final = KEPT_S


class Viewport:
    """The state of the common time axis; `kept_s` says how far back one can look.

    ```
    live ──scroll──▶ scrolled ──to_live──▶ live        scrolling to the newest moment is also to_live
      └──freeze──▶ frozen ──thaw──▶ live               frozen can be scrolled, too; to_live then leads to
                                                       the moment it was frozen at
    ```
    """

    def __init__(self, window_s: float = 60.0) -> None:
        self.window_s = window_s
        self.kept_s = KEPT_S
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

    def newest_s(self, now_s: float) -> float:
        """The latest moment that can be shown."""
        return now_s if self._frozen_s is None else self._frozen_s

    def end_s(self, now_s: float) -> float:
        """The moment at the right edge; what is no longer kept cannot be shown."""
        newest_s = self.newest_s(now_s)
        if self._end_s is None:
            return newest_s
        return min(max(self._end_s, now_s - self.kept_s + self.window_s), newest_s)

    def freeze(self, now_s: float) -> None:
        self._frozen_s = now_s

    def thaw(self) -> None:
        self._frozen_s = self._end_s = None

    def to_live(self) -> None:
        self._end_s = None

    def scroll(self, by_s: float, now_s: float) -> None:
        """Move the view; positive is towards now, and reaching the newest moment follows it again."""
        oldest_end_s = now_s - self.kept_s + self.window_s
        end_s = max(self.end_s(now_s) + by_s, min(oldest_end_s, self.newest_s(now_s)))
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
