"""Predictors of services that never ran: prices, lengths and a rate, observed with little noise."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np

from service.analysis.predict.cost import CostModel, Executed
from service.analysis.predict.load import PresentLoad, Requests, ReturnDelays, thinking_s
from service.analysis.predict.observation import Backlog, Conditions, ReplicaBacklog
from service.analysis.predict.predict import Predictor
from service.messages.load import ClosedLoop, Poisson
from service.messages.objectives import Objectives

FOUR_A_SECOND = Poisson(rate_per_s=4.0)
HALF_A_SECOND = Objectives(latency_s=0.5)
AT_ONCE = ((ReturnDelays(0.0, 0.0),),)
SPAN_S = 60.0
BATCHES = 80
REQUESTS = 120


@dataclass(frozen=True)
class Case:
    """A service, its load, and what is to hold of them; `spread` is that of the lengths, in tokens."""

    step_s: float = 0.02
    row_s: float = 0.002
    prompt_token_s: float = 0.0001
    tokens: int = 12
    spread: int = 0
    prompt_tokens: int = 6
    pattern: Poisson | ClosedLoop = FOUR_A_SECOND
    objectives: Objectives = HALF_A_SECOND

    @classmethod
    def drawn(cls, seed: int) -> Case:
        """A random one whose objectives a cap of a few requests may hold, or none."""
        draw = Random(seed)
        tokens, step_s, row_s = draw.randint(4, 16), draw.uniform(0.01, 0.03), draw.uniform(0.0005, 0.005)
        alone_s = tokens * (step_s + row_s)
        rate = draw.uniform(0.2, 1.6) / alone_s
        limit_s = alone_s * draw.uniform(1.2, 3.0)
        objectives = draw.choice(
            (
                Objectives(latency_s=limit_s, share=draw.choice((0.5, 0.95))),
                Objectives(ttft_s=limit_s / 4),
                Objectives(latency_s=limit_s, tpot_s=(step_s + row_s) * draw.uniform(1.1, 2.0), ttft_s=limit_s / 2),
            )
        )
        users = ClosedLoop(users=draw.randint(1, 6))
        pattern = users if draw.random() < 0.2 else Poisson(rate_per_s=rate)
        spread = draw.choice((0, tokens // 2))
        return cls(step_s, row_s, 0.00005, tokens, spread, draw.randint(2, 12), pattern, objectives)

    @property
    def predictor(self) -> Predictor:
        """What would be known after a minute of it."""
        draw = np.random.default_rng(11)
        size = draw.integers(1, 13, BATCHES).astype(float)
        steps = np.full(BATCHES, float(self.tokens))
        tokens, prompts = size * steps, np.round(size * self.prompt_tokens * draw.uniform(0.5, 1.5, BATCHES))
        run_s = self.step_s * steps + self.row_s * tokens + self.prompt_token_s * prompts
        run_s *= draw.uniform(0.97, 1.03, BATCHES)
        ones, is_open = np.ones(BATCHES), np.zeros(BATCHES, bool)
        ends_s = np.linspace(0.0, SPAN_S, BATCHES)
        cost = CostModel.of_batches(
            Executed(size, steps, tokens, tokens, prompts, run_s, 0 * ones, ends_s, ones, size, is_open)
        )
        assert cost is not None
        return Predictor(self.load, cost, Conditions(), Backlog((ReplicaBacklog(),)))

    @property
    def load(self) -> PresentLoad:
        draw = np.random.default_rng(12)
        nothing = np.zeros(REQUESTS)
        lengths = draw.integers(max(self.tokens - self.spread, 1), self.tokens + self.spread + 1, REQUESTS)
        prompts = np.full(REQUESTS, self.prompt_tokens)
        if isinstance(self.pattern, Poisson):
            users, rate_per_s = 0, self.pattern.rate_per_s
        else:
            users = self.pattern.users
            rate_per_s = users / (self.tokens * (self.step_s + self.row_s * users))
        span_s = REQUESTS / rate_per_s
        times_s = np.sort(draw.uniform(0.0, span_s, REQUESTS))
        requests = Requests(times_s, nothing, times_s, nothing, lengths, prompts, nothing == 0)
        return PresentLoad(requests, 0.0, span_s, self.pattern, users, AT_ONCE, thinking_s(self.pattern))
