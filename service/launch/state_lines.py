"""Writes states as JSON lines without ever blocking the one who has something to tell."""

from __future__ import annotations

import os
import queue
import threading
from typing import Final

import msgspec

from service.messages.life import ServiceState

CLOSE_LIMIT_S: Final = 1.0


class StateLines:
    """A thread writes: a reader that does not read must not keep the service from ending."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._states: queue.SimpleQueue[ServiceState | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write, daemon=True, name="state-lines")
        self._writer.start()

    def put(self, state: ServiceState) -> None:
        self._states.put(state)

    def close(self) -> None:
        """Have everything written, if the reader reads."""
        self._states.put(None)
        self._writer.join(CLOSE_LIMIT_S)

    def _write(self) -> None:
        while (state := self._states.get()) is not None:
            line = msgspec.json.encode(state) + b"\n"
            try:
                while line:
                    line = line[os.write(self._descriptor, line) :]
            except OSError:  # the reader has gone
                return
