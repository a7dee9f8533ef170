"""The present load: who asked lately, how often, for how much, and what the way to the queue and back took."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import accumulate, chain, repeat
from random import Random
from typing import Final, Literal

import numpy as np

from service.analysis.observed.history import History
from service.analysis.predict.load import Arrival, ClosedLoop, Load, OpenLoop, Way
from service.analysis.predict.requests import Requests, filled, observed_requests
from service.analysis.predict.users import bursts_of, thinking_s, users_of

OBSERVED_S: Final = 30.0
LEAST_REQUESTS: Final = 8
BLOCK: Final = 8  # so many intervals stay together when arrivals are drawn anew, so that clusters remain clusters


@dataclass(frozen=True)
class PresentLoad:
    """The load as it was observed for `span_s`, to be replayed or drawn anew.

    Attributes:
        users: of a closed loop, in which requests follow from answers; 0 in an open one.
        bursts: ways of users who came back together.
        thinking_s: what a user may think besides, as the load declares it.
    """

    requests: Requests
    start_s: float
    span_s: float
    users: int
    bursts: tuple[tuple[Way, ...], ...]
    thinking_s: tuple[float, ...]

    @property
    def kind(self) -> Literal["open", "closed"]:
        return "closed" if self.users else "open"

    @property
    def rate_per_s(self) -> float:
        return len(self.requests) / self.span_s

    def replayed(self, until_s: float, random: Random) -> Load:
        """The same arrivals again, over and over until then; in a closed loop, the same users."""
        if self.users:
            return self._users(random)
        offsets = self.requests.intended_s - self.start_s
        rounds = int(until_s // self.span_s) + 1
        times = (number * self.span_s + float(offset) for number in range(rounds) for offset in offsets)
        rows = chain.from_iterable(repeat(range(len(self.requests)), rounds))
        return self._arriving(zip(times, rows, strict=True), random)

    def resampled(self, until_s: float, random: Random) -> Load:
        """Other arrivals of the same kind: blocks of the observed intervals, drawn with replacement."""
        if self.users:
            return self._users(random)
        gaps = self._intervals_s()
        count = max(int(1.5 * until_s * self.rate_per_s) + 4 * BLOCK, BLOCK)
        starts = (random.randrange(len(gaps)) for _ in range(count // BLOCK + 1))
        rows = [(start + place) % len(gaps) for start in starts for place in range(BLOCK)]
        times = accumulate(gaps[row] for row in rows)
        return self._arriving(zip(times, rows, strict=True), random)

    def _intervals_s(self) -> list[float]:
        """Between arrivals, the last one until the first would come again."""
        times = self.requests.intended_s
        around = self.span_s - float(times[-1] - times[0])
        return [*np.diff(times).tolist(), around]

    def _arriving(self, due: Iterable[tuple[float, int]], random: Random) -> OpenLoop:
        before = filled(self.requests.before_s).tolist()
        tokens, prompts = self.requests.tokens.tolist(), self.requests.prompt_tokens.tolist()
        arrivals = [Arrival(at_s, at_s + before[row], tokens[row], prompts[row]) for at_s, row in due]
        return OpenLoop(arrivals, self._returns(random))

    def _users(self, random: Random) -> ClosedLoop:
        lengths = list(zip(self.requests.tokens.tolist(), self.requests.prompt_tokens.tolist(), strict=True))

        def make(at_s: float, before_s: float) -> Arrival:
            return Arrival(at_s, at_s + before_s, *random.choice(lengths))

        def think_s() -> float:
            return random.choice(self.thinking_s)

        by_request = [burst for burst in self.bursts for _ in burst]
        return ClosedLoop(self.users, make, random, by_request, think_s, self._returns(random))

    def _returns(self, random: Random) -> Callable[[], float]:
        known = np.maximum(filled(self.requests.return_s), 0.0).tolist()
        return lambda: random.choice(known)


def present_load(history: History, at_s: float, over_s: float = OBSERVED_S) -> PresentLoad | None:
    """The load of the last `over_s` before `at_s`, or since it changed; ``None`` where there was hardly any."""
    start_s = max([at_s - over_s, *(mark.at_s for mark in history.load_story.marks if mark.at_s <= at_s)])
    if history.first_s is not None:
        start_s = max(start_s, history.first_s)
    requests = observed_requests(history, start_s, at_s)
    if len(requests) < LEAST_REQUESTS:
        return None
    span_s = at_s - start_s
    pattern = history.statuses.pattern_at(at_s)
    users = users_of(pattern, requests, at_s)
    bursts = bursts_of(pattern, requests, users) if users else ()
    return PresentLoad(requests, start_s, span_s, users, bursts, thinking_s(pattern))
