"""The engine of a simulation: a cost model, and how much single batches differ from it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import Final

from service.analysis.predict.cost import CostModel
from service.analysis.predict.load import Arrival

LEAST_S: Final = 1e-4


class FittedEngine:
    """Takes as long as the cost model says, times what some batch of those that were observed differed by.

    `tail_s` is from the last token to the end of the batch, which is part of the batch's time only.
    """

    def __init__(self, cost: CostModel, random: Random, tail_s: float = 0.0) -> None:
        self._cost = cost
        self._random = random
        self._residuals: list[float] = cost.residuals.tolist()
        self._tail_s = tail_s

    def read_s(self, joining: Sequence[Arrival]) -> float:
        """Their prompts are padded to one length."""
        longest = max((each.prompt_tokens for each in joining), default=0)
        return self._cost.prompt_token_s * len(joining) * longest * self._random.choice(self._residuals)

    def step_s(self, rows: int) -> float:
        return max((self._cost.step_s + self._cost.row_s * rows) * self._random.choice(self._residuals), LEAST_S)

    def run(self, members: Sequence[Arrival]) -> tuple[float, list[float]]:
        cost, factor = self._cost, self._random.choice(self._residuals)
        read_s = cost.overhead_s + cost.prompt_token_s * len(members) * max(m.prompt_tokens for m in members)
        lengths = [member.tokens for member in members]
        decode_s = self._decode_s(lengths)
        done_s = {n: max((read_s + decode_s[n]) * factor, LEAST_S) for n in decode_s}
        run_s = max(done_s.values())
        tail_s = min(self._tail_s, run_s)
        return run_s, [max(done_s[n] - tail_s, LEAST_S) for n in lengths]

    def _decode_s(self, lengths: list[int]) -> dict[int, float]:
        """When those of each length have all their tokens: the rows grow fewer as the short ones end."""
        ends = sorted(set(lengths))
        elapsed_s, left, result = 0.0, len(lengths), {}
        for before, end in pairwise((0, *ends)):
            elapsed_s += (end - before) * (self._cost.step_s + self._cost.row_s * left)
            result[end] = elapsed_s
            left -= lengths.count(end)
        return result
