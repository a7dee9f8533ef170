"""Whether a larger cap would answer more requests, as far as the batches that ran tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from service.analysis.findings.facts import Facts
from service.analysis.findings.words import per_second
from service.messages.settings import BOUNDS

WORTH_IT: Final = 1.05


@dataclass(frozen=True)
class LargerCap:
    """
    Attributes:
        helps: also where nothing is known of it.
        advice: the sentence.
    """

    helps: bool
    advice: str

    @property
    def control(self) -> str | None:
        return "max_batch_size" if self.helps else None


def larger_cap(facts: Facts) -> LargerCap:
    cap = facts.settings.max_batch_size
    larger = min(2 * cap, int(BOUNDS["max_batch_size"].high))
    now_per_s, then_per_s = facts.capacity_per_s(cap), facts.capacity_per_s(larger)
    if larger == cap or (now_per_s and then_per_s and then_per_s <= WORTH_IT * now_per_s):
        return LargerCap(False, "Send less, add replicas or take a smaller model: a larger batch would gain little.")
    if now_per_s is None or then_per_s is None:
        advice = "Raise max_batch_size and watch whether throughput grows; else send less or add replicas."
        return LargerCap(True, advice)
    return LargerCap(
        True,
        f"Raise max_batch_size: with {larger} the engine would answer {per_second(then_per_s)}, not {now_per_s:.1f}.",
    )
