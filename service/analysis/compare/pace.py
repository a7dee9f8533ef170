"""How long is left of what is measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from service.analysis.compare.plan import PlannedRun

SETTLE_S: Final = 1.5  # a change of settings, the last answers, and a look whether the service is idle


class Pace:
    """How long is left, told from how long runs have taken.

    A run takes longer than requests are sent: as long as the service needs to answer them. How much longer differs
    from side to side, so each is told from its own runs as soon as there is one.
    """

    def __init__(self, duration_s: float) -> None:
        self._expected_s = duration_s + SETTLE_S
        self._took_s: dict[str | int, list[float]] = {}

    def note(self, key: str | int, took_s: float) -> None:
        self._took_s.setdefault(key, []).append(took_s)

    def left_s(self, to_come: Sequence[PlannedRun], present_s: float = 0.0) -> float:
        """Until the runs `to_come` are done, the first of which has run for `present_s`."""
        if not to_come:
            return 0.0
        present = to_come[0].key
        expected = [max(self._expect_s(run.key), present_s if run.key == present else 0.0) for run in to_come]
        return sum(expected) - present_s

    def _expect_s(self, key: str | int) -> float:
        took_s = self._took_s.get(key) or [each for all_of in self._took_s.values() for each in all_of]
        return sum(took_s) / len(took_s) if took_s else self._expected_s
