"""Which stretch of time the plots show: following now, frozen, or scrolled back."""

from __future__ import annotations

from typing import Final

from service.analysis.observed.history import KEPT_S

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
            self._end_s = end_s
            self.scroll(at_s + moved_s - end_s, now_s)
        self.window_s = window_s
