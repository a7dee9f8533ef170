"""Predictions held against what came: each that was shown for a change which was then made, over the time it is for."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from service.analysis.observed.annotations import OuterMark
from service.analysis.observed.contention import contentions
from service.analysis.observed.history import History
from service.analysis.observed.scores import HEADLINE, SCORED, PredictionScores, ScoredFigure, ScoredPrediction
from service.analysis.predict.load import observed_requests
from service.analysis.predict.predict import GROWN_S, Estimate, Prediction
from service.analysis.predict.prediction_report import Measured, measured

KEPT: Final = 12
LATE_S: Final = 1.0  # after which the sender has reported what was answered
BY_CHANCE: Final = 3.0  # standard deviations of a count


@dataclass(frozen=True)
class Outcome:
    """A prediction and what came."""

    prediction: Prediction
    measured: Measured

    def error(self, name: str) -> float | None:
        """By what share the prediction was too high; ``None`` where one of the two is unknown."""
        estimate, value = self._pair(name)
        return None if estimate is None or not value else estimate.value / value - 1.0

    def is_inside(self, name: str) -> bool | None:
        """Whether it came within the predicted band."""
        estimate, value = self._pair(name)
        return None if estimate is None or not value else estimate.low <= value <= estimate.high

    @property
    def scored(self) -> ScoredPrediction:
        """The figures that were both predicted and measured."""
        pairs = {name: self._pair(name) for name in SCORED}
        return ScoredPrediction(
            figures={
                name: ScoredFigure(estimate.value, estimate.low, estimate.high, value)
                for name, (estimate, value) in pairs.items()
                if estimate is not None and value is not None
            }
        )

    def _pair(self, name: str) -> tuple[Estimate | None, float | None]:
        return getattr(self.prediction, name), getattr(self.measured, name)


@dataclass(frozen=True)
class _Awaited:
    """A prediction whose outcome has not come yet: `version` of the settings shall bring it."""

    prediction: Prediction
    version: int
    mark: OuterMark | None

    def span(self, history: History) -> tuple[float, float] | None:
        """The time that the prediction is for; ``None`` before a batch has obeyed the settings."""
        regime = history.batches.regimes[-1] if history.batches.regimes else None
        return None if regime is None or regime.version != self.version else span_of(self.prediction, regime.start_s)


def span_of(prediction: Prediction, begun_s: float) -> tuple[float, float] | None:
    """The time that a prediction is for, where `begun_s` is when its settings were first obeyed.

    ``None`` where it does not say when the backlog is worked off. Steady figures hold once that is so and its last
    requests are answered, by the upper ends of both.
    """
    if prediction.saturated and prediction.horizon_s is not None:
        end_s = begun_s + prediction.horizon_s
        return end_s - GROWN_S, end_s
    if prediction.worked_off_s is None:
        return None
    begun_s += sum(each.high for each in (prediction.worked_off_s, prediction.p95_s) if each is not None)
    return begun_s, begun_s + prediction.window_s


@dataclass
class Scores:
    """Waits for the outcomes of predictions and keeps the last ones; one prediction at a time is waited for.

    Attributes:
        unscored: the number of predictions whose conditions changed before their outcome was there.
    """

    unscored: int = 0
    _outcomes: deque[Outcome] = field(default_factory=lambda: deque(maxlen=KEPT))
    _awaited: _Awaited | None = None

    @property
    def outcomes(self) -> list[Outcome]:
        """The last ones, oldest first."""
        return list(self._outcomes)

    @property
    def is_waiting(self) -> bool:
        return self._awaited is not None

    def expect(self, prediction: Prediction, version: int, history: History) -> None:
        """Wait for what comes of a prediction that was shown, under `version` of the settings, which it is for.

        One that does not say when it holds is not waited for.
        """
        self.drop()
        if span_of(prediction, 0.0) is None:
            self.unscored += 1
            return
        self._awaited = _Awaited(prediction, version, _last_mark(history))

    def drop(self) -> None:
        """Do not score the prediction that is waited for: its conditions have changed."""
        self.unscored += self._awaited is not None
        self._awaited = None

    def follow(self, history: History, is_steady: bool = True) -> None:
        """Score the prediction that is waited for once its time is over, or drop it where its conditions changed.

        Args:
            is_steady: whether the engine is as it was observed; see `Withheld`.
        """
        awaited, in_force = self._awaited, history.in_force
        if awaited is None:
            return
        is_newer = in_force is None or in_force.version > awaited.version
        if not is_steady or is_newer or _last_mark(history) != awaited.mark:
            self.drop()
            return
        span = awaited.span(history)
        if span is None or history.last_s is None or history.last_s < span[1] + LATE_S:
            return
        outcome = Outcome(awaited.prediction, measured(history, *span))
        is_other = _is_disturbed(history, *span) or not _is_same_load(awaited.prediction, history, *span)
        if is_other or outcome.error(HEADLINE) is None:
            self.drop()
            return
        self._awaited = None
        self._outcomes.append(outcome)

    def known_at(self, at_s: float) -> PredictionScores:
        """What is known of the last ones at `at_s`, the present moment on the service's clock."""
        return PredictionScores(
            at_s=at_s, predictions=tuple(each.scored for each in self._outcomes), unscored=self.unscored
        )


def _last_mark(history: History) -> OuterMark | None:
    return next(reversed(history.outer_marks()), None)


def _is_disturbed(history: History, start_s: float, end_s: float) -> bool:
    """Whether something of that time was not heard, or the engine was slowed."""
    is_slowed = bool(contentions(history, end_s, start_s))
    is_out = any(each.start_s < end_s and (each.end_s or math.inf) > start_s for each in history.outages)
    return is_slowed or is_out or any(each.overlaps(start_s, end_s) for each in history.silences)


def _is_same_load(prediction: Prediction, history: History, start_s: float, end_s: float) -> bool:
    """Whether requests came as fast as the prediction assumes, but for chance; users come as they are answered."""
    expected = prediction.rate_per_s * (end_s - start_s)
    came = len(observed_requests(history, start_s, end_s))
    return bool(prediction.users) or abs(came - expected) <= BY_CHANCE * math.sqrt(max(expected, 1.0))
