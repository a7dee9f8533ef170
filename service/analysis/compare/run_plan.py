"""Plans of comparisons and sweeps: the settings and loads to be measured, and the order of the runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Final

import msgspec

from service.analysis.compare.run import FigureName
from service.messages.load import ClosedLoop, RunLoad
from service.messages.objectives import NO_OBJECTIVES, Objectives
from service.messages.settings import Settings
from service.messages.text import UserError

Rounds = Annotated[int, msgspec.Meta(ge=1, le=1000)]
LEAST_ROUNDS: Final = 2
PairedRounds = Annotated[int, msgspec.Meta(ge=LEAST_ROUNDS, le=1000)]
Duration = Annotated[float, msgspec.Meta(gt=0, le=86_400)]
WARM_UP_S: Final = 2.0
MOST_POINTS: Final = 1000
USERS_A_PLACE: Final = 2  # of a batch, so that the next batch is full when it ends


class PlanError(UserError, ValueError):
    """A plan that cannot be carried out; the text is a sentence with a remedy."""


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One side of a comparison: settings, and the load that is sent under them."""

    settings: Settings
    load: RunLoad


def can_match(a: RunLoad, b: RunLoad) -> bool:
    """Whether B's rate can be set to the throughput that A reaches."""
    return isinstance(a.pattern, ClosedLoop) and hasattr(b.pattern, "rate_per_s")


class ComparePlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A against B over several rounds.

    Attributes:
        duration_s: time during which requests are sent in a run; the run ends when all are answered.
        seed: of both sides of the first round; each later round has the next one.
        warm_up_s: of each side's load before the first round, not counted.
        figure: subject of the verdict, chosen beforehand: among a dozen figures, many a comparison of a thing with
            itself shows a difference at 95 %.
        objectives: what a request is to meet to count for goodput.
        matches_throughput: B, an open loop, gets the rate that A, a closed one, reaches when it is measured first. The
            difference of their latencies is then the waiting that closed loops leave out ("coordinated omission").
    """

    a: Side
    b: Side
    duration_s: Duration = 10.0
    rounds: PairedRounds = 4
    seed: int = 0
    warm_up_s: float = WARM_UP_S
    figure: FigureName = "p95_s"
    objectives: Objectives = NO_OBJECTIVES
    matches_throughput: bool = False

    def check(self) -> None:
        """Raise `PlanError` if the plan can't be carried out."""
        if self.rounds < LEAST_ROUNDS:
            raise PlanError("One round does not show chance: compare over at least two, better four.")
        if self.figure == "goodput_per_s" and not self.objectives:
            raise PlanError("Goodput needs objectives: give them with --objective, such as latency=1 ttft=0.3.")
        if self.matches_throughput and not can_match(self.a.load, self.b.load):
            raise PlanError("To match the throughput A must be a closed loop, and B an open one with a rate.")

    def matched(self, requests_per_s: float) -> ComparePlan:
        """The same with this rate for B."""
        pattern = msgspec.structs.replace(self.b.load.pattern, rate_per_s=requests_per_s)
        load = msgspec.structs.replace(self.b.load, pattern=pattern)
        return msgspec.structs.replace(self, b=msgspec.structs.replace(self.b, load=load))

    def runs(self) -> Iterator[PlannedRun]:
        """A B, B A, A B, …: a steady drift, such as of a processor that grows warm, meets both sides alike."""
        for round_number in range(self.rounds):
            names = ("A", "B") if round_number % 2 == 0 else ("B", "A")
            for name in names:
                side = self.a if name == "A" else self.b
                load = msgspec.structs.replace(side.load, seed=self.seed + round_number)
                title = f"round {round_number + 1} of {self.rounds}: {name}"
                yield PlannedRun(name, round_number, side.settings, load, title)


def batching_plan(present: Side, *, duration_s: float, rounds: int, seed: int) -> ComparePlan:
    """A plan for the gain of batching: one request at a time against the present settings, both at full load.

    Raises `PlanError` where the present settings have no batches.
    """
    settings = present.settings
    if settings.max_batch_size == 1:
        raise PlanError("Raise max_batch_size first: with 1 nothing is batched.")
    users = min(USERS_A_PLACE * settings.max_batch_size, settings.max_queued_requests)
    load = msgspec.structs.replace(present.load, pattern=ClosedLoop(users=users))
    return ComparePlan(
        a=Side(settings=settings.revised({"max_batch_size": 1}), load=load),
        b=Side(settings=settings, load=load),
        duration_s=duration_s,
        rounds=rounds,
        seed=seed,
        figure="requests_per_s",
    )


class SweepPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Several settings under one load.

    Attributes:
        points: the settings, each measured once a round.
        duration_s, seed, warm_up_s: as in `ComparePlan`.
        objectives: what the requests of the best must meet; without any the highest throughput is best.
    """

    points: tuple[Settings, ...]
    load: RunLoad
    duration_s: Duration = 10.0
    rounds: Rounds = 1
    seed: int = 0
    warm_up_s: float = WARM_UP_S
    objectives: Objectives = NO_OBJECTIVES

    def runs(self) -> Iterator[PlannedRun]:
        """All points once a round, there and back, with the same arrivals for all of a round."""
        last = len(self.points) - 1
        for round_number in range(self.rounds):
            load = msgspec.structs.replace(self.load, seed=self.seed + round_number)
            for place in range(len(self.points)):
                point = place if round_number % 2 == 0 else last - place
                title = f"point {place + 1} of {last + 1}"
                title += f", round {round_number + 1} of {self.rounds}" if self.rounds > 1 else ""
                yield PlannedRun(point, round_number, self.points[point], load, title)


@dataclass(frozen=True)
class PlannedRun:
    """A run that is to be made.

    Attributes:
        key: "A" or "B", or the number of the sweep's point.
    """

    key: str | int
    round: int
    settings: Settings
    load: RunLoad
    title: str


def grid(base: Settings, axes: Mapping[str, Sequence[object]]) -> tuple[Settings, ...]:
    """Every combination of the values that `axes` gives settings, the rest as in `base`; raises `PlanError`.

    >>> [each.max_batch_size for each in grid(Settings(), {"max_batch_size": [1, 4]})]
    [1, 4]
    """
    count = math.prod(map(len, axes.values()))
    if count > MOST_POINTS:
        raise PlanError(f"{count:,} points are too many: at most {MOST_POINTS:,}. Take fewer values.")
    points = [base.revised(dict(zip(axes, values, strict=True))) for values in product(*axes.values())]
    return tuple(dict.fromkeys(points))
