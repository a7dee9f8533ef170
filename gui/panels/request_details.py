"""Details of a request: its stages, its waits, its batch and the other members, and its text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from PySide6.QtCore import QModelIndex, Qt, Signal
from PySide6.QtWidgets import QLabel, QWidget

from gui.look import tokens
from gui.panels.requests_model import ROW_ROLE, RequestsModel, TableRow
from gui.panels.requests_table import RequestsTable
from gui.plots.stage_strip import StageStrip
from gui.widgets.buttons import Button
from gui.widgets.labels import ElidedLabel, Role, label
from gui.widgets.layouts import box, column, hairline, row, scrolled
from service.analysis.observed.stages import Stage
from service.messages.settings import ReleaseReason

MOST_MATES_SHOWN: Final = 3


class RequestDetails(QWidget):
    """Shows one request."""

    mate_chosen = Signal(str)  # the id of another request of the batch, which the user picked

    def __init__(self) -> None:
        super().__init__()
        self._mate_ids: list[str] = []
        self._state = ElidedLabel("", "caption")
        self.close_button = Button(icon="ph.x", role="icon", name="Close the request", tip="Back to the table (Esc)")
        self.strip = StageStrip()
        self._waited, self._paced = label("", "text", wrap=True), label("", "text", wrap=True)
        self._batch_title, self._batch_remark = label("", "name"), ElidedLabel("", "caption")
        self._model = RequestsModel()
        self.mates = RequestsTable(self._model)
        self.mates.setAccessibleName("In the same batch")
        self._prompt = _selectable("name")
        self._completion, self._error = _selectable("text"), _selectable("error")
        padding = tokens.PANEL_PADDING
        margins = (padding, 0, tokens.GAP_2, 0)
        head = row(label("Request", "title"), self._state, None, self.close_button, margins=margins)
        batch_head = row(self._batch_title, None, self._batch_remark, margins=(padding, 0, padding, 0))
        self._batch = box(column(batch_head, self.mates, gap=tokens.GAP_1))
        words = (self.strip, self._waited, self._paced, self._error, self._prompt, self._completion)
        upper = column(*words, gap=tokens.GAP_2, margins=(padding, 0, padding, 0))
        body = box(column(upper, self._batch, None, gap=tokens.GAP_3, margins=(0, 0, 0, padding)))
        scroll = scrolled(body)
        self.setLayout(column(hairline(), box(head, height=tokens.HEIGHT_PANEL_HEADER), scroll, gap=0, stretch=scroll))
        self.mates.clicked.connect(self._on_mate_picked)
        self.mates.activated.connect(self._on_mate_picked)

    def show_request(
        self, request: TableRow, stages: Sequence[Stage], spans_s: Sequence[float], reason: ReleaseReason | None
    ) -> None:
        """Show the request, with the seconds of its stages."""
        self._state.setText(request.state)
        self.strip.show_stages(stages, spans_s, reason)
        _set(self._prompt, request.prompt)
        _set(self._completion, request.text.strip())
        _set(self._error, request.error or "")

    def show_times(self, waited: str, paced: str) -> None:
        """Show in sentences what it waited for, and at what pace it was answered."""
        _set(self._waited, waited)
        _set(self._paced, paced)

    def show_batch(self, title: str, remark: str, mates: Sequence[TableRow], now_s: float) -> None:
        """Show the batch and its other members; the title is empty before there is a batch."""
        self._batch.setVisible(bool(title))
        self._batch_title.setText(title)
        self._batch_remark.setText(remark)
        if [mate.id for mate in mates] != self._mate_ids:
            self._mate_ids = [mate.id for mate in mates]
            self._model.clear()
        self._model.update(reversed(mates), now_s)  # the table shows the last of them on top
        self._model.tick(now_s)
        self.mates.setVisible(bool(mates))
        self.mates.setFixedHeight(min(len(mates), MOST_MATES_SHOWN) * tokens.HEIGHT_ROW)

    def _on_mate_picked(self, index: QModelIndex) -> None:
        self.mate_chosen.emit(index.data(ROW_ROLE).id)


def _selectable(role: Role) -> QLabel:
    made = label("", role, wrap=True)
    made.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    return made


def _set(words: QLabel, text: str) -> None:
    if words.text() != text:
        words.setText(text)
    words.setVisible(bool(text))
