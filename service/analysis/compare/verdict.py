"""What the rounds of a comparison say, as a sentence, and what must be known to read it rightly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from service.analysis.compare.comparison import Comparison, ServiceFacts
from service.analysis.compare.difference import Difference, percent
from service.analysis.compare.paired import differences, half_width
from service.analysis.compare.plan import ComparePlan
from service.analysis.compare.run import FIGURE_BY_NAME, Run, spoiling

MOST_ROUNDS: Final = 400
MORE: Final = 4  # times as many rounds halve the interval, or better


def sentence(found: Difference) -> str:
    """What can be said, and how sure that is.

    >>> from service.analysis.compare.paired import paired_difference
    >>> sentence(paired_difference("p95_s", [1.0, 1.1, 0.9], [4.0, 4.3, 3.8]))
    "B's p95 is 4.04 times A's (95 % CI 3.66 to 4.46, 3 rounds): a real difference."
    """
    title = FIGURE_BY_NAME[found.figure].title
    says = f"B's {title} is {found.text} (95 % CI {found.interval_text}, {found.rounds} rounds)"
    if found.is_real:
        return f"{says}: a real difference."
    return f"No difference can be told: {says}. {_outlook(found)}"


def _outlook(found: Difference) -> str:
    """What these rounds would have told, and what more of them would."""
    told = f"These rounds would have told one of {percent(_least_told(found, found.rounds))} or more"
    more = MORE * found.rounds
    needed = _rounds_needed(found)
    if needed is not None and needed <= more:
        return f"{told}; about {needed} rounds would tell whether this one is real."
    return f"{told}; {more} rounds would tell one of {percent(_least_told(found, more))}."


def _least_told(found: Difference, rounds: int) -> float:
    return math.expm1(half_width(found.spread, rounds))


def _rounds_needed(found: Difference) -> int | None:
    distance = abs(math.log(found.ratio))
    return next((n for n in range(found.rounds + 1, MOST_ROUNDS) if half_width(found.spread, n) < distance), None)


def concluded(
    service: ServiceFacts, measured_at: float, plan: ComparePlan, a: Sequence[Run], b: Sequence[Run]
) -> Comparison:
    """What these rounds say; there are as many of `a` as of `b`, and at least two."""
    found = differences(a, b)
    decisive = next((each for each in found if each.figure == plan.figure), None)
    missing = f"Nothing can be told of the {FIGURE_BY_NAME[plan.figure].title}: a run has no answered request."
    return Comparison(
        service=service,
        measured_at=measured_at,
        plan=plan,
        a=tuple(a),
        b=tuple(b),
        differences=found,
        verdict=missing if decisive is None else sentence(decisive),
        warnings=_warnings(a, b),
    )


def _warnings(a: Sequence[Run], b: Sequence[Run]) -> tuple[str, ...]:
    sentences: list[str] = []
    for name, runs in (("A", a), ("B", b)):
        sentences.extend(f"{name}: {sentence}" for sentence in spoiling(runs))
    return tuple(sentences)
