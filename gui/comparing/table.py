"""A small table of texts: names left, values right."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QGridLayout, QLabel, QWidget

from gui.look import tokens
from gui.widgets.labels import Role, label, set_role


class TextTable(QWidget):
    """A fixed set of columns, of which the first names the rows."""

    def __init__(self, header: Sequence[str], name: str) -> None:
        super().__init__()
        self.setAccessibleName(name)
        self._columns = len(header)
        self._cells: list[list[QLabel]] = []
        self._grid = QGridLayout()
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setHorizontalSpacing(tokens.GAP_3)
        self._grid.setVerticalSpacing(tokens.GAP_1)
        self._grid.setColumnStretch(0, 1)
        for place, title in enumerate(header):
            self._put(0, place, title, "caption")
        self.setLayout(self._grid)

    def show_rows(self, rows: Sequence[Sequence[str]], strong: Collection[int] = ()) -> None:
        """Show these rows; those with their index in `strong` are bold."""
        while len(self._cells) < len(rows):
            self._cells.append([self._put(len(self._cells) + 1, n, "", "text") for n in range(self._columns)])
        for number, cells in enumerate(self._cells):
            texts = rows[number] if number < len(rows) else ()
            role: Role = "strong" if number in strong else "dim"
            for cell, text in zip(cells, texts, strict=False):
                cell.setText(text)
                set_role(cell, role)
            for cell in cells:
                cell.setVisible(bool(texts))

    def texts(self) -> list[list[str]]:
        """The text of each visible cell, row by row."""
        return [[cell.text() for cell in cells] for cells in self._cells if not cells[0].isHidden()]

    def _put(self, row: int, column: int, text: str, role: Role) -> QLabel:
        cell = label(text, role)
        side = Qt.AlignmentFlag.AlignLeft if column == 0 else Qt.AlignmentFlag.AlignRight
        self._grid.addWidget(cell, row, column, side | Qt.AlignmentFlag.AlignVCenter)
        return cell
