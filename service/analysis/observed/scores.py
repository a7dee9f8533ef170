"""How good the last predictions were: what each said, and what came. A recording holds it as the window knew it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, Protocol

import msgspec

from service.messages.text import counted, percent

SCORED: Final[Mapping[str, str]] = {
    "p95_s": "p95",
    "p50_s": "p50",
    "ttft_p50_s": "TTFT p50",
    "tpot_p50_s": "TPOT p50",
}
HEADLINE: Final = "p95_s"


class Judged(Protocol):
    """A prediction whose outcome is known."""

    def error(self, name: str) -> float | None:
        """By what share the prediction was too high; ``None`` where one of the two is unknown."""

    def is_inside(self, name: str) -> bool | None:
        """Whether it came within the predicted band."""


class ScoredFigure(msgspec.Struct, frozen=True):
    """A figure as it was predicted, the band around it, and what was measured."""

    value: float
    low: float
    high: float
    measured: float


class ScoredPrediction(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of `SCORED` that were both predicted and measured."""

    figures: dict[str, ScoredFigure]

    def error(self, name: str) -> float | None:
        found = self.figures.get(name)
        return found.value / found.measured - 1.0 if found is not None and found.measured else None

    def is_inside(self, name: str) -> bool | None:
        found = self.figures.get(name)
        return found.low <= found.measured <= found.high if found is not None and found.measured else None


@dataclass(frozen=True)
class Score:
    """How good the last predictions of one figure were: the median size of their errors, and how many were inside."""

    count: int
    median_error: float
    inside: int

    @classmethod
    def of(cls, outcomes: Sequence[Judged], name: str = HEADLINE) -> Score | None:
        """``None`` where none of them can be judged."""
        errors = [error for each in outcomes if (error := each.error(name)) is not None]
        inside = sum(bool(each.is_inside(name)) for each in outcomes)
        return cls(len(errors), median(map(abs, errors)), inside) if errors else None

    @property
    def words(self) -> str:
        """
        >>> Score(12, 0.061, 11).words, Score(1, 0.2, 0).words
        ('last 12: median error 6 %, 11 inside their band', 'the last: error 20 %, outside its band')
        """
        error = percent(self.median_error)
        if self.count == 1:
            return f"the last: error {error}, {'inside' if self.inside else 'outside'} its band"
        return f"last {self.count}: median error {error}, {self.inside} inside their band"

    @property
    def brief(self) -> str:
        """The same for narrow places.

        >>> Score(12, 0.061, 11).brief, Score(1, 0.2, 0).brief
        ('last 12: 6 % off, 11 inside', 'last 1: 20 % off, 0 inside')
        """
        return f"last {self.count}: {percent(self.median_error)} off, {self.inside} inside"


class PredictionScores(msgspec.Struct, frozen=True, kw_only=True):
    """What was known of the last predictions from `at_s` on, on the service's clock.

    Attributes:
        predictions: oldest first.
        unscored: the number of predictions whose conditions changed before their outcome was there.
    """

    at_s: float
    predictions: tuple[ScoredPrediction, ...] = ()
    unscored: int = 0

    @property
    def words(self) -> str:
        """The score of the headline figure as one line, or nothing before the first outcome."""
        score = Score.of(self.predictions)
        return "" if score is None else f"Predictions of {SCORED[HEADLINE]}, {score.words}"

    @property
    def brief(self) -> str:
        """The same for narrow places."""
        score = Score.of(self.predictions)
        return "" if score is None else score.brief

    @property
    def details(self) -> str:
        """A line for each figure, and what was not scored."""
        scores = ((name, Score.of(self.predictions, key)) for key, name in SCORED.items())
        lines = [f"{name}, {score.words}" for name, score in scores if score is not None]
        if self.unscored:
            changed = "settings, load or the engine's speed changed first, or the backlog was too long"
            lines.append(f"{counted(self.unscored, 'more prediction')} not scored: {changed}")
        return "\n".join(lines)


NO_SCORES: Final = PredictionScores(at_s=float("-inf"))
