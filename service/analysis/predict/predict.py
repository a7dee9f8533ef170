"""The prediction of figures under other settings and the present load."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import msgspec
import numpy as np

from service.analysis.observed.columns import Floats
from service.analysis.observed.history import History
from service.analysis.predict.cost import CostModel
from service.analysis.predict.engine import FittedEngine
from service.analysis.predict.figures import (
    STEP_S,
    Course,
    SimulatedFigures,
    figures_of,
    is_growing,
    served_rates,
    waiting_of_nine_tenths,
)
from service.analysis.predict.load import OBSERVED_S, Load, PresentLoad
from service.analysis.predict.observation import Backlog, Conditions, Observation
from service.analysis.predict.replicas import SimulatedRun
from service.analysis.predict.simulation import Fitting, Start, simulate
from service.messages.settings import Settings

DRAWS: Final = 24
LEAST_DRAWS: Final = 12
MOST_REQUESTS: Final = 2_000  # in one draw, from which on there are fewer draws
LONG_RUN: Final = 1_500  # requests that show the steady state, and whether the queue grows without bound
WARM_UP: Final = 0.1  # of the long run, before the steady state
HORIZON_S: Final = 30.0
LEAST_LEFT_S: Final = 1.0  # of it; "in 0 s" is now
WINDOW_S: Final = 15.0
GROWN_S: Final = 10.0  # the end of the horizon
BAND: Final = (5.0, 95.0)
QUARTILES: Final = (25.0, 50.0, 75.0)
MIDDLE: Final = (40.0, 50.0, 60.0)  # one standard error of the median of `DRAWS` to both sides
RATES: Final = ("requests_per_s", "tokens_per_s")
LATENCIES: Final = ("p50_s", "p95_s", "ttft_p50_s", "ttft_p95_s", "tpot_p50_s", "tpot_p95_s")
KNOWN_SHARE: Final = 0.5  # of the draws that must have a figure for it to be predicted


class Estimate(msgspec.Struct, frozen=True):
    """A figure, and the interval that holds it with nine of ten chances when it is measured once for as long."""

    value: float
    low: float
    high: float


class Trajectory(msgspec.Struct, frozen=True, kw_only=True):
    """What comes in the next `HORIZON_S`, from now on, second by second; ``None`` where no request is answered.

    Attributes:
        p50_s, p95_s: of the requests answered in some seconds around then; see `Course`.
        waiting: in the queue or in sealed batches at that moment.
        present: these and those that run.
    """

    p50_s: tuple[Estimate | None, ...] = ()
    p95_s: tuple[Estimate | None, ...] = ()
    waiting: tuple[Estimate | None, ...] = ()
    present: tuple[Estimate | None, ...] = ()
    requests_per_s: tuple[Estimate | None, ...] = ()
    tokens_per_s: tuple[Estimate | None, ...] = ()


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """The figures under `settings`; ``None`` where nothing is answered.

    They are those of `window_s` of the steady state, after the backlog; if `saturated`, of the last `GROWN_S` of the
    next `HORIZON_S`.

    Attributes:
        p50_s, p95_s: latency of the requests answered.
        ttft_p50_s, ttft_p95_s: time to the first token.
        tpot_p50_s, tpot_p95_s: time per output token after the first.
        requests_per_s, tokens_per_s: answered.
        saturated: requests come faster than they can be served; the queue grows as long as the load lasts, or until
            `max_queued_requests` wait and more are refused.
        refused_share: of the requests.
        backlog: the number of requests that wait now.
        worked_off_s: when no more wait than in the steady state; ``None`` if not within the horizon.
        load: "closed" if requests follow from answers, else "open".
        rate_per_s: arrivals.
        users: of a closed loop, else 0.
        requests, batches: numbers that were observed.
        passed_s: since it was made; the trajectory begins before that.
    """

    settings: Settings
    p50_s: Estimate | None
    p95_s: Estimate | None
    ttft_p50_s: Estimate | None
    ttft_p95_s: Estimate | None
    tpot_p50_s: Estimate | None
    tpot_p95_s: Estimate | None
    requests_per_s: Estimate
    tokens_per_s: Estimate
    mean_batch: Estimate | None
    refused_share: Estimate
    saturated: bool
    horizon_s: float | None
    window_s: float
    backlog: int
    worked_off_s: Estimate | None
    trajectory: Trajectory
    load: str
    rate_per_s: float
    users: int
    requests: int
    batches: int
    passed_s: float = 0.0

    @property
    def is_after_backlog(self) -> bool:
        """Whether a backlog has to be worked off before the figures hold."""
        return not self.saturated and (self.worked_off_s is None or self.worked_off_s.value > STEP_S)

    @property
    def is_moving(self) -> bool:
        """Whether the number of requests that wait changes from the present on: it is a way, not only a level."""
        return self.saturated or self.is_after_backlog

    def after(self, passed_s: float) -> Prediction | None:
        """Returns the prediction with the time left of it after `passed_s`; ``None`` once its horizon is over."""
        if self.horizon_s is None:
            return msgspec.structs.replace(self, passed_s=passed_s)
        left_s = self.horizon_s - passed_s
        return msgspec.structs.replace(self, horizon_s=left_s, passed_s=passed_s) if left_s >= LEAST_LEFT_S else None

    def falls_in_s(self, waiting: int) -> float | None:
        """Returns the seconds from now until the trajectory falls to `waiting` requests that wait.

        ``None`` where it does not fall so far, and where that time is over.
        """
        falls_at = (n * STEP_S for n, each in enumerate(self.trajectory.waiting) if each and each.value <= waiting)
        left_s = next(falls_at, 0.0) - self.passed_s
        return left_s if left_s > 0 else None


def predict(
    history: History, settings: Settings, at_s: float | None = None, over_s: float = OBSERVED_S
) -> Prediction | None:
    """The figures under `settings` and the load of the last `over_s` before `at_s` (now).

    ``None`` for fewer than eight requests or three batches, and where `Predictor.predict` returns that.
    """
    observation = Observation.of_history(history, at_s, over_s)
    return None if observation is None else Predictor.of(observation).predict(settings)


@dataclass(frozen=True)
class Draw:
    """One way it may come: other arrivals of the same kind, other likely prices, another speed of the engine.

    Attributes:
        figures: what would be counted.
        served: requests and tokens a second; see `served_rates`.
        usual: requests waiting at most in nine tenths of the steady time.
    """

    course: Course
    figures: SimulatedFigures
    served: tuple[float, float]
    usual: float


@dataclass(frozen=True)
class Predictor:
    """Simulates the present load from the present backlog, drawn anew again and again."""

    load: PresentLoad
    cost: CostModel
    conditions: Conditions
    backlog: Backlog

    @classmethod
    def of(cls, observation: Observation) -> Predictor:
        cost = CostModel.of_batches(observation.executed)
        assert cost is not None, "an observation holds enough batches"
        return cls(observation.load, cost, observation.conditions, observation.backlog)

    def predict(self, settings: Settings, window_s: float = WINDOW_S) -> Prediction | None:
        """The figures of `window_s` that will be measured.

        ``None`` for another number of batches at a time, since their costs side by side are unknown.
        """
        if settings.places != self.conditions.places:
            return None
        until_s = LONG_RUN / self.load.rate_per_s
        long_run = self._run_on(settings, until_s)
        is_saturated = self._is_growing(long_run, until_s)
        steady = None if is_saturated else self._steady(long_run, until_s)
        requests = self.load.rate_per_s * (HORIZON_S + window_s)
        count = round(min(max(DRAWS * MOST_REQUESTS / requests, LEAST_DRAWS), DRAWS))
        draws = [self._draw(settings, number, count, is_saturated, window_s) for number in range(count)]
        drawn = dict(zip(SimulatedFigures._fields, zip(*(draw.figures for draw in draws), strict=True), strict=True))
        served = dict(zip(RATES, zip(*(draw.served for draw in draws), strict=True), strict=True))
        estimates: dict[str, Any] = {
            name: _estimate(
                values, steady and getattr(steady, name), MIDDLE if name in LATENCIES else QUARTILES, served.get(name)
            )
            for name, values in drawn.items()
        }
        return Prediction(
            settings=settings,
            **estimates,
            saturated=is_saturated,
            horizon_s=HORIZON_S if is_saturated else None,
            window_s=window_s,
            backlog=self.backlog.waiting,
            worked_off_s=None if is_saturated else _worked_off_s(draws),
            trajectory=_trajectory([draw.course for draw in draws]),
            load="closed" if self.load.users else "open",
            rate_per_s=self.load.rate_per_s,
            users=self.load.users,
            requests=len(self.load.requests),
            batches=len(self.cost.residuals),
        )

    def is_saturated(self, settings: Settings) -> bool:
        """Whether requests come faster than they can be served at the likeliest prices."""
        until_s = LONG_RUN / self.load.rate_per_s
        return self._is_growing(self._run_on(settings, until_s), until_s)

    def _is_growing(self, long_run: SimulatedRun, until_s: float) -> bool:
        return not self.load.users and is_growing(long_run, until_s)  # users wait for their answers

    def _run_on(self, settings: Settings, until_s: float) -> SimulatedRun:
        """A long run; of users from the present on, since groups of users that are answered together may stay so."""
        are_present = 0 < self.backlog.requests <= self.load.users
        load = self.load.resampled(until_s, Random(0), present=self.backlog.requests if are_present else 0)
        start = self.backlog.as_start(self.cost) if are_present else None
        return self.run(settings, load, until_s, self.cost, Random(0), start)

    def _steady(self, long_run: SimulatedRun, until_s: float) -> SimulatedFigures:
        begin_s = WARM_UP * until_s
        rates = zip(RATES, self._served(long_run, begin_s, until_s), strict=True)
        return self._figures(long_run, begin_s, until_s)._replace(**dict(rates))

    def _figures(self, run: SimulatedRun, begin_s: float, end_s: float) -> SimulatedFigures:
        figures = figures_of(run, begin_s, end_s)
        return figures._replace(tokens_per_s=figures.tokens_per_s * self.cost.pieces_per_token)

    def _served(self, run: SimulatedRun, begin_s: float, end_s: float) -> tuple[float, float]:
        requests_per_s, tokens_per_s = served_rates(run, begin_s, end_s)
        return requests_per_s, tokens_per_s * self.cost.pieces_per_token

    def _draw(self, settings: Settings, number: int, count: int, is_saturated: bool, window_s: float) -> Draw:
        """From the backlog through the horizon; where that was not enough for it, the steady state without it.

        The speeds of the `count` draws are spread evenly over the likely ones, since so few by chance often miss the
        ends of the band.
        """
        random, chance = Random(number), np.random.default_rng(number)
        cost = self.cost.drawn(chance).drifted((number + 0.5) / count)
        until_s = HORIZON_S if is_saturated else HORIZON_S + window_s
        load = self.load.resampled(until_s, random, present=self.backlog.requests, is_likely=True)
        run = self.run(settings, load, until_s, cost, random, self.backlog.as_start(cost))
        course = Course.of(run, HORIZON_S)
        begin_s = until_s - (GROWN_S if is_saturated else window_s)
        usual = waiting_of_nine_tenths(run, begin_s, until_s)
        if not is_saturated and self.backlog.waiting and _worked_off_at(course, usual) >= HORIZON_S - 1:
            load = self.load.resampled(until_s, random, is_likely=True)
            run = self.run(settings, load, until_s, cost, random)
            usual = waiting_of_nine_tenths(run, begin_s, until_s)
        return Draw(course, self._figures(run, begin_s, until_s), self._served(run, begin_s, until_s), usual)

    def run(
        self,
        settings: Settings,
        load: Load,
        until_s: float,
        cost: CostModel,
        random: Random,
        start: Start | None = None,
    ) -> SimulatedRun:
        """Simulate `load` until `until_s` under these settings and prices, from `start` or an idle service."""
        chunk_tokens = settings.chunk_tokens(self.conditions.device)
        limit = self.conditions.max_ongoing_requests
        is_limited = limit is not None and limit < settings.max_ongoing_requests
        return simulate(
            settings,
            FittedEngine(cost, random, self.conditions.tail_s, chunk_tokens),
            load,
            until_s,
            replicas=self.conditions.replicas,
            max_ongoing_requests=limit if is_limited else None,
            memory_tokens=self.conditions.memory_tokens,
            start=start,
            seed=random.getrandbits(32),
            router=Fitting(settings) if self.conditions.is_fitted else None,
        )


def _worked_off_at(course: Course, usual: float) -> float:
    """When no more than `usual` wait for the first time; infinite if that does not come."""
    below = np.flatnonzero(course.waiting <= usual)
    return float(below[0]) * STEP_S if len(below) else math.inf


def _worked_off_s(draws: Sequence[Draw]) -> Estimate | None:
    usual = float(np.median([draw.usual for draw in draws]))
    times_s = [_worked_off_at(draw.course, usual) for draw in draws]
    value = float(np.median(times_s))
    if value == math.inf:
        return None
    low, high = np.percentile(np.minimum(times_s, HORIZON_S), BAND, method="weibull")
    return Estimate(value, min(float(low), value), max(float(high), value))


def _estimate(
    values: Sequence[float] | Floats,
    value: float | None = None,
    within: Sequence[float] = QUARTILES,
    typical: Sequence[float] | None = None,
) -> Estimate | None:
    """A value, by default the median, within the band of the draws that have it; ``None`` if that are too few.

    A value outside of the percentiles `within` of the draws is moved to the nearer one: close to saturation a long run
    at the likeliest prices may be calm while most draws are not, or its queue longer than it becomes in the time that
    is predicted. So latencies keep closer to the median of the draws than rates, which do not depend on it. Where the
    `typical` values of the draws are given, these percentiles are theirs, and the band is still that of `values`.

    The ranks of the band are those within which one draw more lies with nine of ten chances (Weibull's plotting
    positions).
    """
    known = np.asarray(values, float)
    known = known[np.isfinite(known)]
    if len(known) < KNOWN_SHARE * len(values):
        return None
    low, high = np.percentile(known, BAND, method="weibull").tolist()
    lower, median, upper = np.percentile(known if typical is None else typical, within).tolist()
    chosen = median if value is None or math.isnan(value) else min(max(value, lower), upper)
    return Estimate(chosen, min(low, chosen), max(high, chosen))


def _trajectory(courses: Sequence[Course]) -> Trajectory:
    names = Trajectory.__struct_fields__
    columns = {name: np.stack([getattr(course, name) for course in courses]).T for name in names}
    return Trajectory(**{name: tuple(map(_estimate, rows)) for name, rows in columns.items()})
