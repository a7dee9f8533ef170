"""What the window and its `compare` and `sweep` say to each other: a line of JSON in, a line an event out."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from service.analysis.compare.comparison import Comparison
from service.analysis.compare.plan import SweepPlan
from service.analysis.compare.sweep import Sweep


class SweepTask(msgspec.Struct, frozen=True, kw_only=True):
    """What `sweep` is to do; `before` is what an interrupted sweep of the same plan has measured."""

    plan: SweepPlan
    before: Sweep | None = None


class Progress(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="progress"):
    """How far it is.

    Attributes:
        done, total: runs.
        doing: what goes on now, "round 2 of 4: B, waiting until the service is idle".
        left_s: until all is done, as far as can be told.
    """

    done: int
    total: int
    doing: str
    left_s: float


class Compared(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="compared"):
    """What the rounds so far say; the last one stands."""

    comparison: Comparison


class Swept(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="swept"):
    """What has been measured so far; the last one stands."""

    sweep: Sweep


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="refused"):
    """It cannot be done, or could not be done to the end; `reason` is a sentence for the user."""

    reason: str


CompareEvent: TypeAlias = Progress | Compared | Swept | Refused
