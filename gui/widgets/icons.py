"""Phosphor icons as pixmaps; nothing is imported until `load()`, so that the first frame need not wait for them."""

from __future__ import annotations

from functools import lru_cache
from types import ModuleType

from PySide6.QtCore import QSize
from PySide6.QtGui import QPainter, QPaintEvent, QPixmap
from PySide6.QtWidgets import QApplication, QWidget

from gui.look import tokens
from gui.look.theme import current

_qtawesome: ModuleType | None = None


def load() -> None:
    """Import the icon font (about 0.2 s) and repaint what has been waiting for it."""
    global _qtawesome
    if _qtawesome is not None:
        return
    import qtawesome

    _qtawesome = qtawesome
    for widget in QApplication.allWidgets():
        widget.update()


def pixmap(name: str, colour: str, size: int = tokens.ICON, ratio: float = 1.0) -> QPixmap | None:
    """The icon `name` ("ph.play-fill") in `colour`, or ``None`` as long as icons are not loaded."""
    return None if _qtawesome is None else _drawn(name, colour, size, ratio)


@lru_cache(maxsize=256)
def _drawn(name: str, colour: str, size: int, ratio: float) -> QPixmap:
    assert _qtawesome is not None
    icon = _qtawesome.icon(name, color=colour)
    drawn = icon.pixmap(QSize(size, size), ratio)
    assert isinstance(drawn, QPixmap)
    return drawn


class Icon(QWidget):
    def __init__(self, name: str = "", ink: str = "t2") -> None:
        super().__init__()
        self._name = name
        self._ink = ink
        self.setFixedSize(tokens.ICON, tokens.ICON)

    def show_icon(self, name: str, ink: str = "t2") -> None:
        if (name, ink) != (self._name, self._ink):
            self._name, self._ink = name, ink
            self.update()

    def paintEvent(self, _event: QPaintEvent) -> None:
        if not self._name:
            return
        drawn = pixmap(self._name, getattr(current(), self._ink), tokens.ICON, self.devicePixelRatioF())
        if drawn is not None:
            QPainter(self).drawPixmap(0, 0, drawn)
