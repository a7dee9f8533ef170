"""The load generator as a child process: commands in, results out."""

from __future__ import annotations

from typing import Final

import msgspec
from PySide6.QtCore import QObject, Signal

from gui.session.processes.child import ChildOwner, Ending
from service.messages.load import LoadCommand, LoadEvent, LoadFrame, LoadRefused
from service.messages.options import Attachment
from service.messages.pipes import our_python

GRACE_MS: Final = 3_000
GENERATOR: Final = our_python("service", "load", "--control")


class LoadProcess(ChildOwner):
    """Owner of the load generator's process."""

    frame_received = Signal(object)  # a `LoadFrame`
    refused = Signal(str)  # a sentence that says why a command was refused
    died = Signal(str)  # a sentence about an unexpected end
    stopped = Signal()  # it ended as asked

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(LoadEvent, GRACE_MS, parent)
        self._at: Attachment | None = None
        self._next: Attachment | None = None
        self._for_next: list[LoadCommand] = []

    def start(self, at: Attachment) -> None:
        """Run a generator that asks the service there; one that runs for another service is ended first."""
        if not self._child.is_running:
            self._at, self._next = at, None
            self._child.start([*GENERATOR, *at.address])
            held, self._for_next = self._for_next, []
            for command in held:
                self.send(command)
        elif at != self._at or self._next is not None:
            self._next = at
            self._child.end(by_end_of_file=True)

    def send(self, command: LoadCommand) -> None:
        """Send a command; it starts a generator that died, and waits for one that is being replaced."""
        if self._next is not None:
            self._for_next.append(command)
            return
        if not self._child.is_running:
            if self._at is None:
                self.refused.emit("There is no service to ask: start it first.")
                return
            self.start(self._at)
        self._child.write_line(msgspec.json.encode(command))

    def stop(self) -> None:
        """Cancel all requests and end the process, without waiting; `stopped` follows."""
        self._for_next.clear()
        self._at = self._next = None
        if self._child.is_running:
            self._child.end(by_end_of_file=True)
        else:
            self.stopped.emit()

    def kill(self) -> None:
        self._at = self._next = None
        self._child.kill()

    def _take(self, event: LoadEvent) -> None:
        match event:
            case LoadFrame():
                self.frame_received.emit(event)
            case LoadRefused():
                self.refused.emit(event.reason)

    def _on_child_ended(self, ending: Ending) -> None:
        follower = self._next
        if follower is not None:
            self.start(follower)
        elif ending.asked:
            self.stopped.emit()
        else:
            self.died.emit(ending.sentence("The load generator"))
