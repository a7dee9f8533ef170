"""Which monotonic clock the times in messages are read from, and how far two of them are apart."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

import psutil

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@cache
def monotonic_clock_id() -> str:
    """A text equal in all programs whose `time.monotonic` is the same clock: those of one machine since its boot."""
    if BOOT_ID.exists():
        return BOOT_ID.read_text().strip()
    return f"{platform.node()}-{psutil.boot_time():.0f}"


class ClockOffset:
    """How far a sender's monotonic clock is from ours.

    Senders with our own clock id share our clock. For the others a message that was read at `received_s` and says that
    it was sent at `at_s` bounds the offset from above by its time under way; the smallest bound seen is the estimate
    (Cristian, 1989, with one-way messages).

    >>> offset = ClockOffset(own_clock="a")
    >>> offset.note(clock="b", at_s=100.0, received_s=5.25)
    >>> offset.note(clock="b", at_s=101.0, received_s=6.05)
    >>> round(offset.to_ours(101.0), 2)
    6.05
    """

    def __init__(self, own_clock: str) -> None:
        self._own_clock = own_clock
        self._clock = own_clock
        self._offset_s: float | None = 0.0

    @property
    def is_shared(self) -> bool:
        return self._clock == self._own_clock

    def note(self, clock: str, at_s: float, received_s: float) -> None:
        """Learn from a message; another clock than before (the sender's machine started anew) begins again."""
        if clock != self._clock:
            self._clock = clock
            self._offset_s = 0.0 if self.is_shared else None
        if self.is_shared:
            return
        bound_s = received_s - at_s
        self._offset_s = bound_s if self._offset_s is None else min(self._offset_s, bound_s)

    def to_ours(self, at_s: float) -> float:
        return at_s + (self._offset_s or 0.0)

    def from_ours(self, at_s: float) -> float:
        return at_s - (self._offset_s or 0.0)
