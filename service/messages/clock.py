"""Which monotonic clock the times in messages are read from, and how far two of them are apart."""

from __future__ import annotations

import math
import platform
from functools import cache
from pathlib import Path
from typing import Final

import psutil

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
MOST_DRIFT: Final = 200e-6  # seconds a second between two clocks: two crystals, each held to its rate by NTP


@cache
def monotonic_clock_id() -> str:
    """A text equal in all programs whose `time.monotonic` is the same clock: those of one machine since its boot."""
    if BOOT_ID.exists():
        return BOOT_ID.read_text().strip()
    return f"{platform.node()}-{psutil.boot_time():.0f}"


class ClockOffset:
    """How far another's monotonic clock is from ours, and how sure that is.

    Others with our own clock id share our clock. For the rest, what happened before what says between which bounds the
    offset lies (Cristian, 1989): a message that was read at `received_s` and says that it was sent at `at_s` bounds it
    from above, an exchange of question and answer from both sides. As clocks drift, bounds loosen with time. The
    middle of the two is the estimate and half their distance its error; of one bound alone it is the bound.

    >>> offset = ClockOffset(own_clock="a")
    >>> offset.note(clock="b", at_s=100.0, received_s=5.25)
    >>> offset.note(clock="b", at_s=101.0, received_s=6.05)
    >>> round(offset.to_ours(101.0), 2), offset.error_s
    (6.05, None)
    >>> offset.note_exchange(asked_s=101.0, received_s=6.05, answered_s=6.15, heard_s=101.2)
    >>> round(offset.to_ours(101.0), 2), round(offset.error_s, 2)
    (6.0, 0.05)
    """

    def __init__(self, own_clock: str) -> None:
        self.own_clock = own_clock
        self._begin(own_clock)

    @property
    def is_shared(self) -> bool:
        return self._clock == self.own_clock

    @property
    def error_s(self) -> float | None:
        """By how much the estimate may be wrong; ``None`` where nothing bounds it from both sides."""
        if self.is_shared:
            return 0.0
        width_s = self._most_s - self._least_s
        return width_s / 2 if math.isfinite(width_s) else None

    def note_clock(self, clock: str) -> None:
        """The other reads this clock; if it is not the one before (its machine started anew), begin again."""
        if clock != self._clock:
            self._begin(clock)

    def note(self, clock: str, at_s: float, received_s: float) -> None:
        """Learn from a message."""
        self.note_clock(clock)
        self._bound(received_s, most_s=received_s - at_s)

    def note_exchange(self, asked_s: float, received_s: float, answered_s: float, heard_s: float) -> None:
        """Learn from a question that was asked and whose answer was heard on the other's clock."""
        self._bound(received_s, most_s=received_s - asked_s)
        self._bound(answered_s, least_s=answered_s - heard_s)

    def guess(self, offset_s: float) -> None:
        """To go by as long as nothing else is known."""
        self._guess_s = offset_s

    @property
    def offset_s(self) -> float:
        """What is added to the other's times to have them on our clock."""
        if self.is_shared:
            return 0.0
        bounds = [bound_s for bound_s in (self._least_s, self._most_s) if math.isfinite(bound_s)]
        return sum(bounds) / len(bounds) if bounds else self._guess_s

    def to_ours(self, at_s: float) -> float:
        return at_s + self.offset_s

    def from_ours(self, at_s: float) -> float:
        return at_s - self.offset_s

    def _begin(self, clock: str) -> None:
        self._clock = clock
        self._least_s, self._most_s = -math.inf, math.inf
        self._bounded_at_s = -math.inf
        self._guess_s = 0.0

    def _bound(self, at_s: float, least_s: float = -math.inf, most_s: float = math.inf) -> None:
        """Between these two the offset lay at `at_s`."""
        if not math.isfinite(self._bounded_at_s):
            self._bounded_at_s = at_s
        older_s, newer_s = sorted((at_s - self._bounded_at_s, 0.0))
        least_s, most_s = least_s + MOST_DRIFT * older_s, most_s - MOST_DRIFT * older_s
        self._bounded_at_s += newer_s
        self._least_s = max(self._least_s - MOST_DRIFT * newer_s, least_s)
        self._most_s = min(self._most_s + MOST_DRIFT * newer_s, most_s)
        if self._least_s > self._most_s:  # a clock was set, or drifts more than clocks do: only the newest counts
            self._least_s, self._most_s = least_s, most_s
