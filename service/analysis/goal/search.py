"""The search for the cheapest settings that hold objectives, among all that can be simulated.

Every setting is simulated in a few runs. It is out as soon as too many runs have failed for nine of ten to be
kept, and the cheapest that is left is simulated until it holds or is out (racing: Maron and Moore, "Hoeffding
Races", NIPS 1993; here with no error, since a setting that is out would be out after all runs, too). What the frontier
consists of and what just misses gets all runs.

Which is cheaper: fewer replicas, each of which holds the model once; then fewer places in memory, which is what
`max_batch_size` reserves for keys and values; then less of the time that the objectives are about; then less waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, product
from typing import Final

import msgspec

from service.analysis.goal.trials import (
    KEPT_SHARE,
    MOST_FAILED,
    RUNS,
    Choice,
    Outcome,
    Trials,
    first_time,
    least,
    least_of_share,
    most,
    time_name,
)
from service.analysis.observed.descriptions import settings_text
from service.analysis.predict.predict import Estimate, Predictor
from service.messages.objectives import Objectives
from service.messages.settings import BOUNDS, PLACES_FOR_REQUESTS, Settings
from service.messages.text import UserError, format_figure, per_second, percent

FIRST_RUNS: Final = MOST_FAILED + 1  # of every setting: a hopeless one is out after them
HOLDING: Final = 3
REQUESTS: Final = 300  # in a run, of which the warm-up is part
SHORTEST_S: Final = 10.0
MOST_REQUESTS: Final = 1_000
WARM_UP: Final = 0.1  # of a run
SIZES: Final = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 256)
MOST_PLACES: Final = 64
WAITS_S: Final = (0.0, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
CHUNKS: Final = (32, 64, 128, 256, 512, 1024, 2048)
PRICE_KNOWN: Final = 0.5  # standard error, as a share of the price of a prompt's token


class GoalError(UserError, ValueError):
    """A goal that cannot be searched for; the text is a sentence that says what to do."""


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """What must hold, and within which bounds settings are searched.

    Attributes:
        replicas_up_to: that the machine holds; each is taken to be as fast as the observed ones.
        max_batch_size_up_to: places in memory for requests.
    """

    objectives: Objectives
    replicas_up_to: int = 1
    max_batch_size_up_to: int = MOST_PLACES

    def check(self) -> None:
        """Raise `GoalError` for a goal that says nothing or cannot be."""
        if not self.objectives:
            raise GoalError("Say what must hold, such as --objective p95=1.0, ttft=0.3 or tpot=0.05 (in seconds).")
        bounds = BOUNDS["max_batch_size"]
        if not bounds.low <= self.max_batch_size_up_to <= bounds.high:
            raise GoalError(f"max_batch_size_up_to: {bounds.rule}")
        if self.replicas_up_to < 1:
            raise GoalError("A service has at least one replica: give a larger --replicas-up-to.")


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """Settings, and what is predicted of them. The values are medians of the runs, their bands hold nine of ten.

    Attributes:
        runs: that were simulated; of settings that are clearly better or worse than what was searched, a few.
        kept: of the runs, those in which enough requests met the objectives.
        holds: whether nine of ten runs are kept and the queue does not grow; ``None`` where that was left open, since
            enough cheaper settings hold.
        saturated: nine of ten runs are kept, and the queue grows without bound in a long one.
        stretch: what the objectives have to be multiplied by for nine of ten runs to be kept: 1.05 misses by 5 %.
        time_s: what as many requests as have to be good take at most, of the first time that the objectives are about.
        share: of the requests that are good.
    """

    settings: Settings
    replicas: int
    runs: int
    kept: int
    holds: bool | None
    saturated: bool
    stretch: float
    time_s: Estimate
    goodput_per_s: Estimate
    share: Estimate

    @property
    def text(self) -> str:
        """
        >>> figure = Estimate(0.9, 0.8, 1.0)
        >>> Candidate(settings=Settings(max_batch_size=8, batch_wait_timeout_s=0), replicas=2, runs=20, kept=19,
        ...           holds=True, saturated=False, stretch=1.0, time_s=figure, goodput_per_s=figure, share=figure).text
        'late, max_batch_size 8, 2 replicas'
        """
        optional = ("batch_wait_timeout_s", "prefill_chunk_tokens")
        names = ("max_batch_size", *(name for name in optional if getattr(self.settings, name)))
        replicas = f", {self.replicas} replicas" if self.replicas > 1 else ""
        return f"{self.settings.formation}, {settings_text(self.settings, names)}{replicas}"


class GoalSearch(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a search.

    Attributes:
        rate_per_s: of the load that was simulated.
        users: of a closed loop, else 0.
        candidates: in order of their costs, the cheapest first; see the module.
        holding: places in `candidates` of the cheapest that hold, at most three.
        just_misses: the place of the one that comes nearest to holding of those that are cheaper than all that hold, or
            of all where none holds; ``None`` where there is none.
        frontier: places of the candidates that no other beats in both goodput and time, by time.
        least_places: places of the best candidate for each number of replicas and places in memory, as far as it gains
            something over fewer, from the fewest on.
    """

    goal: Goal
    rate_per_s: float
    users: int
    candidates: tuple[Candidate, ...]
    holding: tuple[int, ...]
    just_misses: int | None
    frontier: tuple[int, ...]
    least_places: tuple[int, ...]

    @property
    def cheapest(self) -> Candidate | None:
        """The cheapest that holds."""
        return self.candidates[self.holding[0]] if self.holding else None

    @property
    def nearest(self) -> Candidate | None:
        """The one that just misses."""
        return None if self.just_misses is None else self.candidates[self.just_misses]

    @property
    def limit_s(self) -> float:
        """What that time is to be at most."""
        value = getattr(self.goal.objectives, first_time(self.goal.objectives))
        assert isinstance(value, float), "a goal has objectives"
        return value

    @property
    def time(self) -> str:
        """The time that stands beside the goodput: "p95", "TTFT p95"."""
        return time_name(self.goal.objectives)

    @property
    def headline(self) -> str:
        """The cheapest that holds, or that none does and how far the best is; without a full stop."""
        load = f"with {self.users} users" if self.users else f"at {per_second(self.rate_per_s)}"
        goal = f"{self.goal.objectives.share_words} {load}"
        best, nearest = self.cheapest, self.nearest
        if best is not None:
            return f"Of {len(self.candidates)} settings the cheapest in which {goal} is {best.text}"
        assert nearest is not None, "a search has candidates"
        far = f"{self._far(nearest)}, {self.time} at most {format_figure(nearest.time_s.high, 's')} in nine of ten runs"
        return f"In none of {len(self.candidates)} settings {goal}; the nearest is {nearest.text}: {far}"

    @property
    def verdict(self) -> str:
        """The headline with the figures, and what just misses."""
        best, nearest = self.cheapest, self.nearest
        if best is None:
            assert nearest is not None, "a search has candidates"
            median, goodput = nearest.time_s.value, format_figure(nearest.goodput_per_s.value)
            return f"{self.headline}, {format_figure(median, 's')} in the median, goodput {goodput} requests/s."
        cheaper = ""
        if nearest is not None:
            missed = f"{nearest.text}: {self._far(nearest)}, {self._figures(nearest)}"
            cheaper = f" The nearest of the cheaper ones is {missed}."
        return f"{self.headline}: {self._figures(best)}.{cheaper}"

    def described(self, candidate: Candidate) -> str:
        """What is predicted of one of the candidates, in a sentence; the verdict for the cheapest."""
        if candidate == self.cheapest:
            return self.verdict
        kept = f"the objectives are kept in {candidate.kept} of {candidate.runs} simulated runs"
        return f"{candidate.text}: {kept}, {self._figures(candidate)}."

    def _far(self, candidate: Candidate) -> str:
        return "its queue grows" if candidate.saturated else f"it misses by {percent(candidate.stretch - 1)}"

    def _figures(self, candidate: Candidate) -> str:
        time_s, goodput = candidate.time_s, format_figure(candidate.goodput_per_s.value)
        most = f"at most {format_figure(time_s.high, 's')} in nine of ten runs"
        return f"{self.time} {format_figure(time_s.value, 's')}, {most}, goodput {goodput} requests/s"


