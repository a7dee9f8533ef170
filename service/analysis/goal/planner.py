"""How many replicas a rate needs, from what one was observed to take: by a formula, and by simulation.

The formula divides the rate by what a replica carries in full batches, whose inverse is the time of a request in them.
Of waiting it knows nothing: a service just so busy has a queue that grows without bound. The simulation counts the
waiting, and chooses settings for each number. Both take every replica to be as fast as the observed ones, which holds
where each has cores or a GPU of its own.

More replicas never hold less, so the least number is found by steps that double, and then by halving. Of many replicas
a group is simulated with its share of the requests, which evens their chance out less than all of them do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import msgspec

from service.analysis.goal.search import Candidate, Goal, GoalSearch, Race, choices_of, trials_of
from service.analysis.goal.trials import Choice
from service.analysis.predict.predict import Predictor
from service.messages.settings import Settings
from service.messages.text import counted, per_second, percent

MOST_REPLICAS: Final = 1_000
GROUP: Final = 8
FIRST_STEP: Final = 0.25  # of the least number that may hold
SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class ReplicaPlan(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="planned"):
    """How many replicas a rate needs.

    Attributes:
        rate_per_s: of all requests.
        tried: of each number of replicas that was simulated the cheapest settings that hold, or else the nearest, by
            the number. The last entry is that of `MOST_REPLICAS`.
        needed: of the least number of replicas that holds; ``None`` where even `MOST_REPLICAS` do not.
        carried_per_s: what one replica carries in full batches under the settings of `needed`, or of the last `tried`.
        by_formula: how many replicas carry the rate at that.
    """

    rate_per_s: float
    tried: tuple[Candidate, ...]
    needed: Candidate | None
    carried_per_s: float
    by_formula: int

    def busy(self, replicas: int) -> float:
        """The rate, as a share of what `replicas` carry in full batches."""
        return self.rate_per_s / (replicas * self.carried_per_s)

    @property
    def sentence(self) -> str:
        """The formula and the simulation side by side."""
        if self.needed is None:
            return f"More replicas do not help: {counted(MOST_REPLICAS, 'replica')} do not keep it either."
        settings, number = self.needed.settings, self.needed.replicas
        carries = f"One replica carries {per_second(self.carried_per_s)} in batches of {settings.max_batch_size}"
        busy = percent(self.busy(number))
        carry = "carries" if self.by_formula == 1 else "carry"
        enough = f"{counted(self.by_formula, 'replica')} {carry} {per_second(self.rate_per_s)} by the formula"
        return (
            f"{carries}, so {enough}; "
            f"simulated, it takes {number}, {busy} busy: {self.needed.text}. Each needs cores or a GPU of its own."
        )


def plan_of(predictor: Predictor, found: GoalSearch, base: Settings) -> ReplicaPlan | None:
    """How many replicas the rate needs where none of what was `found` holds; ``None`` where some does, and for users.

    Users wait for their answers, so a service that is too slow for them has a lower rate instead of a longer queue.

    Args:
        base: as for `choices_of`.
    """
    if found.holding or predictor.load.users:
        return None
    tried: dict[int, Candidate] = {}

    def holds(replicas: int) -> bool:
        tried[replicas] = _best_on(replicas, predictor, found.goal, base)
        return bool(tried[replicas].holds)

    rate = predictor.load.rate_per_s
    sizes = {each.settings.max_batch_size for each in found.candidates}
    carried = max(predictor.cost.capacity(size).requests_per_s for size in sizes)
    least = max(math.ceil(rate / carried), found.goal.replicas_up_to + 1)
    number = _least(holds, least) if least <= MOST_REPLICAS and holds(MOST_REPLICAS) else None
    needed = None if number is None else tried[number]
    if needed is not None:
        carried = predictor.cost.capacity(needed.settings.max_batch_size).requests_per_s
    return ReplicaPlan(
        rate_per_s=rate,
        tried=tuple([tried[each] for each in sorted(tried)]),
        needed=needed,
        carried_per_s=carried,
        by_formula=math.ceil(rate / carried),
    )


def _least(holds: Callable[[int], bool], first: int) -> int:
    """The least number from `first` on that holds, of which `MOST_REPLICAS` is known to hold.

    >>> [_least(lambda number: number >= least, 3) for least in (1, 3, 4, 17, 1000)]
    [3, 3, 4, 17, 1000]
    """
    low, high, step = first - 1, first, math.ceil(FIRST_STEP * first)
    while high < MOST_REPLICAS and not holds(high):
        low, high, step = high, min(high + step, MOST_REPLICAS), 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _best_on(replicas: int, predictor: Predictor, goal: Goal, base: Settings) -> Candidate:
    """The cheapest settings that hold on `replicas`, or else the nearest."""
    group = min(replicas, GROUP)
    if group < replicas:
        load = predictor.load.of_rate(predictor.load.rate_per_s * group / replicas)
        predictor = replace(predictor, load=load)
    choices = [Choice(each, group) for each in _worth_trying(predictor, goal, base)]
    race = Race(trials_of(predictor, goal), choices)
    race.find_holding(1)
    if not race.holding:
        race.find_nearest()
    best = race.holding[0] if race.holding else race.just_misses
    assert best is not None, "some settings are tried"
    return msgspec.structs.replace(race.candidate(best), replicas=replicas)


def _worth_trying(predictor: Predictor, goal: Goal, base: Settings) -> list[Settings]:
    """Some of what a search tries, the fewest places first: a wait or an odd size hardly decides about a replica."""
    alone = [each.settings for each in choices_of(predictor, msgspec.structs.replace(goal, replicas_up_to=1), base)]
    some = [each for each in alone if each.max_batch_size in SIZES and not each.batch_wait_timeout_s]
    return sorted(some, key=lambda each: each.max_batch_size)
