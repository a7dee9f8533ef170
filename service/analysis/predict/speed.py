"""Why nothing is predicted: the engine was slowed, or its speed has just changed, so that no observation holds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from service.analysis.observed.columns import Bools, Floats
from service.analysis.observed.contention import disturbance
from service.analysis.observed.history import History
from service.analysis.observed.rolling import WINDOW_S
from service.analysis.predict.cost import CostModel, Executed

RECENT_S: Final = 10.0
BEFORE_S: Final = 30.0  # up to the recent ones
LEAST_RECENT: Final = 3  # batches, however long ago
LEAST_BEFORE: Final = 5
LEAST_CHANGE: Final = 1.25  # a factor that prediction errors of a smaller one are no worse than the others
STANDARD_ERRORS: Final = 3.0
OF_A_MEDIAN: Final = 1.25  # its standard error over that of a mean
LEAST_DRIFT: Final = 0.04  # standard deviation of the means of spans
LIKE: Final = 1.5  # times as large, up to which a batch is compared with others


@dataclass(frozen=True)
class Withheld:
    """Why nothing is predicted although there may be enough to observe: a sentence, and less for narrow places."""

    sentence: str
    brief: str

    @classmethod
    def at(cls, history: History, at_s: float | None = None) -> Withheld | None:
        """The reason at `at_s` (now); ``None`` where there is none."""
        moment_s = history.now_s() if at_s is None else at_s
        slowed = disturbance(history, moment_s)
        if slowed is not None:
            sentence = f"Predictions are withheld until {WINDOW_S:.0f} s after the engine was slowed: {slowed.words}."
            return cls(sentence, f"{slowed.brief}: no prediction")
        change = SpeedChange.of_batches(Executed.of_history(history, moment_s))
        return None if change is None else cls(change.sentence, change.brief)


@dataclass(frozen=True)
class SpeedChange:
    """How many times as long as before the engine takes for the same work; below 1 it has become faster."""

    factor: float

    @property
    def sentence(self) -> str:
        """
        >>> print(SpeedChange(1.8).sentence)
        The engine takes 1.8 times as long as when it was observed; no prediction until it has kept that speed for 30 s.
        """
        return (
            f"{self._words} as when it was observed; no prediction until it has kept that speed for {BEFORE_S:.0f} s."
        )

    @property
    def brief(self) -> str:
        """The same for narrow places.

        >>> SpeedChange(0.52).brief
        'The engine takes 0.52 times as long: no prediction'
        """
        return f"{self._words}: no prediction"

    @property
    def _words(self) -> str:
        return f"The engine takes {self.factor:.{1 if self.factor >= 1 else 2}f} times as long"

    @classmethod
    def of_batches(cls, executed: Executed) -> SpeedChange | None:
        """The change within the last seconds; ``None`` where there is none beyond what noise explains.

        The latest batches' times over those of the fitted prices are compared with the same ratios of the batches
        before, by their medians, so that a single batch that was held up is no change. Batches of other sizes or of
        another kind than those before are left out: there the prices may be wrong, and not the speed.
        """
        cost = CostModel.of_batches(executed)
        if cost is None:
            return None
        latest = _latest(executed)
        since_s = executed.finished_s.max() - RECENT_S - BEFORE_S
        before = ~latest & (executed.finished_s > since_s) & (executed.is_open == executed.is_open[-1])
        if np.count_nonzero(before) < LEAST_BEFORE:
            return None
        latest &= (executed.size <= LIKE * executed.size[before].max()) & (executed.is_open == executed.is_open[-1])
        latest &= executed.size >= executed.size[before].min() / LIKE
        if np.count_nonzero(latest) < LEAST_RECENT:
            return None
        logs = np.log(cost.ratios(executed))
        change = float(np.median(logs[latest]) - np.median(logs[before]))
        error = math.hypot(_error(logs[before], int(latest.sum())), _drift(executed, logs, ~latest))
        return cls(math.exp(change)) if abs(change) > max(math.log(LEAST_CHANGE), STANDARD_ERRORS * error) else None


def _latest(executed: Executed) -> Bools:
    """The batches of the last seconds, but not fewer than `LEAST_RECENT`."""
    ends_s = np.sort(executed.finished_s)
    since_s = min(ends_s[-1] - RECENT_S, ends_s[-LEAST_RECENT - 1] if len(ends_s) > LEAST_RECENT else -math.inf)
    result: Bools = executed.finished_s > since_s
    return result


def _error(logs: Floats, count: int) -> float:
    """The standard error of the difference of two medians: of theirs, and that of `count` more of their spread."""
    spread = float(np.percentile(np.abs(logs - np.median(logs)), 68.0))
    return OF_A_MEDIAN * spread * math.sqrt(1.0 / len(logs) + 1.0 / count)


def _drift(executed: Executed, logs: Floats, before: Bools) -> float:
    """How far the means of spans as long as the recent one usually lie apart."""
    span = ((executed.finished_s[before].max() - executed.finished_s[before]) // RECENT_S).astype(int)
    counts = np.bincount(span)
    means = np.bincount(span, logs[before])[counts > 0] / counts[counts > 0]
    return max(float(means.std()), LEAST_DRIFT)
