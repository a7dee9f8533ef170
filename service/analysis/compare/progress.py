"""Messages of `compare` and `sweep` to the window, a line of JSON each, and the time that is left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec

from service.analysis.compare.comparison import Comparison
from service.analysis.compare.run_plan import PlannedRun, SweepPlan
from service.analysis.compare.sweep import Sweep

SETTLE_S: Final = 1.5  # a change of settings, the last answers, and the check that the service is idle


class SweepTask(msgspec.Struct, frozen=True, kw_only=True):
    """The task of `sweep`; `before` is the result of an interrupted sweep of the same plan."""

    plan: SweepPlan
    before: Sweep | None = None


class Progress(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="progress"):
    """The progress of a comparison or sweep.

    Attributes:
        done, total: runs.
        doing: the present step, "round 2 of 4: B, waiting until the service is idle".
        left_s: estimate of the time until the end.
    """

    done: int
    total: int
    doing: str
    left_s: float


class Compared(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="compared"):
    """The comparison of the rounds so far; the last one is the result."""

    comparison: Comparison


class Swept(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="swept"):
    """The sweep so far; the last one is the result."""

    sweep: Sweep


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="refused"):
    """The task was not begun or not completed; `reason` is a sentence for the user."""

    reason: str


CompareEvent: TypeAlias = Progress | Compared | Swept | Refused


class RemainingTime:
    """An estimate of the time that is left, from the durations of earlier runs.

    A run takes longer than its requests are sent, until the service has answered them. That differs from side to side,
    so the estimate for each side is taken from its own runs as soon as there is one.
    """

    def __init__(self, duration_s: float) -> None:
        self._expected_s = duration_s + SETTLE_S
        self._took_s: dict[str | int, list[float]] = {}

    def note(self, key: str | int, took_s: float) -> None:
        self._took_s.setdefault(key, []).append(took_s)

    def left_s(self, to_come: Sequence[PlannedRun], present_s: float = 0.0) -> float:
        """The time until the runs `to_come` are done, the first of which has run for `present_s`."""
        if not to_come:
            return 0.0
        present = to_come[0].key
        expected = [max(self._expect_s(run.key), present_s if run.key == present else 0.0) for run in to_come]
        return sum(expected) - present_s

    def _expect_s(self, key: str | int) -> float:
        took_s = self._took_s.get(key) or [each for all_of in self._took_s.values() for each in all_of]
        return sum(took_s) / len(took_s) if took_s else self._expected_s
