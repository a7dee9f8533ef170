"""Rows and columns in one call."""

from __future__ import annotations

from typing import TypeAlias, TypeVar

from PySide6.QtWidgets import QBoxLayout, QFrame, QHBoxLayout, QLayout, QVBoxLayout, QWidget

from gui.look import tokens

Item: TypeAlias = QWidget | QLayout | int | None  # a widget, a layout, a gap in pixels, or a stretch
Margins: TypeAlias = tuple[int, int, int, int]
NO_MARGINS: Margins = (0, 0, 0, 0)
LayoutT = TypeVar("LayoutT", bound=QBoxLayout)


def row(*items: Item, gap: int = tokens.GAP_2, margins: Margins = NO_MARGINS) -> QHBoxLayout:
    return _filled(QHBoxLayout(), items, gap, margins)


def column(*items: Item, gap: int = tokens.GAP_2, margins: Margins = NO_MARGINS) -> QVBoxLayout:
    return _filled(QVBoxLayout(), items, gap, margins)


def hairline(vertical: bool = False) -> QFrame:
    made = QFrame()
    made.setObjectName("hairline")
    (made.setFixedWidth if vertical else made.setFixedHeight)(tokens.HAIRLINE)
    return made


def _filled(layout: LayoutT, items: tuple[Item, ...], gap: int, margins: Margins) -> LayoutT:
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
    return layout
