"""All findings of a moment, the most useful first, without those that another makes needless."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from service.analysis.findings.facts import Facts
from service.analysis.findings.finding import Finding
from service.analysis.findings.rules import (
    batch_of_one,
    batch_size_limits,
    generator_lags,
    held_back,
    load_share,
    memory_full,
    memory_grows,
    ongoing_capped,
    queue_grows,
    replica_idle,
    requests_shed,
    saturated,
    sealed_early,
    stragglers,
    timeout_needless,
    timeout_too_long,
    timeout_waited,
    timeout_without_effect,
    waits_for_batch,
)
from service.analysis.observed.history import History

Rule = Callable[[Facts], Finding | None]

RULES: Final[tuple[Rule, ...]] = (
    sealed_early.find,
    ongoing_capped.find,
    generator_lags.find,
    held_back.find,
    batch_of_one.find,
    memory_full.find,
    saturated.find,
    batch_size_limits.find,
    requests_shed.find,
    queue_grows.find,
    stragglers.find,
    replica_idle.find,
    timeout_too_long.find,
    timeout_needless.find,
    memory_grows.find,
    waits_for_batch.find,
    load_share.find,
    timeout_waited.find,
    timeout_without_effect.find,
)
SEVERITIES: Final = ("warning", "check", "info")

# Where the first is said, the others say the same less well, or what its cause makes meaningless.
SETTLES: Final[Mapping[str, frozenset[str]]] = {
    "sealed_early": frozenset({"batch_of_one", "load_share"}),
    "ongoing_capped": frozenset({"batch_of_one", "timeout_too_long", "timeout_waited"}),
    "batch_of_one": frozenset({"batch_size_limits"}),
    "stragglers": frozenset({"waits_for_batch"}),
    "queue_grows": frozenset({"load_share"}),
    "timeout_too_long": frozenset({"timeout_waited"}),
    "batch_size_limits": frozenset({"timeout_waited"}),
}


def findings(history: History, at_s: float | None = None) -> tuple[Finding, ...]:
    """What holds at `at_s` (now), the most useful first."""
    facts = Facts.at(history, history.now_s() if at_s is None else at_s)
    return () if facts is None else findings_of(facts)


def findings_of(facts: Facts) -> tuple[Finding, ...]:
    """What these facts say, the most useful first."""
    found = [finding for rule in RULES if (finding := rule(facts)) is not None]
    settled = frozenset().union(*(SETTLES.get(finding.rule, frozenset()) for finding in found))
    said = [finding for finding in found if finding.rule not in settled]
    return tuple(sorted(said, key=lambda finding: SEVERITIES.index(finding.severity)))
