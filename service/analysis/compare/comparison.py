"""The result of an A/B comparison: a document that holds its plan, its evidence and its verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from service.analysis.compare.inference import Difference, differences, sentence
from service.analysis.compare.run import FIGURE_BY_NAME, MeasuredRun, spoiling
from service.analysis.compare.run_plan import ComparePlan
from service.analysis.observed.descriptions import describe_settings_change, load_text


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
        settings = describe_settings_change(plan.a.settings, plan.b.settings)
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
