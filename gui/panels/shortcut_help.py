"""A list of the window's shortcuts."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDialog, QGridLayout, QWidget

from gui.look import tokens
from gui.panels.shortcuts import ALL
from gui.widgets.labels import label


class ShortcutHelp(QDialog):
    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle("Keyboard shortcuts")
        grid = QGridLayout(self)
        grid.setContentsMargins(tokens.NOTICE_PADDING, tokens.GAP_4, tokens.NOTICE_PADDING, tokens.GAP_4)
        grid.setHorizontalSpacing(tokens.NOTICE_PADDING)
        grid.setVerticalSpacing(tokens.GAP_2)
        for line, shortcut in enumerate(ALL):
            keys = label(shortcut.native, "name")
            grid.addWidget(keys, line, 0, Qt.AlignmentFlag.AlignRight)
            grid.addWidget(label(shortcut.does, "text"), line, 1)
