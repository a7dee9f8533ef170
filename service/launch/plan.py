"""What the supervisor and the driver tell each other, beside the states that the driver tells everybody."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from service.messages.life import ServiceState
from service.messages.options import RunOptions


class DriverPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver is started with, as JSON on its command line.

    Attributes:
        instance: the number drawn at this start.
        directory: ours alone, for temporary files; removed at the end.
        started_s: when the supervisor started, on the monotonic clock.
    """

    options: RunOptions
    instance: str
    directory: str
    started_s: float


class VitalProcesses(msgspec.Struct, frozen=True, tag_field="state", tag="vital"):
    """Processes without which nothing goes on and which nobody restarts: their names for the user and their numbers."""

    pids: dict[str, int]


DriverMessage: TypeAlias = ServiceState | VitalProcesses
