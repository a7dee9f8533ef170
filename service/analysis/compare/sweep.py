"""The result of a sweep: throughput over latency, which settings are worth considering, and which is best."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

import msgspec

from service.analysis.compare.comparison import ServiceFacts
from service.analysis.compare.run import FIGURE_BY_NAME, FigureName, MeasuredRun
from service.analysis.compare.run_plan import Objective, PlanError, SweepPlan
from service.analysis.observed.descriptions import settings_text
from service.messages.settings import Settings

SAME_SERVICE: Final = ("model", "device", "dtype", "replicas")  # its address may have changed
ALIKE: Final = 0.03  # throughputs this close count as equal, since runs of one setting differ by as much
LATENCY: Final[FigureName] = "p95_s"  # plotted against throughput where there is no objective


class Dot(NamedTuple):
    """A measured point: the latency and throughput of the settings at this place of the plan."""

    latency_s: float
    requests_per_s: float
    place: int


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One of the sweep's settings and its runs so far, one a round."""

    settings: Settings
    runs: tuple[MeasuredRun, ...] = ()

    def figure(self, name: FigureName) -> float | None:
        """The value of a figure over all rounds; ``None`` as long as it is unknown."""
        return FIGURE_BY_NAME[name].of(self.runs) if self.runs else None

    def has_met(self, objective: Objective | None) -> bool:
        """Whether it was measured, lost no request, and kept the objective."""
        if not self.runs or any(run.failed or run.refused or run.dropped or run.broken_off for run in self.runs):
            return False
        value = self.figure(objective.figure) if objective else 0.0
        return value is not None and (objective is None or value <= objective.limit_s)


class Sweep(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="sweep"):
    """The measurements of `sweep` so far; the missing ones are made when it goes on.

    Attributes:
        measured_at: Unix time of the latest run.
        points: in the order of the plan's.
    """

    version: Literal[1] = 1
    service: ServiceFacts
    measured_at: float
    plan: SweepPlan
    points: tuple[Point, ...]

    @classmethod
    def begun(cls, service: ServiceFacts, plan: SweepPlan) -> Sweep:
        """A sweep in which nothing is measured yet."""
        return cls(
            service=service, measured_at=0.0, plan=plan, points=tuple([Point(settings=each) for each in plan.points])
        )

    @property
    def latency(self) -> FigureName:
        """The latency that throughput is compared with."""
        return self.plan.objective.figure if self.plan.objective else LATENCY

    @property
    def is_finished(self) -> bool:
        return all(len(point.runs) == self.plan.rounds for point in self.points)

    def refuse_other(self, plan: SweepPlan, service: ServiceFacts) -> None:
        """Raise `PlanError` unless going on with `plan` on `service` is the same sweep."""
        names = [name for name in SweepPlan.__struct_fields__ if getattr(plan, name) != getattr(self.plan, name)]
        names += [name for name in SAME_SERVICE if getattr(service, name) != getattr(self.service, name)]
        if names:
            raise PlanError(
                f"What was measured so far is of another sweep: {', '.join(names)} differ. "
                "Go on with the same options, or name another file."
            )

    def with_run(self, place: int, run: MeasuredRun, measured_at: float) -> Sweep:
        """The sweep with one more run."""
        points = list(self.points)
        points[place] = msgspec.structs.replace(points[place], runs=(*points[place].runs, run))
        return msgspec.structs.replace(self, points=tuple(points), measured_at=measured_at)

    def measured(self) -> list[Dot]:
        """The points of which both figures are known, by rising latency, then by falling throughput."""
        dots = [
            Dot(latency_s, rate, place)
            for place, point in enumerate(self.points)
            if (latency_s := point.figure(self.latency)) is not None
            and (rate := point.figure("requests_per_s")) is not None
        ]
        return sorted(dots, key=lambda dot: (dot.latency_s, -dot.requests_per_s, dot.place))

    def front(self) -> tuple[int, ...]:
        """The Pareto front: places of the points that no other beats in throughput and latency, by latency."""
        front: list[int] = []
        best_rate = 0.0
        for _, rate, place in self.measured():
            if rate > best_rate:
                front.append(place)
                best_rate = rate
        return tuple(front)

    def best(self) -> int | None:
        """The place of the best setting that keeps the objective; ``None`` if none keeps it.

        The best has the lowest latency of those whose throughput is about the highest.
        """
        candidates = [dot for dot in self.measured() if self.points[dot.place].has_met(self.plan.objective)]
        most = max((dot.requests_per_s for dot in candidates), default=0.0)
        alike = [(dot.latency_s, dot.place) for dot in candidates if dot.requests_per_s >= most * (1 - ALIKE)]
        return min(alike)[1] if alike else None

    def varied(self) -> tuple[str, ...]:
        """Names of the settings in which the points differ."""
        names = Settings.__struct_fields__
        return tuple(name for name in names if len({getattr(point.settings, name) for point in self.points}) > 1)

    def label(self, place: int) -> str:
        """The settings in which a point differs from others: "max_batch_size 16, batch_wait_timeout_s 0.05"."""
        return settings_text(self.points[place].settings, self.varied())

    def verdict(self) -> str:
        """A sentence that names the best setting."""
        best = self.best()
        objective = self.plan.objective
        bound = f" keeps {objective.text}" if objective else ""
        measured, total = sum(bool(point.runs) for point in self.points), len(self.points)
        of = f"Of {total} settings" if measured == total else f"Of the first {measured} of {total} settings"
        if best is None:
            return f"{of} none{bound or ' answered every request'}."
        point = self.points[best]
        rate = FIGURE_BY_NAME["requests_per_s"]
        latency = FIGURE_BY_NAME[self.latency]
        return (
            f"{of} the best{' that' + bound if bound else ''} is {self.label(best) or 'the only one'}: "
            f"{point.figure('requests_per_s') or 0:.2f} {rate.unit} at a {latency.title} of "
            f"{point.figure(self.latency) or 0:.2f} s."
        )