class SearchProgress(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="searching"):
    """How far a search is: first `is_first`, a few runs of all settings, then all runs of the close ones.

    Attributes:
        done, total: settings.
        runs: that were simulated.
    """

    done: int
    total: int
    runs: int
    is_first: bool


OnProgress = Callable[[SearchProgress], None]


def search(
    predictor: Predictor, goal: Goal, choices: Iterable[Choice], on_progress: OnProgress = lambda _: None
) -> GoalSearch:
    """Search for the cheapest of the `choices` that hold the goal under the predictor's load."""
    goal.check()
    choices = sorted(choices, key=_places)
    load = predictor.load
    race = Race(trials_of(predictor, goal), choices, on_progress)
    race.try_all()
    race.find_holding(HOLDING)
    race.find_nearest()
    race.complete_shown()
    ranked = race.ranked
    place = {choice: number for number, choice in enumerate(ranked)}
    return GoalSearch(
        goal=goal,
        rate_per_s=load.rate_per_s,
        users=load.users,
        candidates=tuple(map(race.candidate, ranked)),
        holding=tuple([place[each] for each in race.holding[:HOLDING]]),
        just_misses=None if race.just_misses is None else place[race.just_misses],
        frontier=tuple([place[each] for each in race.frontier()]),
        least_places=tuple([place[each] for each in race.least_places()]),
    )


