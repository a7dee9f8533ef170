"""A controller that keeps objectives while the load changes, by moving settings; the simulator chooses each move.

It is asked every second or two with what is known then. It moves only where the objectives are broken or would be, by a
simulation from the present backlog on, and where another setting is expected to keep them for clearly more requests. So
a load that settings bear moves nothing, and a move is not undone by the load's chance (hysteresis).

What it promises: a number is at most doubled or halved in a move, but for going back to the settings that it started
from; moves are `CALM_S` apart, or `URGENT_S` while the objectives are broken or more than a batch waits; settings that
somebody else has changed it leaves alone from then on; and where a move turns out worse than the settings it started
from were under no higher load, they are back after `TRIED_S`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import msgspec
import numpy as np

from service.analysis.goal.search import MOST_PLACES
from service.analysis.goal.trials import Choice, Trials, time_name
from service.analysis.observed.descriptions import describe_change
from service.analysis.observed.history import History
from service.analysis.observed.requests import STATE_CODES
from service.analysis.observed.statistics import are_good
from service.analysis.predict.cost import prepare
from service.analysis.predict.observation import Observation
from service.analysis.predict.predict import Predictor
from service.messages.load import format_rate
from service.messages.objectives import MOST_S, Objectives
from service.messages.settings import LONGEST_REASON, Settings
from service.messages.telemetry import TelemetryEvent, TelemetryFrame
from service.messages.text import format_figure, percent

MOVED_BY: Final = "Hold: "  # begins the reason of each move in the telemetry
LOOK_S: Final = 1.0
CALM_S: Final = 30.0
URGENT_S: Final = 5.0
TRIED_S: Final = 10.0
RECENT_S: Final = 10.0
RUNS: Final = 6
FIRST_RUNS: Final = 2  # of all settings that are tried, after which
CLOSE: Final = 4  # of them are simulated further
HORIZON_S: Final = 20.0
SHORTEST_S: Final = 8.0
MOST_REQUESTS: Final = 400  # in a run, but for `SHORTEST_S`
LEAST_GAIN: Final = 0.02  # of the share of good requests, for which a move is worth it
SPARE: Final = 0.5  # of the requests that may be bad: with fewer of them bad than this share, nothing moves
OTHER_RATE: Final = 0.2  # by which the rate has to change to be looked at before `CALM_S` is over
LEAST_ASKED: Final = 8  # requests, from which on a share says something
STANDARD_ERRORS: Final = 2.0
LEAST_WAIT_S: Final = 0.02  # half of which is no wait
ROUNDS: Final = 3  # settings that one move changes at most


class Recent(NamedTuple):
    """What was measured in the last seconds.

    Attributes:
        asked: requests that were answered or refused, and those under way that can no longer be good.
    """

    asked: int
    good: int

    @property
    def share(self) -> float:
        return self.good / self.asked if self.asked else 1.0


class Seen(NamedTuple):
    """What is known at a moment.

    Attributes:
        predictor: ``None`` where too little was seen to predict.
        version: of the settings; ``None`` in a simulation.
    """

    at_s: float
    settings: Settings
    recent: Recent
    predictor: Predictor | None
    version: int | None = None

    @classmethod
    def of_history(cls, history: History, objectives: Objectives, at_s: float, since_s: float) -> Seen:
        """What a history tells of its last `RECENT_S`, but not of what was asked before `since_s`."""
        assert history.in_force is not None, "frames have been heard"
        observation = Observation.of_history(history, at_s, RECENT_S) or Observation.of_history(history, at_s)
        recent = _recent(history, objectives, max(at_s - RECENT_S, since_s), at_s)
        predictor = None if observation is None else Predictor.of(observation)
        return cls(at_s, history.in_force.settings, recent, predictor, history.in_force.version)


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """What is predicted of the next seconds, from the present backlog on: means of the runs.

    Attributes:
        share: of the requests that are good.
        time_s: what as many requests as have to be good take at most.
    """

    share: float
    time_s: float


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """Settings to be put in force, and why.

    Attributes:
        cause: the reason without the change itself.
        unmoved, moved: what is expected without the move, and with it; ``None`` for going back after a measurement.
    """

    settings: Settings
    reason: str
    cause: str
    unmoved: Expected | None = None
    moved: Expected | None = None

    @property
    def note(self) -> str:
        """What is to stand beside the change in the telemetry."""
        return f"{MOVED_BY}{self.cause}"[:LONGEST_REASON]


class Said(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="said"):
    """A sentence without a move; after one that `ends` it, nothing more is moved."""

    sentence: str
    ends: bool = False


Step: TypeAlias = Move | Said | None


class Follower:
    """Follows the telemetry of a service, and says what is seen whenever a look is due."""

    def __init__(self, clock: str, objectives: Objectives) -> None:
        """`clock` identifies the monotonic clock of this machine."""
        prepare()  # else the engine would lack that core at the first look
        self._history = History(clock)
        self._objectives = objectives
        self._looked_s = self._moved_s = -math.inf
        self._version = 0  # of the last move

    def take(self, event: TelemetryEvent) -> Seen | None:
        """Take an event in; what is seen by then, at most every `LOOK_S` and once the last move is in force."""
        if not isinstance(event, TelemetryFrame):
            self._history.add_missed(event)
            return None
        self._history.add_telemetry(event)
        if event.at_s - self._looked_s < LOOK_S or event.in_force.version < self._version:
            return None
        self._looked_s = event.at_s
        return Seen.of_history(self._history, self._objectives, event.at_s, self._moved_s)

    def note_move(self, version: int, at_s: float) -> None:
        """A move was made at that moment; its settings have this version."""
        self._version, self._moved_s = version, at_s


@dataclass
class Hold:
    """See the module.

    Attributes:
        max_batch_size_up_to: places in memory.
        sheds: whether it may lower `max_queued_requests`, so that what could only be answered late is refused at once.
        calm_s, urgent_s: between moves; `holding`, a benchmark, says what others give.
    """

    objectives: Objectives
    max_batch_size_up_to: int = MOST_PLACES
    sheds: bool = True
    calm_s: float = CALM_S
    urgent_s: float = URGENT_S
    _start: Settings | None = None
    _own: Settings | None = None
    _under_start: tuple[Recent, float, int] | None = None  # with the rate, and the number that waited
    _moved_s: float = -math.inf
    _looked_s: float = -math.inf
    _rate_per_s: float = 0.0  # when it last looked
    _is_over: bool = False
    _nothing_holds: bool = False
    _waits_until_s: float = -math.inf

    def step(self, seen: Seen) -> Step:
        """The move that is due at this moment, or a sentence, or nothing."""
        if self._start is None or self._own is None:
            self._start = self._own = seen.settings
        if self._is_over:
            return None
        if seen.settings != self._own:
            return self.let_go(self._own, seen.settings)
        if seen.predictor is None:
            return None
        rate_per_s = seen.predictor.load.rate_per_s
        if self._own == self._start:
            self._under_start = seen.recent, rate_per_s, seen.predictor.backlog.waiting
        elif self._is_worse(seen, rate_per_s, seen.predictor.backlog.waiting):
            self._waits_until_s = seen.at_s + self.calm_s
            share = f"{percent(seen.recent.share)} of the requests were good"
            cause = f"worse than before, {share}"
            move = Move(settings=self._start, reason=f"{cause}: back to what it started from", cause=cause)
            return self._made(move, seen.at_s)
        return self._look(seen, seen.predictor, rate_per_s) if self._is_due(seen, rate_per_s) else None

    def let_go(self, left: Settings, found: Settings) -> Said:
        """Make no move any more: somebody else has changed the settings that were left, be it while one was chosen."""
        self._is_over = True
        change = describe_change(left, found) or "and changed them back"
        return Said(sentence=f"Somebody else changed settings ({change}): Hold leaves them alone.", ends=True)

    def _is_urgent(self, seen: Seen) -> bool:
        """Whether the objectives are broken, or more than a batch waits."""
        assert seen.predictor is not None
        is_broken = seen.recent.asked >= LEAST_ASKED and seen.recent.share < self.objectives.share
        return is_broken or seen.predictor.backlog.waiting > seen.settings.max_batch_size

    def _is_due(self, seen: Seen, rate_per_s: float) -> bool:
        if seen.at_s < self._waits_until_s:
            return False
        is_urgent = self._is_urgent(seen)
        least_s = self.urgent_s if is_urgent else self.calm_s
        is_other = abs(rate_per_s - self._rate_per_s) > OTHER_RATE * self._rate_per_s
        return seen.at_s - self._moved_s >= least_s and (is_other or seen.at_s - self._looked_s >= least_s)

    def _is_worse(self, seen: Seen, rate_per_s: float, waiting: int) -> bool:
        """Whether fewer requests are good than before the first move, beyond chance and under no higher load."""
        if self._under_start is None or seen.at_s - self._moved_s < TRIED_S or seen.recent.asked < LEAST_ASKED:
            return False
        before, before_per_s, waited = self._under_start
        is_higher = rate_per_s > before_per_s * (1 + OTHER_RATE)
        if before.asked < LEAST_ASKED or is_higher or waiting > waited + seen.settings.max_batch_size:
            return False
        error = math.sqrt(sum(0.25 / each.asked for each in (before, seen.recent)))
        return seen.recent.share < before.share - STANDARD_ERRORS * error

    def _look(self, seen: Seen, predictor: Predictor, rate_per_s: float) -> Step:
        """The best settings within a step, where the present ones will not do."""
        was_per_s, self._looked_s, self._rate_per_s = self._rate_per_s, seen.at_s, rate_per_s
        until_s = min(HORIZON_S + predictor.backlog.waiting / rate_per_s, max(MOST_REQUESTS / rate_per_s, SHORTEST_S))
        trials = Trials(predictor, self.objectives, until_s, begin_s=-until_s, is_from_now=True)
        unmoved = _score(trials, seen.settings)
        allowed = 1 - self.objectives.share
        if unmoved.share >= 1 - SPARE * allowed:
            self._nothing_holds = False
            return None
        aim, moved, most = self._climb(trials, seen.settings, unmoved)
        was_told, self._nothing_holds = self._nothing_holds, most < self.objectives.share
        rate = format_rate(rate_per_s)
        if aim == seen.settings:
            sentence = f"Nothing holds {self.objectives.words} at {rate} requests/s: {percent(most)} would keep it."
            return None if was_told or not self._nothing_holds else Said(sentence=sentence)
        best = self._step_towards(aim, seen.settings, predictor)
        was = format_rate(was_per_s)
        load = f"rate {was} → {rate}" if was_per_s and was != rate else f"rate {rate}"
        would = f"{time_name(self.objectives)} would be {format_figure(unmoved.time_s, 's')}"
        if unmoved.time_s >= MOST_S:
            would = f"{percent(1 - unmoved.share)} of the requests would be late or refused"
        but = f"; nothing holds, {percent(moved.share)} will keep it" if self._nothing_holds else ""
        reason = f"{load}: {describe_change(seen.settings, best)}, {would}{but}"
        cause = f"{load}, {would}{but}"
        move = Move(settings=best, reason=reason, cause=cause, unmoved=unmoved.expected, moved=moved.expected)
        return self._made(move, seen.at_s)

    def _climb(self, trials: Trials, present: Settings, unmoved: _Score) -> tuple[Settings, _Score, float]:
        """From the present settings on to the best that changes one more of them, as long as that gains enough.

        Also the largest share of good requests of all that were tried.
        """
        assert self._start is not None
        best, score = present, unmoved
        known = {present: unmoved}
        for _ in range(ROUNDS):
            tried = [each for each in (*self._variants(best, trials.predictor), self._start) if each != best]
            close = sorted(tried, key=lambda each: _score(trials, each, FIRST_RUNS).share)[-CLOSE:]
            known |= {each: _score(trials, each) for each in close}
            first = max(close, key=lambda each: (known[each].share, -known[each].time_s))
            if known[first].gain_over(score) < LEAST_GAIN:
                break
            best, score = first, known[first]
        return best, score, max(each.share for each in known.values())

    def _variants(self, settings: Settings, predictor: Predictor) -> Iterator[Settings]:
        """The settings with another value in one field, further away than a move goes; nothing holds batches back."""
        assert self._start is not None
        free = settings.revised({"allow_small_batch": True, "stride_s": 0.0})
        cap, wait_s = settings.max_batch_size, settings.batch_wait_timeout_s
        yield free
        for size in {round(factor * cap) for factor in (0.25, 0.5, 0.7, 1.4, 2.0, 4.0)}:
            if 1 <= size <= self.max_batch_size_up_to:
                yield free.revised({"max_batch_size": size})
        if predictor.conditions.places == 1:
            yield free.revised({"formation": "late", "max_concurrent_batches": 1})
            yield free.revised({"formation": "continuous"})
        if settings.formation != "continuous" and wait_s:
            yield free.revised({"batch_wait_timeout_s": wait_s / 2 if wait_s > LEAST_WAIT_S else 0.0})
        if self.sheds:
            reached = _reached(settings, predictor)
            least, most = settings.max_batch_size, self._start.max_queued_requests  # a batch of them is the next
            for count in (reached // 8, reached // 4, reached // 2, 2 * settings.max_queued_requests):
                yield free.revised({"max_queued_requests": min(max(count, least), most)})

    def _step_towards(self, aim: Settings, present: Settings, predictor: Predictor) -> Settings:
        """As far towards `aim` as a move goes: what is a number is at most doubled or halved."""
        if aim == self._start:
            return aim
        half = {
            "max_batch_size": present.max_batch_size // 2,
            "max_queued_requests": _reached(present, predictor) // 2,
            "batch_wait_timeout_s": present.batch_wait_timeout_s / 2,
        }
        if present.batch_wait_timeout_s <= LEAST_WAIT_S:
            half["batch_wait_timeout_s"] = 0.0
        return aim.revised(
            {name: min(max(getattr(aim, name), least), 2 * getattr(present, name)) for name, least in half.items()}
        )

    def _made(self, move: Move, at_s: float) -> Move:
        self._own, self._moved_s = move.settings, at_s
        return move


class _Score(NamedTuple):
    """The share of good requests in each run, and the median of what as many as have to be good take at most."""

    shares: tuple[float, ...]
    time_s: float

    @property
    def share(self) -> float:
        return float(np.mean(self.shares))

    @property
    def expected(self) -> Expected:
        return Expected(share=self.share, time_s=self.time_s)

    def gain_over(self, other: _Score) -> float:
        """By how much more requests are good; 0 within a standard error of that. The runs are pairs."""
        gains = np.subtract(self.shares, other.shares)
        mean = float(gains.mean())
        return mean if mean > float(gains.std(ddof=1)) / math.sqrt(len(gains)) else 0.0


def _score(trials: Trials, settings: Settings, runs: int = RUNS) -> _Score:
    choice = Choice(settings, trials.predictor.conditions.replicas)
    outcomes = [trials.outcome(choice, number) for number in range(runs)]
    return _Score(tuple([each.share for each in outcomes]), float(np.median([each.time_s for each in outcomes])))


def _reached(settings: Settings, predictor: Predictor) -> int:
    """The limit of a replica's queue; one that is not reached counts as what waits."""
    return min(settings.max_queued_requests, predictor.backlog.waiting // predictor.conditions.replicas)


def _recent(history: History, objectives: Objectives, start_s: float, end_s: float) -> Recent:
    """Of the requests that were answered or refused within that time, and those that can no longer be good."""
    samples, table = history.requests.samples, history.requests.columns
    answered = (samples["finished"] > start_s) & (samples["finished"] <= end_s)
    ended_s, states = history.requests.ends()
    refused = (ended_s > start_s) & (ended_s <= end_s) & (states == STATE_CODES["refused"])
    asked_s = np.minimum(table["intended"], table["received"])
    late = (table["finished"] > end_s) & (end_s - asked_s > (objectives.latency_s or math.inf))
    good = answered & are_good(samples, objectives)
    return Recent(sum(int(np.count_nonzero(each)) for each in (answered, refused, late)), int(np.count_nonzero(good)))
