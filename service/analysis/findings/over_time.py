"""What was true when: the findings of a whole history, each with the spans in which it held."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from service.analysis.findings.finding import Finding
from service.analysis.findings.ranking import SEVERITIES, findings
from service.analysis.observed.history import History

EVERY_S: Final = 1.0
MOST_MOMENTS: Final = 900
LEAST_MOMENTS: Final = 3  # what holds at fewer in a row is passed over: it came with a change and went with it


@dataclass(frozen=True)
class HeldFinding:
    """
    Attributes:
        finding: as it was said in the middle of the longest span.
        spans_s: from when to when it held, on the service's clock, in order of time.
    """

    finding: Finding
    spans_s: tuple[tuple[float, float], ...]

    @property
    def held_s(self) -> float:
        return sum(end_s - begin_s for begin_s, end_s in self.spans_s)


def findings_over_time(history: History, begin_s: float, end_s: float) -> tuple[HeldFinding, ...]:
    """Those that held for some seconds, the most serious first, then those that held longest."""
    count = min(max(math.ceil((end_s - begin_s) / EVERY_S), 1), MOST_MOMENTS)
    moments_s = [begin_s + (end_s - begin_s) * (n + 1) / count for n in range(count)]
    said = [{finding.rule: finding for finding in findings(history, at_s)} for at_s in moments_s]
    least = min(LEAST_MOMENTS, count)
    rules = dict.fromkeys(rule for moment in said for rule in moment)
    held = [found for rule in rules if (found := _held(rule, said, moments_s, least)) is not None]
    return tuple(sorted(held, key=lambda found: (SEVERITIES.index(found.finding.severity), -found.held_s)))


def _held(rule: str, said: list[dict[str, Finding]], moments_s: list[float], least: int) -> HeldFinding | None:
    runs = [run for run in _runs(rule, said) if len(run) >= least]
    if not runs:
        return None
    longest = max(runs, key=len)
    spans_s = tuple((moments_s[run[0]], moments_s[run[-1]]) for run in runs)
    return HeldFinding(said[longest[len(longest) // 2]][rule], spans_s)


def _runs(rule: str, said: list[dict[str, Finding]]) -> Iterator[list[int]]:
    """Moments in a row at which the rule said something."""
    for holds, run in groupby(range(len(said)), key=lambda moment: rule in said[moment]):
        if holds:
            yield list(run)
