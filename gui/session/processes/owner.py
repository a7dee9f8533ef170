"""What the owners of a child process have in common: whether it runs, and messages of one kind that it tells."""

from __future__ import annotations

from typing import Any

import msgspec
from PySide6.QtCore import QObject, Signal

from gui.session.processes.child import ChildProcess, Ending

MOST_SHOWN_BYTES = 500


class ChildOwner(QObject):
    """Decodes the lines of its child; subclasses say what the messages and the end mean.

    Signals:
        logged: a line of the child's log, or one of its output that is no message.
    """

    logged = Signal(str)

    def __init__(self, message: Any, grace_ms: int, parent: QObject | None = None) -> None:
        """`message`: the type, or union of types, that the child tells, a JSON line each."""
        super().__init__(parent)
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(message)
        self._child = ChildProcess(grace_ms, self)
        self._child.line_received.connect(self._on_child_line)
        self._child.logged.connect(self.logged)
        self._child.ended.connect(self._on_child_ended)

    @property
    def is_running(self) -> bool:
        return self._child.is_running

    @property
    def pid(self) -> int | None:
        return self._child.pid

    # Not an ABC: its metaclass and Qt's exclude each other.

    def _take(self, message: Any) -> None:
        """The child has told this."""
        raise NotImplementedError

    def _on_child_ended(self, ending: Ending) -> None:
        raise NotImplementedError

    def _on_child_line(self, line: bytes) -> None:
        try:
            message = self._decoder.decode(line)
        except msgspec.MsgspecError as error:
            self.logged.emit(f"{line[:MOST_SHOWN_BYTES].decode('utf-8', 'replace')}  (not understood: {error})")
            return
        self._take(message)
