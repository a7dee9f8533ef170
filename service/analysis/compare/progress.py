"""Messages of `compare` and `sweep` to the window, a line of JSON each, and the time that is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from service.analysis.compare.comparison import Comparison
from service.analysis.compare.run_plan import ComparePlan, PlannedRun, SweepPlan
from service.analysis.compare.sweep import Sweep
from service.messages.text import about_time, counted

LEAST_SEEN_S: Final = 1.0  # below which how fast a backlog is answered is unknown
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
        left_s: estimate of the time until the end; 0 is unknown.
        backlog: requests of other load that are waited for before the next run.
        point: the place of the sweep's settings that are measured at present.
        began_s: when the load of the present run began, on the sender's monotonic clock; ``None`` before it does.
    """

    done: int
    total: int
    doing: str
    left_s: float
    backlog: int = 0
    point: int | None = None
    began_s: float | None = None


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


@dataclass(frozen=True)
class Duration:
    """How long a comparison or sweep takes, as far as its plan says it.

    Attributes:
        runs: to be made, for `seconds` each, and `rest_s` until the service has answered and has the next settings.
        warm_ups, warm_up_s: runs before that are not counted.
        points: the settings that a sweep measures, each once a round; 0 for a comparison.
    """

    runs: int
    seconds: float
    warm_ups: int = 0
    warm_up_s: float = 0.0
    rest_s: float = SETTLE_S
    points: int = 0

    @classmethod
    def of(cls, plan: ComparePlan | SweepPlan, to_come: int | None = None, answer_s: float = 0.0) -> Duration:
        """Of `plan`, or of the runs that are to come of it, where a request is answered within `answer_s`."""
        count, points, warm_ups = len(list(plan.runs())) if to_come is None else to_come, 0, 2
        if isinstance(plan, SweepPlan):
            points, warm_ups = len(plan.points) if count == len(plan.points) else 0, min(count, 1)
        elif plan.matches_throughput:
            count += 1
        return cls(
            count, plan.duration_s, warm_ups if plan.warm_up_s else 0, plan.warm_up_s, SETTLE_S + answer_s, points
        )

    @property
    def total_s(self) -> float:
        return self.runs * (self.seconds + self.rest_s) + self.warm_ups * (self.warm_up_s + self.rest_s)

    @property
    def text(self) -> str:
        """Its parts add up to the whole.

        >>> Duration(6, 30.0, rest_s=8.0, points=6).text
        'about 4 min: 6 settings × 30 s + 8.0 s each'
        >>> Duration(8, 10.0, warm_ups=2, warm_up_s=2.0).text
        'about 99 s: 8 runs × 10 s + 1.5 s each, after 7 s of warm-up'
        """
        what = counted(self.points, "setting") if self.points > 1 else counted(self.runs, "run")
        warm_up_s = self.warm_ups * (self.warm_up_s + self.rest_s)
        before = f", after {warm_up_s:.0f} s of warm-up" if self.warm_ups else ""
        return f"about {about_time(self.total_s)}: {what} × {self.seconds:g} s + {self.rest_s:.1f} s each{before}"


class Backlog:
    """The requests of other load that are waited for: how many there are, and in about how long they are answered."""

    def __init__(self) -> None:
        self._first: tuple[float, int] | None = None

    def text(self, at_s: float, held: int) -> str:
        """What is waited for, where the service holds `held` requests at `at_s`.

        >>> backlog = Backlog()
        >>> backlog.text(0.0, 41)
        '41 requests of other load are under way: the next run starts when they are answered'
        >>> backlog.text(4.0, 31)
        '31 requests of other load are under way: the next run starts when they are answered, about 12 s'
        """
        since_s, most = self._first = self._first or (at_s, held)
        answered, took_s = most - held, at_s - since_s
        after = f", about {about_time(held * took_s / answered)}" if answered > 0 and took_s >= LEAST_SEEN_S else ""
        are, they = ("is", "it is") if held == 1 else ("are", "they are")
        requests = counted(held, "request")
        return f"{requests} of other load {are} under way: the next run starts when {they} answered{after}"


class RemainingTime:
    """An estimate of the time that is left, from the durations of earlier runs.

    A run takes longer than its requests are sent, until the service has answered them. That differs from side to side,
    so the estimate for each side is taken from its own runs as soon as there is one.
    """

    def __init__(self, duration_s: float, rest_s: float = SETTLE_S) -> None:
        """`rest_s` is how much longer a run takes than its requests are sent, until one was made."""
        self._expected_s = duration_s + rest_s
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
