"""All at once."""

from __future__ import annotations

from service.messages.load import Burst, Pattern


class BurstArrivals:
    """All at once, then nothing; another burst while one goes out adds to it."""

    def __init__(self, count: int) -> None:
        self._left = count

    @property
    def due_s(self) -> float | None:
        return 0.0 if self._left else None

    def advance(self) -> None:
        self._left -= 1

    def retune(self, pattern: Pattern, at_s: float) -> bool:
        if not isinstance(pattern, Burst):
            return False
        self._left += pattern.count
        return True
