"""Rows, columns and the widgets that hold them, each in one call."""

from __future__ import annotations

from typing import TypeAlias, TypeVar

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QBoxLayout, QFrame, QHBoxLayout, QLayout, QScrollArea, QVBoxLayout, QWidget

from gui.look import tokens

Item: TypeAlias = QWidget | QLayout | int | None  # a widget, a layout, a gap in pixels, or a stretch
Margins: TypeAlias = tuple[int, int, int, int]
NO_MARGINS: Margins = (0, 0, 0, 0)
LayoutT = TypeVar("LayoutT", bound=QBoxLayout)


def row(
    *items: Item, gap: int = tokens.GAP_2, margins: Margins = NO_MARGINS, stretch: QWidget | QLayout | None = None
) -> QHBoxLayout:
    """A row of `items`; `stretch` names the one that takes the spare room."""
    return _filled(QHBoxLayout(), items, gap, margins, stretch)


def column(
    *items: Item, gap: int = tokens.GAP_2, margins: Margins = NO_MARGINS, stretch: QWidget | QLayout | None = None
) -> QVBoxLayout:
    """A column of `items`; `stretch` names the one that takes the spare room."""
    return _filled(QVBoxLayout(), items, gap, margins, stretch)


def box(layout: QLayout, height: int | None = None) -> QWidget:
    """A plain widget around `layout`, to be shown, hidden or scrolled as one."""
    made = QWidget()
    made.setLayout(layout)
    if height is not None:
        made.setFixedHeight(height)
    return made


def scrolled(body: QWidget) -> QScrollArea:
    """`body` in a frameless area that scrolls up and down only."""
    area = QScrollArea()
    area.setWidget(body)
    area.setWidgetResizable(True)
    area.setFrameShape(QFrame.Shape.NoFrame)
    area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
    area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    return area


def hairline(vertical: bool = False) -> QFrame:
    made = QFrame()
    made.setObjectName("hairline")
    (made.setFixedWidth if vertical else made.setFixedHeight)(tokens.HAIRLINE)
    return made


def _filled(
    layout: LayoutT, items: tuple[Item, ...], gap: int, margins: Margins, stretch: QWidget | QLayout | None
) -> LayoutT:
    layout.setSpacing(gap)
    layout.setContentsMargins(*margins)
    for item in items:
        if item is None:
            layout.addStretch(1)
        elif isinstance(item, int):
            layout.addSpacing(item)
        elif isinstance(item, QWidget):
            layout.addWidget(item)
        else:
            layout.addLayout(item)
    if stretch is not None:
        layout.setStretch(items.index(stretch), 1)
    return layout
