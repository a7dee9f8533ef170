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


def seconds(duration_s: float) -> str:
    """As many digits as mean something.

    >>> seconds(0.0512), seconds(1.234), seconds(81.6)
    ('0.051 s', '1.2 s', '82 s')
    """
    if duration_s >= 10:
        return f"{duration_s:.0f} s"
    return f"{duration_s:.1f} s" if duration_s >= 1 else f"{duration_s:.3f} s".replace("0.000 s", "0 s")


def per_second(rate: float) -> str:
    """
    >>> per_second(4.04), per_second(123.4)
    ('4.0 requests/s', '123 requests/s')
    """
    return f"{rate:.1f} requests/s" if rate < 100 else f"{rate:.0f} requests/s"


def percent(share: float) -> str:
    """
    >>> percent(0.462)
    '46 %'
    """
    return f"{100 * share:.0f} %"


def counted(count: int, noun: str) -> str:
    """
    >>> counted(1, "request"), counted(3, "batch")
    ('1 request', '3 batches')
    """
    plural = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{count} {noun if count == 1 else plural}"
