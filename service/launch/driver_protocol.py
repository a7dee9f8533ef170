"""The messages between supervisor and driver, and the writer of the states that both pass on."""

from __future__ import annotations

import queue
import threading
from typing import Final, TypeAlias

import msgspec

from service.messages.life import ServiceState
from service.messages.options import RunOptions
from service.messages.pipes import write_all


class DriverPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The start that the driver carries out, as JSON on its command line.

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
    """Processes that the service cannot do without and that nothing restarts: numbers by the names for the user."""

    pids: dict[str, int]


DriverMessage: TypeAlias = ServiceState | VitalProcesses


CLOSE_LIMIT_S: Final = 1.0


class StateLines:
    """Writes states as JSON lines in a thread: a reader that does not read cannot keep the service from ending."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._states: queue.SimpleQueue[ServiceState | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write, daemon=True, name="state-lines")
        self._writer.start()

    def put(self, state: ServiceState) -> None:
        self._states.put(state)

    def close(self) -> None:
        """Wait until everything is written, as long as the reader reads."""
        self._states.put(None)
        self._writer.join(CLOSE_LIMIT_S)

    def _write(self) -> None:
        while (state := self._states.get()) is not None:
            try:
                write_all(self._descriptor, msgspec.json.encode(state) + b"\n")
            except OSError:  # the reader has gone
                return
