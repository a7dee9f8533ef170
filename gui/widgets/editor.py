"""A plain text editor with air between its lines."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QTextBlockFormat, QTextCursor
from PySide6.QtWidgets import QTextEdit, QWidget

from gui.look import tokens


class Editor(QTextEdit):
    """A line a paragraph, none wrapped; Tab goes on to the next control."""

    def __init__(self, name: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName(name)
        self.setAcceptRichText(False)
        self.setTabChangesFocus(True)
        self.setLineWrapMode(QTextEdit.LineWrapMode.NoWrap)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.document().setDocumentMargin(tokens.GAP_1)

    def set_text(self, text: str) -> None:
        """Silently."""
        blocked = self.blockSignals(True)
        self.setPlainText(text)
        self._space_lines()
        self.document().clearUndoRedoStacks()
        self.blockSignals(blocked)

    def _space_lines(self) -> None:
        spaced = QTextBlockFormat()
        spaced.setLineHeight(tokens.LINE_EDITOR, QTextBlockFormat.LineHeightTypes.FixedHeight.value)
        cursor = QTextCursor(self.document())
        cursor.select(QTextCursor.SelectionType.Document)
        cursor.mergeBlockFormat(spaced)
