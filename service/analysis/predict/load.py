"""The load of a simulation, and the present load that it repeats: its users or its rate, and the delays on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from random import Random
from typing import Final, NamedTuple, TypeVar

import numpy as np

from service.analysis.observed.columns import Bools, Floats, Ints
from service.analysis.observed.history import History
from service.analysis.observed.requests import FIRST_FINAL_CODE
from service.messages.load import ClosedLoop as ClosedPattern
from service.messages.load import ConstantRate, GammaArrivals, Length, LognormalLength, Pattern, Poisson, RunLoad

TOGETHER_S: Final = 0.005  # answers of one batch arrive within less
STEADY_SHARE: Final = 0.75  # of the time all users of a closed loop without thinking are waiting
OBSERVED_S: Final = 30.0
LEAST_REQUESTS: Final = 8
DECLARED_SHARE: Final = 0.95  # of the requests that come from a sender, from which on its declaration holds for all
USUAL_PROMPT_TOKENS: Final = 16  # up to which prompts are like those that load is usually made of
WORDS_A_TOKEN: Final = 0.75
LEAST_SIGMA: Final = 0.01  # of the logarithm of lengths, below which they are one
BLOCK: Final = 8  # intervals that stay together when arrivals are drawn anew, so that clusters remain


def at_once() -> float:
    return 0.0


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request on its way to the queue.

    Attributes:
        intended_s: begin of its latency.
        enqueued_s: when it reaches the queue.
        tokens, prompt_tokens: to generate, and to read before.
    """

    intended_s: float
    enqueued_s: float
    tokens: int
    prompt_tokens: int = 0


class ReturnDelays(NamedTuple):
    """The delays of a user's return: from the answer to the next request, and from there to the queue."""

    gap_s: float
    before_s: float


@dataclass(kw_only=True)
class Load:
    """A sender of requests.

    Attributes:
        return_s: draws the time that the answers of a batch take from the engine to their users.
        pause_after_refusal_s: pause of a user after a refusal.
    """

    return_s: Callable[[], float] = at_once
    pause_after_refusal_s: float = 0.0

    def first(self, until_s: float) -> Iterable[Arrival]:
        """The requests up to `until_s` that do not follow from answers."""
        raise NotImplementedError

    def next(self, answered_s: float) -> Arrival | None:
        """The request that follows from an answer; an open loop has none."""
        return None


@dataclass
class OpenLoop(Load):
    """Arrivals that do not wait for answers."""

    arrivals: Sequence[Arrival]

    def first(self, until_s: float) -> Iterable[Arrival]:
        return (arrival for arrival in self.arrivals if arrival.intended_s < until_s)


@dataclass
class ClosedLoop(Load):
    """Users that each send a request when the one before is answered.

    Users that are answered together return together, since a delay of one mostly delays all. So their delays are drawn
    from one observed burst; drawn one by one they would scatter more than they do, and a batch that waits for them
    would miss some.

    Attributes:
        present: of the users, those whose requests are under way when the load begins.
        make: returns the request for its intended time and its delay until the queue.
        bursts: observed delays of users that returned together.
        think_s: draws the time that a user thinks besides.
    """

    users: int
    make: Callable[[float, float], Arrival]
    random: Random
    bursts: Sequence[Sequence[ReturnDelays]] = ((ReturnDelays(0.0, 0.0),),)
    think_s: Callable[[], float] = at_once
    present: int = field(default=0, kw_only=True)
    pause_after_refusal_s: float = field(default=1.0, kw_only=True)
    _burst: Sequence[ReturnDelays] = ()
    _answered_s: float | None = None

    def first(self, until_s: float) -> Iterable[Arrival]:
        burst = self.random.choice(self.bursts)
        return (self.make(0.0, self.random.choice(burst).before_s) for _ in range(self.users - self.present))

    def next(self, answered_s: float) -> Arrival | None:
        if answered_s != self._answered_s:
            self._answered_s, self._burst = answered_s, self.random.choice(self.bursts)
        way = self.random.choice(self._burst)
        return self.make(answered_s + way.gap_s + self.think_s(), way.before_s)


