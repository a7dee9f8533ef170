"""Simulated runs of settings, each held against objectives: the same arrivals and prices for all settings."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from service.analysis.predict.cost import CostModel
from service.analysis.predict.figures import times_of
from service.analysis.predict.predict import Estimate, Predictor
from service.analysis.predict.replicas import SimulatedRequest, SimulatedRun
from service.messages.objectives import MOST_S, TIMES, Objectives
from service.messages.settings import Settings

RUNS: Final = 20
KEPT_SHARE: Final = 0.9  # of the runs, that must keep the objectives
MOST_FAILED: Final = RUNS - math.ceil(KEPT_SHARE * RUNS)
ROUNDING: Final = 1e-9  # 0.95 · 300 is a little less than 285, or a little more


class Choice(NamedTuple):
    """Settings, and the number of replicas that have them."""

    settings: Settings
    replicas: int


class Outcome(NamedTuple):
    """A run held against objectives.

    Attributes:
        stretch: what the objectives have to be multiplied by for the run to keep them just so; it keeps them up to 1.
        time_s: what as many requests as have to be good take at most, of the first time that the objectives are about.
        share: of the requests that are good.
    """

    stretch: float
    time_s: float
    goodput_per_s: float
    share: float

    @property
    def is_kept(self) -> bool:
        return self.stretch <= 1.0


def first_time(objectives: Objectives) -> str:
    """The name of the first time that they are about: "latency_s", "ttft_s" or "tpot_s"."""
    return next(name for name in TIMES.values() if getattr(objectives, name) is not None)


def time_name(objectives: Objectives) -> str:
    """The figure that stands for it.

    >>> time_name(Objectives(latency_s=1)), time_name(Objectives(ttft_s=0.3, share=0.99))
    ('p95', 'TTFT p99')
    """
    kind = {"latency_s": "", "ttft_s": "TTFT ", "tpot_s": "TPOT "}[first_time(objectives)]
    return f"{kind}p{100 * objectives.share:g}"


def outcome_of(run: SimulatedRun, objectives: Objectives, begin_s: float, end_s: float) -> Outcome:
    """The outcome of the requests that were intended within that time.

    A request that is refused, or never answered, counts as one that takes `MOST_S`.
    """
    asked = [each for each in run.requests if begin_s <= each.arrival.intended_s < end_s]
    times = np.array([_times_s(each) for each in asked], float).reshape(-1, len(TIMES))
    wanted_s = np.array([getattr(objectives, name) or math.inf for name in TIMES.values()])
    stretches = np.nan_to_num(times / wanted_s).max(axis=1)
    first = np.nan_to_num(times[:, list(TIMES.values()).index(first_time(objectives))])
    good = int(np.count_nonzero(stretches <= 1.0))
    return Outcome(
        stretch=least_of_share(stretches.tolist(), objectives.share),
        time_s=least_of_share(first.tolist(), objectives.share),
        goodput_per_s=good / (end_s - begin_s),
        share=good / len(asked) if asked else 1.0,
    )


def _times_s(request: SimulatedRequest) -> Sequence[float | None]:
    return (MOST_S,) * len(TIMES) if request.refused or request.answered_s is None else times_of(request)


def least_of_share(values: Sequence[float], share: float) -> float:
    """The least value that this share of the values does not exceed; 0 for none.

    >>> least_of_share([4.0, 1.0, 3.0, 2.0], 0.75), least_of_share([4.0, 1.0], 0.75)
    (3.0, 4.0)
    """
    place = math.ceil(share * len(values) - ROUNDING) - 1
    return sorted(values)[max(place, 0)] if len(values) else 0.0


def least(values: Sequence[float]) -> Estimate:
    """The median of the runs' values, of which less is better, and the band of the best nine of ten."""
    return Estimate(float(np.median(values)), min(values), least_of_share(values, KEPT_SHARE))


def most(values: Sequence[float]) -> Estimate:
    """The same of values of which more is better."""
    return Estimate(float(np.median(values)), -least_of_share([-each for each in values], KEPT_SHARE), max(values))


Family: TypeAlias = tuple[Settings, int, bool]
"""Settings but for `max_batch_size`, replicas, and whether Ray holds requests back."""


@dataclass
class Trials:
    """Runs by number: each has arrivals and prices of its own, which are the same for all settings (common random
    numbers), so that a difference between two settings is one of the settings.

    The speeds of the engine in the `RUNS` runs are spread evenly over the likely ones, those of the first few too.

    A run in which no batch was full is that of each `max_batch_size` that would not have filled one either.

    Attributes:
        until_s, begin_s: how long a run lasts, and since when its requests count.
        is_from_now: a run begins with what waits and runs at present, else with an idle service.
        made: the number of runs that were simulated.
    """

    predictor: Predictor
    objectives: Objectives
    until_s: float
    begin_s: float = 0.0
    is_from_now: bool = False
    made: int = 0
    _prices: dict[int, CostModel] = field(default_factory=dict)
    _known: defaultdict[tuple[Family, int], list[tuple[int, int | None, Outcome]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def outcome(self, choice: Choice, number: int) -> Outcome:
        """The outcome of a run, 0 to `RUNS` - 1."""
        cap, known = choice.settings.max_batch_size, self._known[self._family(choice), number]
        for other, largest, outcome in known:
            if cap == other or (largest is not None and largest < cap):
                return outcome
        run = self._run(choice, number)
        outcome = outcome_of(run, self.objectives, self.begin_s, self.until_s)
        formed = [batch for batch in run.batches if batch.started_s >= 0]
        largest = max((len(batch.members) for batch in formed), default=0)
        was_full = largest >= cap or any(batch.release_reason == "full" for batch in formed)
        known.append((cap, None if was_full else largest, outcome))
        self.made += 1
        return outcome

    def on(self, replicas: int) -> Predictor:
        """The predictor for `replicas` replicas, each as fast as the observed ones are."""
        return replace(self.predictor, conditions=replace(self.predictor.conditions, replicas=replicas))

    def _run(self, choice: Choice, number: int) -> SimulatedRun:
        predictor, cost = self.on(choice.replicas), self._prices_of(number)
        backlog = predictor.backlog
        present, start = (backlog.requests, backlog.as_start(cost)) if self.is_from_now else (0, None)
        load = predictor.load.resampled(self.until_s, Random(number), present=present, is_likely=True)
        return predictor.run(choice.settings, load, self.until_s, cost, Random(f"engine {number}"), start)

    def _prices_of(self, number: int) -> CostModel:
        if number not in self._prices:
            drawn = self.predictor.cost.drawn(np.random.default_rng(number))
            self._prices[number] = drawn.drifted((SLOWER_THAN[number] + 0.5) / RUNS)
        return self._prices[number]

    def _family(self, choice: Choice) -> Family:
        limit = self.predictor.conditions.max_ongoing_requests
        is_held_back = limit is not None and limit < choice.settings.max_ongoing_requests
        return choice.settings.revised({"max_batch_size": 1, "allow_small_batch": True}), choice.replicas, is_held_back


def _spread(count: int) -> tuple[int, ...]:
    """The numbers below `count` from the last on, each far from those before it (van der Corput, base 2).

    >>> _spread(8)
    (7, 3, 5, 1, 6, 2, 4, 0)
    """
    bits = (count - 1).bit_length()
    mirrored = (int(f"{number:0{bits}b}"[::-1], 2) for number in range(2**bits))
    return tuple([count - 1 - each for each in mirrored if each < count])


SLOWER_THAN: Final = _spread(RUNS)
"""Of each run, in how many of the others the engine is faster."""
