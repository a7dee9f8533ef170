"""All findings of a moment, the most useful first, and the findings of a whole history."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import groupby
from typing import Final

from service.analysis.findings.facts import LEAST_BATCHES, Facts, Finding
from service.analysis.findings.rules import disturbed, formation, load, queueing, sizes, stalls, timeouts
from service.analysis.findings.verdict import LAST_RESORT
from service.analysis.observed.history import History
from service.analysis.observed.rolling import WINDOW_S
from service.analysis.predict import cost
from service.messages.text import counted, seconds

Rule = Callable[[Facts], Finding | None]

RULES: Final[tuple[Rule, ...]] = (  # within a severity, what hurts the users of the service most comes first
    queueing.replica_lost,
    disturbed.engine_slowed,
    formation.sealed_early,
    load.saturated,
    queueing.requests_shed,
    queueing.queue_grows,
    sizes.ongoing_capped,
    sizes.batch_of_one,
    sizes.memory_full,
    sizes.memory_limits,
    formation.held_back,
    sizes.batch_size_limits,
    formation.stragglers,
    queueing.replica_idle,
    queueing.requests_wait,
    stalls.stream_stalled,
    sizes.prompts_dominate,
    timeouts.timeout_too_long,
    timeouts.timeout_needless,
    load.generator_lags,
    sizes.memory_grows,
    formation.waits_for_batch,
    load.load_share,
    timeouts.timeout_waited,
    timeouts.timeout_without_effect,
    disturbed.little_reported,
)
SEVERITIES: Final = ("warning", "check", "info")
# What is true of a service that nobody uses.
WITHOUT_LOAD: Final = frozenset(("replica_lost", "memory_grows", "little_reported"))
# What an engine that is slowed does not make untrue; all else is withheld then.
UNDISTURBED: Final = WITHOUT_LOAD.union(
    ("engine_slowed", "requests_shed", "generator_lags", "memory_full", "memory_limits")
)
# Their advice is on no setting.
OF_NO_SETTING: Final = frozenset(("engine_slowed", "generator_lags", "replica_lost"))

# One cause is one warning: a finding suppresses others that are its weaker forms or its consequences, whose numbers
# its evidence has, and those that its cause makes meaningless.
SUPPRESSES: Final[Mapping[str, frozenset[str]]] = {
    # What is sealed too early is small, and the engine's capacity lies idle: all of the queue comes from it.
    "sealed_early": frozenset({"batch_of_one", "batch_size_limits", "load_share", "queue_grows", "saturated"}),
    # Ray lets no more in: batches wait for members that cannot come, and the queue stands outside.
    "ongoing_capped": frozenset({"batch_of_one", "timeout_too_long", "timeout_waited", "waits_for_batch"}),
    # More comes than full batches can do: batches are full, the queue grows, and its limit refuses the rest.
    "saturated": frozenset({"batch_of_one", "batch_size_limits", "load_share", "queue_grows", "requests_shed"}),
    # Requests wait for memory, and not for larger batches.
    "memory_limits": frozenset({"batch_of_one", "batch_size_limits", "timeout_too_long", "timeout_waited"}),
    # A batch of one is full where the cap is one.
    "batch_of_one": frozenset({"batch_size_limits"}),
    # Both say that a batch of several waits for its longest member; the first says at what cost.
    "stragglers": frozenset({"waits_for_batch"}),
    # A queue that grows shows that the capacity was thought too high.
    "queue_grows": frozenset({"batch_size_limits", "load_share"}),
    # Both advise on the same timeout.
    "timeout_too_long": frozenset({"timeout_waited"}),
    # A batch that is full waits for no timeout.
    "batch_size_limits": frozenset({"timeout_waited"}),
    # Both come from prompts that are long beside the answers.
    "stream_stalled": frozenset({"prompts_dominate"}),
    # The requests of a lost replica wait for that reason.
    "replica_lost": frozenset({"replica_idle", "queue_grows", "saturated"}),
}
EVERY_S: Final = 1.0
MOST_MOMENTS: Final = 900
LEAST_MOMENTS: Final = 3  # a finding of fewer moments in a row is passed over: it came and went with a change


def prepare() -> None:
    """Import what the first findings need, which takes about a second."""
    cost.prepare()
    import_module("scipy.stats")


def findings(history: History, at_s: float | None = None) -> tuple[Finding, ...]:
    """The findings at `at_s` (now), the most useful first."""
    facts = Facts.at(history, history.now_s() if at_s is None else at_s)
    return () if facts is None else findings_of(facts)


def findings_of(facts: Facts) -> tuple[Finding, ...]:
    """The findings from these facts, the most useful first."""
    found = [finding for rule in RULES if (finding := rule(facts)) is not None]
    suppressed = frozenset().union(*(SUPPRESSES.get(finding.rule, frozenset()) for finding in found))
    if any(finding.severity == "warning" and finding.rule != LAST_RESORT for finding in found):
        suppressed |= {LAST_RESORT}
    shown = [finding for finding in found if finding.rule not in suppressed]
    if facts.disturbance is not None:
        shown = [finding for finding in shown if finding.rule in UNDISTURBED]
    if facts.is_idle:
        shown = [finding for finding in shown if finding.rule in WITHOUT_LOAD]
    if facts.history.server:
        shown = [_of_another_server(finding, facts.history.fixed) for finding in shown]
    return tuple(sorted(shown, key=_rank))


def _of_another_server(finding: Finding, fixed: str) -> Finding:
    """The finding without advice on settings that only a service of ours has; `fixed` says where its own are."""
    if not finding.advice or finding.rule in OF_NO_SETTING:
        return finding
    return replace(finding, advice=fixed, control=None, change=None, expected="")


def nothing_found(facts: Facts, is_well: bool = True) -> str:
    """What stands where there is no finding: whether that says anything, and on what it rests."""
    count = len(facts.batches)
    if not count:
        return f"Nothing to judge: no batch in the last {WINDOW_S:.0f} s."
    if count < LEAST_BATCHES:
        return f"Too few to judge: {counted(count, 'batch')} of the {LEAST_BATCHES} it takes under these settings."
    requests, span_s = counted(len(facts.begun), "request"), seconds(facts.at_s - facts.since_s)
    begins = "All is well" if is_well else "No setting to change"
    return f"{begins}, judged by {counted(count, 'batch')} and {requests} that ran in the last {span_s}."


@dataclass(frozen=True)
class HeldFinding:
    """A finding and the spans in which it held.

    Attributes:
        finding: as it was in the middle of the longest span.
        spans_s: begin and end, on the service's clock, in order of time.
    """

    finding: Finding
    spans_s: tuple[tuple[float, float], ...]


def findings_over_time(history: History, begin_s: float, end_s: float) -> tuple[HeldFinding, ...]:
    """The findings that held for some seconds, the most useful first."""
    count = min(max(math.ceil((end_s - begin_s) / EVERY_S), 1), MOST_MOMENTS)
    moments_s = [begin_s + (end_s - begin_s) * (n + 1) / count for n in range(count)]
    found_at = [{finding.rule: finding for finding in findings(history, at_s)} for at_s in moments_s]
    least = min(LEAST_MOMENTS, count)
    rules = dict.fromkeys(rule for found in found_at for rule in found)
    held = [found for rule in rules if (found := _held(rule, found_at, moments_s, least)) is not None]
    return tuple(sorted(held, key=lambda found: _rank(found.finding)))


def _rank(finding: Finding) -> tuple[int, int]:
    return SEVERITIES.index(finding.severity), next((n for n, r in enumerate(RULES) if r.__name__ == finding.rule), 0)


def _held(rule: str, found_at: list[dict[str, Finding]], moments_s: list[float], least: int) -> HeldFinding | None:
    moments = groupby(range(len(found_at)), key=lambda moment: rule in found_at[moment])
    runs = [run for run in (list(group) for holds, group in moments if holds) if len(run) >= least]
    if not runs:
        return None
    longest = max(runs, key=len)
    spans_s = tuple((moments_s[run[0]], moments_s[run[-1]]) for run in runs)
    return HeldFinding(found_at[longest[len(longest) // 2]][rule], spans_s)
