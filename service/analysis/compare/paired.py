"""Whether B differs from A, and by how much: a paired comparison over a few rounds.

Both sides of a round are sent the same arrivals, prompts and lengths, so what a round has of its own (a burst of
arrivals, long prompts) is in both and leaves their ratio. Rounds are independent of each other, requests within one are
not (they queue behind one another), so the round is what is counted, never the request.

The interval is Student's t on the logarithms of the rounds' ratios: latencies and rates are positive and differ by
factors, which makes their logarithms nearly symmetric. For so few rounds this is the interval to take: bootstrap
intervals, BCa among them, are too narrow below some ten to thirty samples (Hesterberg, "What Teachers Should Know About
the Bootstrap", The American Statistician 69, 2015, section 4), and t is what is advised for a handful of repetitions
of a benchmark (Georges, Buytaert, Eeckhout, "Statistically Rigorous Java Performance Evaluation", OOPSLA 2007, section
3.2.2). How often it finds a difference where there is none is tested by simulation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from scipy.special import stdtrit

from service.analysis.compare.difference import Difference
from service.analysis.compare.run import FIGURES, FigureName, Run

CONFIDENCE: Final = 0.95


def paired_difference(figure: FigureName, a: Sequence[float], b: Sequence[float]) -> Difference:
    """Compare the rounds' figures of A with those of B, round by round; all are positive, and at least two.

    >>> same = paired_difference("p50_s", [1.0, 2.0, 3.0], [1.1, 1.9, 3.0])
    >>> same.is_real, same.low < 1 < same.high
    (False, True)
    """
    log_ratios = np.log(np.asarray(b, dtype=np.float64)) - np.log(np.asarray(a, dtype=np.float64))
    rounds = len(log_ratios)
    middle, spread = float(log_ratios.mean()), float(log_ratios.std(ddof=1))
    half = half_width(spread, rounds)
    return Difference(
        figure=figure,
        rounds=rounds,
        a=float(np.exp(np.log(a).mean())),
        b=float(np.exp(np.log(b).mean())),
        ratio=math.exp(middle),
        low=math.exp(middle - half),
        high=math.exp(middle + half),
        spread=spread,
    )


def differences(a: Sequence[Run], b: Sequence[Run]) -> tuple[Difference, ...]:
    """Every figure that all runs have; `a` and `b` are runs of the same rounds in the same order."""
    found = []
    for figure in FIGURES:
        if figure.name == "tokens_per_s" and all(run.tokens == run.answered for run in (*a, *b)):
            continue  # one each, as functions give: the same as the throughput
        of_a = [figure.of([run]) for run in a]
        of_b = [figure.of([run]) for run in b]
        known_a, known_b = ([value for value in values if value] for values in (of_a, of_b))
        if len(known_a) == len(a) and len(known_b) == len(b):
            found.append(paired_difference(figure.name, known_a, known_b))
    return tuple(found)


def half_width(spread: float, rounds: int) -> float:
    """Half the interval of the mean logarithm."""
    return float(stdtrit(rounds - 1, 0.5 + CONFIDENCE / 2)) * spread / math.sqrt(rounds)
