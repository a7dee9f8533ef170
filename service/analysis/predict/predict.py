"""The prediction of figures under other settings and the present load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

import msgspec
import numpy as np

from service.analysis.observed.history import History
from service.analysis.predict.cost import CostModel
from service.analysis.predict.load import OBSERVED_S, Load, PresentLoad
from service.analysis.predict.observation import Conditions, Observation
from service.analysis.predict.replicas import SimulatedRun
from service.analysis.predict.simulation import FittedEngine, SimulatedFigures, Start, figures_of, is_growing, simulate
from service.messages.settings import Settings

REPLAYS: Final = 5
RESAMPLES: Final = 12
MOST_REQUESTS: Final = 1_500  # in one simulation; more take long and hardly change the figures
LONG_RUN: Final = 1_500  # requests that show whether the queue grows without bound
LEAST_ROUND_S: Final = 60.0
HORIZON_S: Final = 30.0
BAND: Final = (5.0, 95.0)


class Estimate(msgspec.Struct, frozen=True):
    """A figure, and the interval of nine of ten repetitions with other arrivals and other likely costs."""

    value: float
    low: float
    high: float


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """The figures under `settings`.

    Attributes:
        p50_s, p95_s: latency in the steady state; if `saturated`, of the requests of the next `horizon_s`.
        requests_per_s, tokens_per_s: answered.
        saturated: requests come faster than they can be served; the queue grows as long as the load lasts, or until
            `max_queued_requests` wait and more are refused.
        refused_share: of the requests.
        load: "closed" if requests follow from answers, else "open".
        rate_per_s: observed arrivals.
        users: of a closed loop, else 0.
        requests, batches: numbers that were observed.
    """

    settings: Settings
    p50_s: Estimate
    p95_s: Estimate
    requests_per_s: Estimate
    tokens_per_s: Estimate
    mean_batch: Estimate
    refused_share: Estimate
    saturated: bool
    horizon_s: float | None
    load: str
    rate_per_s: float
    users: int
    requests: int
    batches: int


def predict(
    history: History, settings: Settings, at_s: float | None = None, over_s: float = OBSERVED_S
) -> Prediction | None:
    """The figures under `settings` and the load of the last `over_s` before `at_s` (now).

    ``None`` for fewer than eight requests or three batches, and where `Predictor.predict` returns that.
    """
    observation = Observation.of_history(history, at_s, over_s)
    return None if observation is None else Predictor.of(observation).predict(settings)


@dataclass(frozen=True)
class Predictor:
    """Simulates the present load: replayed for the figures, and drawn anew for their intervals."""

    load: PresentLoad
    cost: CostModel
    conditions: Conditions
    start: Start

    @classmethod
    def of(cls, observation: Observation) -> Predictor:
        cost = CostModel.of_batches(observation.executed)
        assert cost is not None, "an observation holds enough batches"
        return cls(observation.load, cost, observation.conditions, observation.backlog.as_start(cost))

    def predict(self, settings: Settings) -> Prediction | None:
        """The figures; ``None`` for another number of batches at a time, since their costs side by side are unknown."""
        if settings.places != self.conditions.places:
            return None
        is_saturated = self.is_saturated(settings)
        replays = [self._figures(settings, seed, is_saturated, drawn=False) for seed in range(REPLAYS)]
        draws = [self._figures(settings, seed, is_saturated, drawn=True) for seed in range(RESAMPLES)]
        names = SimulatedFigures._fields
        return Prediction(
            settings=settings,
            **{name: _estimate([f[n] for f in replays], [f[n] for f in draws]) for n, name in enumerate(names)},
            saturated=is_saturated,
            horizon_s=HORIZON_S if is_saturated else None,
            load="closed" if self.load.users else "open",
            rate_per_s=self.load.rate_per_s,
            users=self.load.users,
            requests=len(self.load.requests),
            batches=len(self.cost.residuals),
        )

    def is_saturated(self, settings: Settings) -> bool:
        """Whether the queue grows in a long run; users that wait for their answers can't make it grow."""
        if self.load.users:
            return False
        random = Random(0)
        until_s = LONG_RUN / self.load.rate_per_s
        run = self._run(settings, self.load.resampled(until_s, random), until_s, self.cost, random)
        return is_growing(run, until_s)

    def _figures(self, settings: Settings, seed: int, is_saturated: bool, *, drawn: bool) -> SimulatedFigures:
        """The figures of one simulation: of the second of two rounds, or of the horizon without a steady state."""
        random = Random(f"{seed}-{drawn}")
        cost = self.cost.drawn(np.random.default_rng(seed)) if drawn else self.cost
        begin_s = 0.0 if is_saturated else self._round_s
        end_s = HORIZON_S if is_saturated else 2 * begin_s
        load = self.load.resampled(end_s, random) if drawn else self.load.replayed(end_s, random)
        start = self.start if is_saturated else None
        figures = figures_of(self._run(settings, load, end_s, cost, random, start), begin_s, end_s)
        return figures._replace(tokens_per_s=figures.tokens_per_s * cost.pieces_per_token)

    @property
    def _round_s(self) -> float:
        """The observed span; longer for users, which have nothing to replay and steadier figures in a longer time."""
        span_s = max(self.load.span_s, LEAST_ROUND_S) if self.load.users else self.load.span_s
        return min(span_s, MOST_REQUESTS / self.load.rate_per_s)

    def _run(
        self,
        settings: Settings,
        load: Load,
        until_s: float,
        cost: CostModel,
        random: Random,
        start: Start | None = None,
    ) -> SimulatedRun:
        limit = self.conditions.max_ongoing_requests
        is_limited = limit is not None and limit < settings.max_ongoing_requests
        return simulate(
            settings,
            FittedEngine(cost, random, self.conditions.tail_s),
            load,
            until_s,
            replicas=self.conditions.replicas,
            max_ongoing_requests=limit if is_limited else None,
            start=start,
            seed=random.getrandbits(32),
        )


def _estimate(replays: Sequence[float], draws: Sequence[float]) -> Estimate:
    """The replays' median within the band of the draws."""
    value = float(np.median(replays))
    low, high = np.percentile(draws, BAND)
    return Estimate(value, min(float(low), value), max(float(high), value))
