"""Limits how often a control that is dragged asks for something."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer

from gui.look import tokens


class Throttle(QTimer):
    """Calls `send` at most once every `tokens.SETTINGS_INTERVAL_MS` while a control moves, and when it is let go."""

    def __init__(self, send: Callable[[], None], parent: QObject) -> None:
        super().__init__(parent, singleShot=True, interval=tokens.SETTINGS_INTERVAL_MS)
        self._send = send
        self.timeout.connect(send)

    def ask(self, is_final: bool) -> None:
        """Call `send` soon, or now if the control `is_final`."""
        if is_final:
            self.stop()
            self._send()
        elif not self.isActive():
            self.start()