@dataclass(frozen=True)
class Requests:
    """The observed requests as the simulation needs them, in order of `intended_s`; NaN is unknown.

    Attributes:
        intended_s: begin of the latency: when it was to be sent, or else when it was received.
        before_s: delay from there until it stood in the queue.
        answered_s: when its client had all of it, or else when it was finished.
        return_s: delay from its end in the engine until then.
        tokens: generated, or the limit of a request under way.
        from_sender: whether its sender has reported it.
    """

    intended_s: Floats
    before_s: Floats
    answered_s: Floats
    return_s: Floats
    tokens: Ints
    prompt_tokens: Ints
    from_sender: Bools

    def __len__(self) -> int:
        return len(self.intended_s)


def observed_requests(history: History, start_s: float, end_s: float) -> Requests:
    """The requests that were intended from `start_s` until `end_s`."""
    table = history.requests.columns
    has_sender = np.isfinite(table["intended"])
    intended_s = np.where(has_sender, table["intended"], table["received"])
    rows: Ints = np.flatnonzero((intended_s >= start_s) & (intended_s < end_s) & (table["prompt_tokens"] >= 0))
    rows = rows[np.argsort(intended_s[rows], kind="stable")]
    has_ended: Bools = (table["state"][rows] >= FIRST_FINAL_CODE) & (table["tokens"][rows] > 0)
    answered_s = _finite(np.where(has_sender, table["client_finished"], table["finished"])[rows])
    return Requests(
        intended_s=intended_s[rows],
        before_s=_finite(table["queued"][rows]) - intended_s[rows],
        answered_s=answered_s,
        return_s=answered_s - _finite(table["finished"][rows]),
        tokens=np.where(has_ended, table["tokens"][rows], np.maximum(table["max_tokens"][rows], 1)),
        prompt_tokens=table["prompt_tokens"][rows].copy(),
        from_sender=has_sender[rows],
    )


def _finite(values: Floats) -> Floats:
    return np.where(np.isfinite(values), values, np.nan)


def filled(values: Floats) -> Floats:
    """The values with the median in place of unknown ones."""
    known = values[np.isfinite(values)]
    return np.where(np.isfinite(values), values, np.median(known) if len(known) else 0.0)


def users_of(pattern: Pattern | None, requests: Requests, at_s: float) -> int:
    """The number of users of a closed loop, as its sender declares it or as it is recognised; 0 for an open loop.

    A closed loop is recognised where for most of the time as many requests as ever are under way, and where they follow
    the answers more regularly than each other.
    """
    if pattern is not None:
        return pattern.users if isinstance(pattern, ClosedPattern) else 0
    begins = requests.intended_s
    ends = np.sort(np.where(np.isnan(requests.answered_s), at_s, requests.answered_s))
    moments = np.concatenate([begins, ends])
    steps = np.concatenate([np.ones(len(begins)), -np.ones(len(ends))])
    order = np.argsort(moments, kind="stable")
    present = np.cumsum(steps[order])[:-1]
    held_s = np.diff(moments[order])
    users = int(present.max())
    settled = np.maximum.accumulate(present) >= users  # while a load begins, users come one by one
    share = held_s[settled & (present >= users)].sum() / max(held_s[settled].sum(), 1e-9)
    if share < STEADY_SHARE or len(requests) < 2 * users:
        return 0
    return users if np.std(_follow_s(requests, users)) < np.std(np.diff(begins)) else 0


def bursts_of(pattern: Pattern | None, requests: Requests, users: int) -> tuple[tuple[ReturnDelays, ...], ...]:
    """The delays of users that returned together: without a gap where the loop is declared, else as observed."""
    before_s = filled(requests.before_s)
    if isinstance(pattern, ClosedPattern):
        return _together(requests.intended_s, [ReturnDelays(0.0, each) for each in before_s.tolist()])
    answers, gaps_s = np.sort(requests.answered_s[np.isfinite(requests.answered_s)]), _follow_s(requests, users)
    delays = [
        ReturnDelays(max(gap_s, 0.0), each)
        for gap_s, each in zip(gaps_s.tolist(), before_s[users:].tolist(), strict=False)
    ]
    return _together(answers[: len(delays)], delays)


