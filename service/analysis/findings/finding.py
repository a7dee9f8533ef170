"""A finding: a sentence, its evidence and what would change it; and how its numbers are written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Severity: TypeAlias = Literal["warning", "check", "info"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A sentence with its evidence.

    Attributes:
        rule: stable name of the rule that says it.
        severity: "warning" is to be changed, "check" is as it should be, "info" is good to know.
        evidence: a sentence with the numbers.
        data: the numbers, with their units in their names.
        advice: what to do, as a sentence; empty where nothing need be done.
        control: the setting that would change it, or ``None``.
    """

    rule: str
    severity: Severity
    title: str
    evidence: str
    data: Mapping[str, float] = field(default_factory=dict)
    advice: str = ""
    control: str | None = None
