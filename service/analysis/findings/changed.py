"""What a change of settings still waits for, beside the findings: of the present, and no part of a recording's list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from service.analysis.findings.facts import Facts, Finding
from service.analysis.observed.annotations import as_one
from service.analysis.observed.descriptions import describe_change
from service.messages.settings import SettingsChange
from service.messages.text import about_time, counted, seconds

SHOWN_S: Final = 15.0  # after a change, and for as long as requests of the settings before are left


def with_change(facts: Facts, found: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings, and the last change of settings where it is recent, behind the warnings."""
    change = settings_changed(facts)
    warnings = tuple(finding for finding in found if finding.severity == "warning")
    return (*warnings, *([] if change is None else [change]), *found[len(warnings) :])


def settings_changed(facts: Facts) -> Finding | None:
    """The last change: what is left of the settings before, for about how long, and how to take it back."""
    changes = [change for change in facts.history.changes if change.in_force_s <= facts.at_s]
    if not changes or changes[-1].in_force_s < facts.history.service_begun_s(facts.at_s):
        return None
    change, age_s = as_one(changes), facts.at_s - changes[-1].in_force_s
    before = facts.history.batches.formed_before(change.version, facts.at_s)
    left, left_s = (0, None) if before is None else (before.requests, before.left_s)
    if not change.changed_fields or (not left and age_s > SHOWN_S):
        return None
    return Finding(
        "settings_changed",
        "check",
        f"v{change.version}: {describe_change(change.previous, change.settings)}",
        evidence=_evidence(facts, change, left, left_s),
        data={"version": change.version, "age_s": age_s, "left": left} | ({} if left_s is None else {"left_s": left_s}),
        change={field: getattr(change.previous, field) for field in change.changed_fields},
        undoes=change.version,
    )


def _evidence(facts: Facts, change: SettingsChange, left: int, left_s: float | None) -> str:
    """What is left of the settings before; and since when the change is in force, which is when a batch obeyed it."""
    requests = f"{counted(left, 'request')} of the settings before"
    about = "" if left_s is None else f", for about {about_time(left_s)}"
    is_obeyed = facts.regime.version >= change.version and facts.regime.start_s >= change.requested_s
    if not is_obeyed:
        return f"{requests} {'comes' if left == 1 else 'come'} first{about}." if left else "No batch has obeyed it yet."
    drains = f"{requests} still {'drains' if left == 1 else 'drain'}{about}"
    age_s = facts.at_s - facts.regime.start_s
    return f"In force for {seconds(age_s)}; {drains if left else 'no batch of the settings before is left'}."
