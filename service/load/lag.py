"""How late the generator itself is."""

from __future__ import annotations

import math
from collections import deque

SPAN_S = 10
FINEST_S = 1e-6
GROWTH = 1.05
_LOG_GROWTH = math.log(GROWTH)
_BUCKETS = 400  # up to about five minutes


class LagWindow:
    """The 99th percentile over the last 10 s, to 5 %; memory and work do not grow with the rate."""

    def __init__(self) -> None:
        self._seconds: deque[tuple[int, list[int]]] = deque()
        self._counts = [0] * _BUCKETS
        self._total = 0

    def record(self, at_s: float, lag_s: float) -> None:
        second = int(at_s)
        if not self._seconds or self._seconds[-1][0] != second:
            self._forget(at_s)
            self._seconds.append((second, [0] * _BUCKETS))
        bucket = _bucket(lag_s)
        self._seconds[-1][1][bucket] += 1
        self._counts[bucket] += 1
        self._total += 1

    def p99_ms(self, now_s: float) -> float | None:
        """The upper edge of the bucket that holds the percentile, or ``None`` if nothing was recorded."""
        self._forget(now_s)
        if not self._total:
            return None
        beyond = self._total - math.ceil(self._total * 0.99)
        for bucket in range(_BUCKETS - 1, -1, -1):
            beyond -= self._counts[bucket]
            if beyond < 0:
                return FINEST_S * math.exp(_LOG_GROWTH * bucket) * 1e3
        raise AssertionError("the counts do not add up to their total")

    def _forget(self, now_s: float) -> None:
        while self._seconds and self._seconds[0][0] <= now_s - SPAN_S - 1:
            _, counts = self._seconds.popleft()
            self._total -= sum(counts)
            self._counts = [total - count for total, count in zip(self._counts, counts, strict=True)]


def _bucket(lag_s: float) -> int:
    if lag_s <= FINEST_S:
        return 0
    return min(_BUCKETS - 1, math.ceil(math.log(lag_s / FINEST_S) / _LOG_GROWTH))
