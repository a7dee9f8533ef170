"""The engine of a simulation: times of the cost model, faster and slower as the observed one was."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import Final

import numpy as np

from service.analysis.predict.cost import CostModel
from service.analysis.predict.load import Arrival
from service.analysis.predict.replicas import Ran
from service.messages.settings import USUAL_CHUNK_TOKENS

LEAST_S: Final = 1e-4
STRETCH_S: Final = 10.0  # run time, on average, that is taken over in one piece
RECENT_S: Final = 60.0  # run time of the latest batches, which are taken over
LEAST_RECENT: Final = 12  # batches


class Speed:
    """By what factor batches take longer than the cost model says, over time.

    It follows the residuals of the observed batches in stretches of about `STRETCH_S`, drawn with replacement: Politis
    and Romano's stationary bootstrap (1994). A slow spell so stays one, where residuals drawn one by one would average
    out and give too few long latencies.
    """

    def __init__(self, cost: CostModel, random: Random) -> None:
        self._random = random
        ago_s = np.cumsum(cost.run_s[::-1])
        recent = max(int(np.searchsorted(ago_s, RECENT_S)), LEAST_RECENT)
        self._residuals: list[float] = cost.residuals[-recent:].tolist()
        self._ends_s: list[float] = np.cumsum(cost.run_s[-recent:]).tolist()
        self._until_s = -math.inf
        self._offset_s = 0.0

    def factor(self, at_s: float) -> float:
        """The factor at a time, which may not lie before the one that was asked for last."""
        whole_s = self._ends_s[-1]
        if at_s >= self._until_s:
            self._until_s = at_s + self._random.expovariate(1.0 / STRETCH_S)
            self._offset_s = self._random.uniform(0.0, whole_s)
        place = bisect_right(self._ends_s, (at_s + self._offset_s) % whole_s)
        return self._residuals[min(place, len(self._residuals) - 1)]


class FittedEngine:
    """An engine whose times are the cost model's, times the factor of its `Speed`.

    `tail_s` is from the last token to the end of the batch, which is part of the batch's time only. A step reads at
    most `chunk_tokens` of the prompts that join.
    """

    def __init__(
        self,
        cost: CostModel,
        random: Random,
        tail_s: float = 0.0,
        chunk_tokens: int = USUAL_CHUNK_TOKENS["cpu"],
    ) -> None:
        self._cost = cost
        self._speed = Speed(cost, random)
        self._tail_s = tail_s
        self._chunk_tokens = chunk_tokens

    def read_s(self, at_s: float, joining: Sequence[Arrival]) -> float:
        return reading_s(self._cost, joining) * self._speed.factor(at_s)

    def parts(self, joining: Sequence[Arrival]) -> int:
        return max(math.ceil(_padded(joining) / self._chunk_tokens), 1)

    def step_s(self, at_s: float, rows: int) -> float:
        return max((self._cost.step_s + self._cost.row_s * rows) * self._speed.factor(at_s), LEAST_S)

    def run(self, at_s: float, members: Sequence[Arrival]) -> Ran:
        factor, read_s = self._speed.factor(at_s), reading_s(self._cost, members)
        lengths = [member.tokens for member in members]
        done_s = {n: max((read_s + each) * factor, LEAST_S) for n, each in decoding_s(self._cost, lengths).items()}
        run_s = max(done_s.values())
        tail_s = min(self._tail_s, run_s)
        first_s = (read_s + self._cost.step_s + self._cost.row_s * len(members)) * factor
        return Ran(run_s, min(first_s, run_s), [max(done_s[n] - tail_s, LEAST_S) for n in lengths])


def reading_s(cost: CostModel, members: Sequence[Arrival]) -> float:
    """The time before the first step of a batch."""
    return cost.overhead_s + cost.prompt_token_s * _padded(members)


def _padded(members: Sequence[Arrival]) -> int:
    """The tokens of prompts that are padded to one length."""
    return len(members) * max((member.prompt_tokens for member in members), default=0)


def decoding_s(cost: CostModel, lengths: Sequence[int]) -> dict[int, float]:
    """The time until completions of each length are done: the rows grow fewer as the short ones end."""
    ends = sorted(set(lengths))
    elapsed_s, left, result = 0.0, len(lengths), {}
    for before, end in pairwise((0, *ends)):
        elapsed_s += (end - before) * (cost.step_s + cost.row_s * left)
        result[end] = elapsed_s
        left -= lengths.count(end)
    return result