def trials_of(predictor: Predictor, goal: Goal) -> Trials:
    """Runs of a few hundred requests, of which the first tenth is not looked at."""
    rate_per_s = predictor.load.rate_per_s
    until_s = min(max(REQUESTS, SHORTEST_S * rate_per_s), MOST_REQUESTS) / rate_per_s
    return Trials(predictor, goal.objectives, until_s, WARM_UP * until_s)


def choices_of(predictor: Predictor, goal: Goal, base: Settings) -> Iterator[Choice]:
    """All settings within the goal's bounds that are worth a simulation, by replicas, `max_batch_size` and formation.

    In `continuous` a wait only keeps an idle engine idle, and parts of prompts are searched where some prompt is longer
    and the price of its tokens is known. A wait as long as the time allowed holds nothing. Nothing holds batches back
    (`allow_small_batch`, `stride_s`), and as many run at a time as ran when their costs were observed.

    Args:
        base: whose `max_queued_requests` and `max_batch_tokens` all have.
    """
    conditions, objectives = predictor.conditions, goal.objectives
    allowed_s = min(objectives.latency_s or WAITS_S[-1], objectives.ttft_s or WAITS_S[-1])
    waits_s = [each for each in WAITS_S if each < allowed_s]
    free = base.revised(
        {"allow_small_batch": True, "stride_s": 0.0, "max_concurrent_batches": conditions.places}
        | {"prefill_chunk_tokens": 0, "batch_wait_timeout_s": 0.0, "formation": "late"}
    )
    variants = [free.revised({"batch_wait_timeout_s": wait_s}) for wait_s in waits_s]
    variants += [each.revised({"formation": "early"}) for each in variants]
    if conditions.places == 1:
        variants += [
            free.revised({"formation": "continuous", "prefill_chunk_tokens": tokens}) for tokens in _chunks(predictor)
        ]
    replicas = range(1, goal.replicas_up_to + 1)
    for count, size, settings in product(replicas, _sizes(predictor, goal), variants):
        yield Choice(settings.revised({"max_batch_size": size}), count)


def _sizes(predictor: Predictor, goal: Goal) -> list[int]:
    """The sizes up to the bound, and to what Ray and the memory let run at a time."""
    conditions, requests = predictor.conditions, predictor.load.requests
    bounds = [goal.max_batch_size_up_to]
    if conditions.memory_tokens:
        bounds.append(
            int(conditions.memory_tokens / max(float((requests.tokens + requests.prompt_tokens).mean()), 1.0))
        )
    if conditions.max_ongoing_requests is not None:
        bounds.append(conditions.max_ongoing_requests - PLACES_FOR_REQUESTS)
    return [size for size in SIZES if size <= max(min(bounds), 1)]


def _chunks(predictor: Predictor) -> list[int]:
    """Values of `prefill_chunk_tokens`; 0, the device's usual one, among them."""
    cost, longest = predictor.cost, int(predictor.load.requests.prompt_tokens.max())
    error = float(cost.covariance[1, 1]) ** 0.5
    usual = Settings().chunk_tokens(predictor.conditions.device)
    known = 0 < error <= PRICE_KNOWN * cost.prompt_token_s
    return [0, *(each for each in CHUNKS if known and each < longest and each != usual)]