def _together(times_s: Floats, delays: list[ReturnDelays]) -> tuple[tuple[ReturnDelays, ...], ...]:
    """Groups of `delays` whose times follow one another closely."""
    starts = [0, *(np.flatnonzero(np.diff(times_s) > TOGETHER_S) + 1).tolist(), len(delays)]
    return tuple(tuple(delays[start:end]) for start, end in pairwise(starts))


def _follow_s(requests: Requests, users: int) -> Floats:
    """The gap from each answer to the next request of its user, if there are `users` users."""
    answers = np.sort(requests.answered_s[np.isfinite(requests.answered_s)])
    following = requests.intended_s[users : users + len(answers)]
    return following - answers[: len(following)]


def thinking_s(pattern: Pattern | None) -> tuple[float, ...]:
    if not isinstance(pattern, ClosedPattern):
        return (0.0,)
    if pattern.think == "fixed":
        return (pattern.think_s,)
    shares = (np.arange(64) + 0.5) / 64
    return tuple((-np.log1p(-shares) * pattern.think_s).tolist())


@dataclass(frozen=True)
class PresentLoad:
    """The load as it was observed for `span_s`, to be drawn anew.

    Attributes:
        declared: how its sender says that requests come, where all of them come from it.
        users: of a closed loop, in which requests follow from answers; 0 in an open one.
        bursts: delays of users that returned together.
        thinking_s: equally likely thinking times of a user, as the load declares them.
    """

    requests: Requests
    start_s: float
    span_s: float
    declared: Pattern | None
    users: int
    bursts: tuple[tuple[ReturnDelays, ...], ...]
    thinking_s: tuple[float, ...]

    @property
    def rate_per_s(self) -> float:
        """Arrivals, as declared or else as observed; as observed in a closed loop."""
        if isinstance(self.declared, (Poisson, ConstantRate, GammaArrivals)):
            return self.declared.rate_per_s
        return len(self.requests) / self.span_s

    def of_rate(self, rate_per_s: float) -> PresentLoad:
        """Poisson arrivals of such requests."""
        return replace(self, declared=Poisson(rate_per_s=rate_per_s), users=0, bursts=())

    def of_users(self, users: int) -> PresentLoad:
        """Users that send such requests, each without thinking; if there were users, such users."""
        pattern = self.declared if self.users else ClosedPattern(users=users)
        bursts = self.bursts or bursts_of(pattern, self.requests, users)
        return replace(self, declared=pattern, users=users, bursts=bursts)

    def of_pattern(self, pattern: Pattern) -> PresentLoad | None:
        """Such requests that come as `pattern` says; ``None`` where that is not predicted."""
        match pattern:
            case Poisson() | ConstantRate() | GammaArrivals():
                return replace(self, declared=pattern, users=0, bursts=())
            case ClosedPattern(users=users):
                return self.of_users(users)
        return None

    def as_sent(self, prompts: Sequence[str]) -> RunLoad:
        """A load like this one, as a load generator sends it: its rate or its users, and lengths spread as observed."""
        declared = self.declared if isinstance(self.declared, (Poisson, ConstantRate, GammaArrivals)) else None
        pattern = ClosedPattern(users=self.users) if self.users else declared or Poisson(rate_per_s=self.rate_per_s)
        longer = self.requests.prompt_tokens[self.requests.prompt_tokens > USUAL_PROMPT_TOKENS]
        words = _length(longer * WORDS_A_TOKEN) if 2 * len(longer) > len(self.requests) else None
        tokens = _length(self.requests.tokens)
        return RunLoad(pattern=pattern, prompts=tuple(prompts), max_tokens=tokens, prompt_words=words)

    def resampled(self, until_s: float, random: Random, *, present: int = 0, is_likely: bool = False) -> Load:
        """Other arrivals of the same kind: where the load does not declare how they come, blocks of observed intervals.

        Args:
            present: users whose requests are under way when the load begins.
            is_likely: the blocks are drawn from blocks so drawn, since the true rate is as far from the observed one
                as that is from the rate that follows.
        """
        if self.users:
            return self._users(random, present)
        rows = range(len(self.requests))
        count = int(1.5 * until_s * self.rate_per_s) + 4 * BLOCK
        if gaps := self._declared_gaps(random, count):
            drawn = list(zip(gaps, random.choices(rows, k=count), strict=True))
        else:
            times_s = self.requests.intended_s
            until_first_s = self.span_s - float(times_s[-1] - times_s[0])  # from the last to the first repeated
            observed = list(zip([*np.diff(times_s).tolist(), until_first_s], rows, strict=True))
            if is_likely:
                observed = _in_blocks(observed, len(observed), random)
            drawn = _in_blocks(observed, count, random)
        times = accumulate(gap_s for gap_s, _ in drawn)
        return self._arriving(zip(times, (row for _, row in drawn), strict=True), random)

    def _declared_gaps(self, random: Random, count: int) -> list[float]:
        """Intervals as they are declared; none where they are not."""
        match self.declared:
            case Poisson(rate_per_s=rate):
                return [random.expovariate(rate) for _ in range(count)]
            case GammaArrivals(rate_per_s=rate, shape=shape):
                return [random.gammavariate(shape, 1.0 / (shape * rate)) for _ in range(count)]
            case ConstantRate(rate_per_s=rate):
                return [random.random() / rate, *[1.0 / rate] * (count - 1)]
        return []

    def _arriving(self, due: Iterable[tuple[float, int]], random: Random) -> OpenLoop:
        before = filled(self.requests.before_s).tolist()
        tokens, prompts = self.requests.tokens.tolist(), self.requests.prompt_tokens.tolist()
        arrivals = [Arrival(at_s, at_s + before[row], tokens[row], prompts[row]) for at_s, row in due]
        return OpenLoop(arrivals, return_s=self._returns(random))

    def _users(self, random: Random, present: int) -> ClosedLoop:
        lengths = list(zip(self.requests.tokens.tolist(), self.requests.prompt_tokens.tolist(), strict=True))

        def make(at_s: float, before_s: float) -> Arrival:
            return Arrival(at_s, at_s + before_s, *random.choice(lengths))

        def think_s() -> float:
            return random.choice(self.thinking_s)

        by_request = [burst for burst in self.bursts for _ in burst]
        begun = min(present, self.users)
        return ClosedLoop(self.users, make, random, by_request, think_s, present=begun, return_s=self._returns(random))

    def _returns(self, random: Random) -> Callable[[], float]:
        known = np.maximum(filled(self.requests.return_s), 0.0).tolist()
        return lambda: random.choice(known)


