"""What runs measured, and the median over them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

import msgspec

from service.commands.bench.plan import Subject


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """Batches of one size, one after the other.

    Attributes:
        tokens: generated in all.
        step_s: of a step in which every row gets a token, prompts apart; ``None`` if there was none.
        first_token_s: from the asking to the first token, the median over the batches or requests; ``None`` where
            answers come in one piece.
        memory_bytes: the most that was seen: resident, or on a GPU.
        rows: decoded at a time, on average.
    """

    subject: Subject
    size: int
    tokens: float
    ran_s: float
    step_s: float | None
    first_token_s: float | None
    memory_bytes: int
    rows: float

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.ran_s


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Medians over the rounds.

    Attributes:
        spread: half of what lies between the slowest and the fastest round, as a share of the median.
    """

    subject: Subject
    size: int
    rounds: int
    tokens_per_s: float
    spread: float
    step_s: float | None
    first_token_s: float | None
    memory_bytes: int
    rows: float


def figures(runs: Sequence[Run]) -> Figures:
    """Over the rounds of one subject at one size, of which there is at least one."""
    rates = [run.tokens_per_s for run in runs]
    return Figures(
        subject=runs[0].subject,
        size=runs[0].size,
        rounds=len(runs),
        tokens_per_s=median(rates),
        spread=(max(rates) - min(rates)) / 2 / median(rates),
        step_s=_median(run.step_s for run in runs),
        first_token_s=_median(run.first_token_s for run in runs),
        memory_bytes=max(run.memory_bytes for run in runs),
        rows=median(run.rows for run in runs),
    )


def _median(values: Iterable[float | None]) -> float | None:
    """Of those that are known."""
    known = [value for value in values if value is not None]
    return median(known) if known else None
