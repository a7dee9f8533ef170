"""A section of a side panel: its title left, a remark right."""

from __future__ import annotations

from PySide6.QtWidgets import QHBoxLayout, QLabel, QWidget

from gui.look import tokens
from gui.widgets.labels import label
from gui.widgets.layouts import Margins, row

SECTION_MARGINS: Margins = (tokens.PANEL_PADDING, tokens.SECTION_TOP, tokens.PANEL_PADDING, tokens.SECTION_GAP)


def section_head(title: str | QLabel, remark: QWidget | None = None) -> QHBoxLayout:
    words = label(title, "title") if isinstance(title, str) else title
    words.setFixedHeight(tokens.HEIGHT_SECTION_HEAD)
    return row(words, None, *(() if remark is None else (remark,)))
