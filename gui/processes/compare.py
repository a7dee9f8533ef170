"""Comparing and sweeping as a child process: a plan in, how it goes on out."""

from __future__ import annotations

import sys
from typing import Final, Literal, TypeAlias

import msgspec
from PySide6.QtCore import QObject, Signal

from gui.processes.child import ChildProcess, Ending, decoded
from service.compare.plan import ComparePlan
from service.compare.progress import CompareEvent, SweepTask

GRACE_MS: Final = 10_000  # to break off what is under way, and to give the service its settings back
SERVICE: Final = (sys.executable, "-m", "service")
STOPPED: Final = 130
REFUSED: Final = 2
Kind: TypeAlias = Literal["compare", "sweep"]


class CompareProcess(QObject):
    """Owner of the process that measures; one at a time.

    Signals:
        told: a `CompareEvent`.
        ended: it has ended: a sentence where that was neither asked for nor told before, else empty.
        logged: a line of its log.
    """

    told = Signal(object)
    ended = Signal(str)
    logged = Signal(str)

    def __init__(self, program: tuple[str, ...] = SERVICE, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._program = program
        self._encoder = msgspec.json.Encoder()
        self._decoder: msgspec.json.Decoder[CompareEvent] = msgspec.json.Decoder(CompareEvent)
        self._child = ChildProcess(GRACE_MS, self)
        self._child.line_received.connect(self._on_child_line)
        self._child.logged.connect(self.logged)
        self._child.ended.connect(self._on_child_ended)

    @property
    def is_running(self) -> bool:
        return self._child.is_running

    @property
    def pid(self) -> int | None:
        return self._child.pid

    def start(self, url: str, task: ComparePlan | SweepTask) -> None:
        """Carry out `task` on the service at `url`."""
        kind: Kind = "compare" if isinstance(task, ComparePlan) else "sweep"
        program, *arguments = self._program
        self._child.start(program, [*arguments, kind, "--control", "--url", url])
        self._child.write_line(self._encoder.encode(task))

    def stop(self) -> None:
        """Ask it to break off; `ended` follows."""
        self._child.end(by_end_of_file=True)

    def kill(self) -> None:
        """End it at once."""
        self._child.kill()

    def _on_child_line(self, line: bytes) -> None:
        event = decoded(line, self._decoder, self.logged)
        if event is not None:
            self.told.emit(event)

    def _on_child_ended(self, ending: Ending) -> None:
        is_expected = ending.asked or ending.exit_code in (0, REFUSED, STOPPED)
        self.ended.emit("" if is_expected else ending.sentence("The measuring process"))
