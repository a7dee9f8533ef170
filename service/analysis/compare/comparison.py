"""The result of an A/B comparison: whether B differs from A, by how much, and the evidence over a few rounds.

Both sides of a round are sent the same arrivals, prompts and lengths, so what a round has of its own (a burst of
arrivals, long prompts) is in both and leaves their ratio. Rounds are independent of each other, requests within one are
not (they queue behind one another), so the round is what is counted, never the request.

The interval is Student's t on the logarithms of the rounds' ratios: latencies and rates are positive and differ by
factors, which makes their logarithms nearly symmetric. For so few rounds this is the interval to take: bootstrap
intervals, BCa among them, are too narrow below some ten to thirty samples (Hesterberg, "What Teachers Should Know About
the Bootstrap", The American Statistician 69, 2015, section 4), and t is advised for a handful of repetitions
of a benchmark (Georges, Buytaert, Eeckhout, "Statistically Rigorous Java Performance Evaluation", OOPSLA 2007, section
3.2.2). A test measures by simulation how often it finds a difference where there is none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Literal

import msgspec
import numpy as np
from scipy.special import stdtrit

from service.analysis.compare.run import FIGURE_BY_NAME, FIGURES, FigureName, MeasuredRun, spoiling
from service.analysis.compare.run_plan import ComparePlan
from service.analysis.observed.descriptions import describe_change, load_text
from service.messages.text import percent

FOLD: Final = 1.8  # from here on a factor reads better than a percentage
CONFIDENCE: Final = 0.95
MOST_ROUNDS: Final = 400
MORE: Final = 4  # times as many rounds halve the interval, or better


class ServiceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The service that was measured."""

    url: str
    model: str = ""
    device: str = ""
    dtype: str = ""
    replicas: int = 0

    @property
    def text(self) -> str:
        """
        >>> ServiceFacts(url="http://h:1", model="m", device="cpu", dtype="bfloat16", replicas=2).text
        'm, cpu, bfloat16, 2 replicas'
        """
        count = f"{self.replicas} replicas" if self.replicas > 1 else ""
        return ", ".join(each for each in (self.model, self.device, self.dtype, count) if each)


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of one figure over the rounds.

    Attributes:
        a, b: the geometric means over the rounds, so that `ratio` is b / a.
        low, high: of the ratio, at 95 % confidence.
        spread: standard deviation of the logarithm of the ratio from round to round.
    """

    figure: FigureName
    rounds: int
    a: float
    b: float
    ratio: float
    low: float
    high: float
    spread: float

    @property
    def is_real(self) -> bool:
        """Whether the interval leaves out "the same"."""
        return not self.low <= 1.0 <= self.high

    @property
    def _is_fold(self) -> bool:
        return self.ratio >= FOLD or self.ratio <= 1 / FOLD

    @property
    def text(self) -> str:
        """B relative to A: "4.1 times A's", "3 % lower than A's"."""
        if self._is_fold:
            return f"{_digits(self.ratio)} times A's"
        return f"{percent(abs(self.ratio - 1))} {'higher' if self.ratio >= 1 else 'lower'} than A's"

    @property
    def short_text(self) -> str:
        """The same for a table: "× 4.1", "−3 %"."""
        return f"× {_digits(self.ratio)}" if self._is_fold else _signed(self.ratio - 1)

    @property
    def interval_text(self) -> str:
        """The confidence interval: "3.6 to 4.7", "−8 % to +15 %"."""
        if self._is_fold:
            return f"{_digits(self.low)} to {_digits(self.high)}"
        return f"{_signed(self.low - 1)} to {_signed(self.high - 1)}"


class Comparison(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="comparison"):
    """The result of `compare`.

    Attributes:
        measured_at: Unix time of the end.
        a, b: the rounds' runs, in the same order.
        differences: of every figure; only that of `plan.figure` is a verdict.
        warnings: sentences on what distorts the result.
    """

    version: Literal[1] = 1
    service: ServiceFacts
    measured_at: float
    plan: ComparePlan
    a: tuple[MeasuredRun, ...]
    b: tuple[MeasuredRun, ...]
    differences: tuple[Difference, ...]
    verdict: str
    warnings: tuple[str, ...]

    @property
    def title(self) -> str:
        """The settings and loads in which A and B differ."""
        plan = self.plan
        settings = describe_change(plan.a.settings, plan.b.settings)
        loads = [load_text(side.load) for side in (plan.a, plan.b)]
        load = "" if plan.a.load == plan.b.load else " → ".join(loads)
        return ", ".join(each for each in (settings, load) if each) or "the same twice"

    @property
    def caveats(self) -> tuple[str, ...]:
        """The warnings, and a sentence on missing rounds."""
        rounds = len(self.a)
        stopped = (f"It was stopped after {rounds} of {self.plan.rounds} rounds.",)
        return (stopped if rounds < self.plan.rounds else ()) + self.warnings

    @property
    def decisive(self) -> Difference | None:
        """The difference that the verdict is about."""
        return next((each for each in self.differences if each.figure == self.plan.figure), None)


def concluded(
    service: ServiceFacts, measured_at: float, plan: ComparePlan, a: Sequence[MeasuredRun], b: Sequence[MeasuredRun]
) -> Comparison:
    """The comparison of these rounds: as many runs of `a` as of `b`, and at least two."""
    assert len(a) == len(b) >= 2, "a comparison has a run of each side in every round"
    found = differences(a, b)
    decisive = next((each for each in found if each.figure == plan.figure), None)
    missing = f"The {FIGURE_BY_NAME[plan.figure].title} is unknown: a run has no answered request."
    return Comparison(
        service=service,
        measured_at=measured_at,
        plan=plan,
        a=tuple(a),
        b=tuple(b),
        differences=found,
        verdict=missing if decisive is None else sentence(decisive),
        warnings=tuple(f"{name}: {text}" for name, runs in (("A", a), ("B", b)) for text in spoiling(runs)),
    )


def _digits(ratio: float) -> str:
    decimals = 3 if ratio < 0.1 else 2 if ratio < 10 else 1 if ratio < 100 else 0
    return f"{ratio:.{decimals}f}"


def _signed(share: float) -> str:
    return f"{'−' if share < 0 else '+'}{percent(abs(share))}"


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


def differences(a: Sequence[MeasuredRun], b: Sequence[MeasuredRun]) -> tuple[Difference, ...]:
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


def sentence(found: Difference) -> str:
    """The verdict on one figure and its certainty.

    >>> sentence(paired_difference("p95_s", [1.0, 1.1, 0.9], [4.0, 4.3, 3.8]))
    "B's p95 is 4.04 times A's (95 % CI 3.66 to 4.46, 3 rounds): a real difference."
    """
    title = FIGURE_BY_NAME[found.figure].title
    verdict = f"B's {title} is {found.text} (95 % CI {found.interval_text}, {found.rounds} rounds)"
    if found.is_real:
        return f"{verdict}: a real difference."
    return f"No difference is certain: {verdict}. {_outlook(found)}"


def _outlook(found: Difference) -> str:
    """The smallest difference that these rounds would have shown, and what more rounds would show."""
    shown = f"These rounds would have shown one of {percent(_least_shown(found, found.rounds))} or more"
    more = MORE * found.rounds
    distance = abs(math.log(found.ratio))
    tried = range(found.rounds + 1, min(more + 1, MOST_ROUNDS))
    needed = next((rounds for rounds in tried if half_width(found.spread, rounds) < distance), None)
    if needed is not None:
        return f"{shown}; about {needed} rounds would show whether this one is real."
    return f"{shown}; {more} rounds would show one of {percent(_least_shown(found, more))}."


def _least_shown(found: Difference, rounds: int) -> float:
    return math.expm1(half_width(found.spread, rounds))