def _length(lengths: Floats | Ints) -> Length:
    """The one length, or the lognormal distribution of these."""
    median, most = max(round(float(np.median(lengths))), 1), max(round(float(lengths.max())), 1)
    sigma = float(np.std(np.log(np.maximum(lengths, 1))))
    return median if sigma < LEAST_SIGMA else LognormalLength(median=median, sigma=min(sigma, 5.0), cap=most)


Item = TypeVar("Item")


def _in_blocks(items: Sequence[Item], count: int, random: Random) -> list[Item]:
    """`count` of the items in blocks of `BLOCK` that follow one another, drawn with replacement."""
    starts = [random.randrange(len(items)) for _ in range(-(-count // BLOCK))]
    return [items[(start + place) % len(items)] for start in starts for place in range(BLOCK)][:count]


def present_load(history: History, at_s: float, over_s: float = OBSERVED_S) -> PresentLoad | None:
    """The load of the last `over_s` before `at_s`, or since it changed; ``None`` for fewer than eight requests."""
    start_s = max([at_s - over_s, *(mark.at_s for mark in history.load_timeline.marks if mark.at_s <= at_s)])
    if history.first_s is not None:
        start_s = max(start_s, history.first_s)
    requests = observed_requests(history, start_s, at_s)
    if len(requests) < LEAST_REQUESTS:
        return None
    span_s = at_s - start_s
    pattern = history.statuses.pattern_at(at_s)
    users = users_of(pattern, requests, at_s)
    bursts = bursts_of(pattern, requests, users) if users else ()
    declared = pattern if requests.from_sender.mean() >= DECLARED_SHARE else None
    return PresentLoad(requests, start_s, span_s, declared, users, bursts, thinking_s(pattern))