@dataclass
class Race:
    """The settings with the outcomes of their runs so far.

    Attributes:
        choices: the cheapest first.
    """

    trials: Trials
    choices: Sequence[Choice]
    on_progress: OnProgress = lambda _: None
    holding: list[Choice] = field(default_factory=list)
    just_misses: Choice | None = None
    _outcomes: dict[Choice, list[Outcome]] = field(default_factory=dict)
    _saturated: dict[Choice, bool] = field(default_factory=dict)

    def try_all(self) -> None:
        """A few runs of each, those with many places first: where no batch is full, that is known of fewer too."""
        for done, choice in enumerate(reversed(self.choices), start=1):
            self._run(choice, FIRST_RUNS)
            self._tell(done, len(self.choices), is_first=True)

    def find_holding(self, enough: int) -> None:
        """Decide the settings from the cheapest on, until `enough` of them hold."""
        done = 0
        for _, group in groupby(self.choices, _places):
            alike = list(group)
            self.holding += sorted(filter(self._is_holding, alike), key=self._cost)
            done += len(alike)
            self._tell(done, len(self.choices))
            if len(self.holding) >= enough:
                break

    def find_nearest(self) -> None:
        """Of what is cheaper than all that holds, or of all where nothing does, what just misses."""
        cheaper = [each for each in self.choices if not self.holding or _places(each) < _places(self.holding[0])]
        self.just_misses = self._nearest(cheaper)

    def complete_shown(self) -> None:
        """All runs of what the frontiers consist of."""
        while short := [each for each in (*self.frontier(), *self.least_places()) if not self._is_complete(each)]:
            for choice in short:
                self._complete(choice)
                self._tell(len(self.choices), len(self.choices))

    def holds(self, choice: Choice) -> bool | None:
        """Whether it holds; ``None`` as long as it is open."""
        failed = sum(not each.is_kept for each in self._outcomes[choice])
        if failed > MOST_FAILED:
            return False
        is_kept = len(self._outcomes[choice]) - failed >= RUNS - MOST_FAILED
        if is_kept and choice in self._saturated:
            return not self._saturated[choice]
        return None

    @property
    def ranked(self) -> list[Choice]:
        return sorted(self.choices, key=self._cost)

    def frontier(self) -> list[Choice]:
        """No other has at least its goodput in less time."""
        front: list[Choice] = []
        figures = {choice: self.candidate(choice) for choice in self.choices}
        highest = 0.0
        by_time = sorted(figures, key=lambda each: (figures[each].time_s.value, -figures[each].goodput_per_s.value))
        for choice in by_time:
            if figures[choice].goodput_per_s.value > highest:
                front.append(choice)
                highest = figures[choice].goodput_per_s.value
        return front

    def least_places(self) -> list[Choice]:
        """The one with the least stretch of each number of places, where it is less than that of all fewer ones."""
        found: list[Choice] = []
        for _, alike in groupby(self.choices, _places):
            best = min(alike, key=self._stretch)
            if not found or self._stretch(best) < self._stretch(found[-1]):
                found.append(best)
        return found

    def candidate(self, choice: Choice) -> Candidate:
        outcomes = self._outcomes[choice]
        return Candidate(
            settings=choice.settings,
            replicas=choice.replicas,
            runs=len(outcomes),
            kept=sum(each.is_kept for each in outcomes),
            holds=self.holds(choice),
            saturated=self._saturated.get(choice, False),
            stretch=self._stretch(choice),
            time_s=least([each.time_s for each in outcomes]),
            goodput_per_s=most([each.goodput_per_s for each in outcomes]),
            share=most([each.share for each in outcomes]),
        )

    def _is_holding(self, choice: Choice) -> bool:
        """Simulate it until that is decided, and completely if it holds."""
        for runs in range(FIRST_RUNS, RUNS + 1):
            self._run(choice, runs)
            if self.holds(choice) is False:
                return False
        self._complete(choice)
        return bool(self.holds(choice))

    def _complete(self, choice: Choice) -> None:
        """All runs, and whether the queue grows where these say that it holds."""
        self._run(choice, RUNS)
        if choice not in self._saturated and sum(each.is_kept for each in self._outcomes[choice]) >= RUNS - MOST_FAILED:
            self._saturated[choice] = self.trials.on(choice.replicas).is_saturated(choice.settings)

    def _nearest(self, missing: Sequence[Choice]) -> Choice | None:
        """The one with the least stretch, by all runs."""
        while missing:
            nearest = min(missing, key=lambda each: (self._saturated.get(each, False), self._stretch(each)))
            if self._is_complete(nearest):
                return nearest
            self._complete(nearest)
        return None

    def _run(self, choice: Choice, runs: int) -> None:
        outcomes = self._outcomes.setdefault(choice, [])
        outcomes += [self.trials.outcome(choice, number) for number in range(len(outcomes), runs)]

    def _is_complete(self, choice: Choice) -> bool:
        return len(self._outcomes[choice]) == RUNS

    def _stretch(self, choice: Choice) -> float:
        return least_of_share([each.stretch for each in self._outcomes[choice]], KEPT_SHARE)

    def _cost(self, choice: Choice) -> tuple[tuple[int, int], float, float]:
        time_s = least([each.time_s for each in self._outcomes[choice]]).value
        return _places(choice), time_s, choice.settings.batch_wait_timeout_s

    def _tell(self, done: int, total: int, *, is_first: bool = False) -> None:
        self.on_progress(SearchProgress(done=done, total=total, runs=self.trials.made, is_first=is_first))


def _places(choice: Choice) -> tuple[int, int]:
    return choice.replicas, choice.settings.max_batch_size
