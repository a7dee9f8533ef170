"""The result of a sweep: throughput over latency, which settings are worth considering, and which is best."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

import msgspec

from service.analysis.compare.comparison import ServiceFacts
from service.analysis.compare.run import FIGURE_BY_NAME, FigureName, MeasuredRun
from service.analysis.compare.run_plan import PlanError, PlannedRun, SweepPlan
from service.analysis.observed.descriptions import settings_text
from service.messages.objectives import Objectives
from service.messages.settings import Settings
from service.messages.text import counted, format_figure

SAME_SERVICE: Final = ("model", "device", "dtype", "replicas")  # its address may have changed
ALIKE: Final = 0.03  # throughputs this close count as equal, since runs of one setting differ by as much
LATENCY: Final[FigureName] = "p95_s"  # plotted against throughput unless the objectives are about another time
PERCENTILES: Final[Mapping[str, Mapping[float, FigureName]]] = {
    "latency_s": {0.5: "p50_s", 0.95: "p95_s", 0.99: "p99_s"},
    "ttft_s": {0.5: "ttft_p50_s", 0.95: "ttft_p95_s"},
    "tpot_s": {0.5: "tpot_p50_s", 0.95: "tpot_p95_s"},
}


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

    def has_met(self, objectives: Objectives) -> bool:
        """Whether it was measured, lost no request, and enough of its requests met the objectives."""
        if not self.runs or any(run.failed or run.refused or run.dropped or run.broken_off for run in self.runs):
            return False
        good, sent = sum(run.good or 0 for run in self.runs), sum(run.sent for run in self.runs)
        return not objectives or good >= objectives.share * sent


class Sweep(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="sweep"):
    """The measurements of `sweep` so far; the missing ones are made when it goes on.

    Attributes:
        measured_at: Unix time of the latest run.
        points: in the order of the plan's.
    """

    version: Literal[2] = 2
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
        """The percentile that throughput is compared with: of the first time that the objectives are about."""
        return self._axis[0]

    @property
    def limit_s(self) -> float | None:
        """The objective on that percentile, where there is one."""
        return self._axis[1]

    @property
    def _axis(self) -> tuple[FigureName, float | None]:
        objectives = self.plan.objectives
        for time, figures in PERCENTILES.items():
            limit_s = getattr(objectives, time)
            if limit_s is not None:
                figure = figures.get(objectives.share)
                return (figures[0.95], None) if figure is None else (figure, limit_s)
        return LATENCY, None

    @property
    def is_finished(self) -> bool:
        return all(len(point.runs) == self.plan.rounds for point in self.points)

    def to_come(self) -> list[PlannedRun]:
        """The runs of the plan that are not made yet."""
        return [run for run in self.plan.runs() if run.round >= len(self.points[int(run.key)].runs)]

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
        candidates = [dot for dot in self.measured() if self.points[dot.place].has_met(self.plan.objectives)]
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
        objectives = self.plan.objectives
        measured, total = sum(bool(point.runs) for point in self.points), len(self.points)
        of = f"Of {counted(total, 'setting')}" if measured == total else f"Of the first {measured} of {total} settings"
        if best is None:
            none = f"there is none in which {objectives.share_words}" if objectives else "none answered every request"
            return f"{of} {none}."
        point = self.points[best]
        rate = FIGURE_BY_NAME["requests_per_s"]
        latency = FIGURE_BY_NAME[self.latency]
        bound = f" in which {objectives.share_words}" if objectives else ""
        return (
            f"{of} the best{bound} is {self.label(best) or 'the only one'}: "
            f"{point.figure('requests_per_s') or 0:.2f} {rate.title} at a {latency.title} of "
            f"{format_figure(point.figure(self.latency), latency.unit)}."
        )
