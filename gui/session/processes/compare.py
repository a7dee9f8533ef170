"""Comparing and sweeping as a child process: a plan in, how it goes on out."""

from __future__ import annotations

import sys
from typing import Final, Literal, TypeAlias

import msgspec
from PySide6.QtCore import QObject, Signal

from gui.session.processes.child import Ending
from gui.session.processes.owner import ChildOwner
from service.analysis.compare.plan import ComparePlan
from service.analysis.compare.progress import CompareEvent, SweepTask
from service.messages.pipes import ExitCode

GRACE_MS: Final = 10_000  # to break off what is under way, and to give the service its settings back
SERVICE: Final = (sys.executable, "-m", "service")
Kind: TypeAlias = Literal["compare", "sweep"]


class CompareProcess(ChildOwner):
    """Owner of the process that measures; one at a time.

    Signals:
        told: a `CompareEvent`.
        ended: it has ended: a sentence where that was neither asked for nor told before, else empty.
    """

    told = Signal(object)
    ended = Signal(str)

    def __init__(self, program: tuple[str, ...] = SERVICE, parent: QObject | None = None) -> None:
        super().__init__(CompareEvent, GRACE_MS, parent)
        self._program = program
        self._encoder = msgspec.json.Encoder()

    def start(self, url: str, task: ComparePlan | SweepTask) -> None:
        """Carry out `task` on the service at `url`."""
        kind: Kind = "compare" if isinstance(task, ComparePlan) else "sweep"
        self._child.start([*self._program, kind, "--control", "--url", url])
        self._child.write_line(self._encoder.encode(task))

    def stop(self) -> None:
        """Ask it to break off; `ended` follows."""
        self._child.end(by_end_of_file=True)

    def kill(self) -> None:
        """End it at once."""
        self._child.kill()

    def _take(self, event: CompareEvent) -> None:
        self.told.emit(event)

    def _on_child_ended(self, ending: Ending) -> None:
        is_expected = ending.asked or ending.exit_code in (ExitCode.DONE, ExitCode.CANNOT, ExitCode.INTERRUPTED)
        self.ended.emit("" if is_expected else ending.sentence("The measuring process"))
