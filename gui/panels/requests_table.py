"""The rows of the requests, and how one is painted: its state by shape, prompt over completion, seconds over tokens."""

from __future__ import annotations

from typing import Final

from PySide6.QtCore import QEvent, QModelIndex, QPersistentModelIndex, QPointF, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QEnterEvent, QFontMetrics, QKeyEvent, QPainter, QResizeEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QFrame,
    QHeaderView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QTableView,
    QWidget,
)

from gui.look import tokens
from gui.look.theme import colour, current, font
from gui.look.tokens import Palette
from gui.panels.requests_model import ROW_ROLE, RequestsModel, TableRow
from gui.widgets.glyphs import Shape, paint_glyph
from service.messages.telemetry import RequestState

_SHAPES: Final[dict[RequestState, tuple[Shape, str]]] = {
    "waiting": ("circle", "waiting"),
    "formed": ("circle", "formed"),
    "running": ("arc", "t1"),
    "done": ("check", "t3"),
    "failed": ("cross", "error"),
    "refused": ("cross", "error"),
    "cancelled": ("dash", "t3"),
}
_LEFT: Final = int(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
_RIGHT: Final = int(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
_CURSOR: Final = " ▍"


class RequestsTable(QTableView):
    """A table with rows of one height; visible rows stay in place when newer requests are inserted above."""

    cancel_key_pressed = Signal()
    newer_above = Signal(int)  # how many came in above while the rows were held

    def __init__(self, model: RequestsModel) -> None:
        super().__init__()
        self._has_pointer = False
        self._newer = 0
        self._delegate = RequestDelegate(model)
        self.setModel(model)
        self.setItemDelegate(self._delegate)
        self.setAccessibleName("Requests")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setShowGrid(False)
        self.setMouseTracking(True)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.setTabKeyNavigation(False)
        self.setProperty("focus_radius", 0)
        across, down = self.horizontalHeader(), self.verticalHeader()
        across.hide()
        across.setSectionResizeMode(QHeaderView.ResizeMode.Stretch)
        down.hide()
        down.setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        down.setMinimumSectionSize(tokens.HEIGHT_ROW)
        down.setDefaultSectionSize(tokens.HEIGHT_ROW)
        model.rowsInserted.connect(self._on_rows_inserted)
        model.rowsRemoved.connect(self._on_rows_removed)
        model.modelReset.connect(self._forget_newer)
        self.verticalScrollBar().valueChanged.connect(self._on_scrolled)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Delete, Qt.Key.Key_Backspace):
            self.cancel_key_pressed.emit()
        else:
            super().keyPressEvent(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Keep the selected row in sight."""
        super().resizeEvent(event)
        chosen = self.selectionModel().selectedRows()
        if len(chosen) == 1:
            self.scrollTo(chosen[0])

    def enterEvent(self, event: QEnterEvent) -> None:
        super().enterEvent(event)
        self._has_pointer = True

    def leaveEvent(self, event: QEvent) -> None:
        super().leaveEvent(event)
        self._has_pointer = False

    def _on_rows_inserted(self, _parent: QModelIndex, first: int, last: int) -> None:
        bar = self.verticalScrollBar()
        is_above = first * tokens.HEIGHT_ROW <= bar.value()
        if is_above and (bar.value() > 0 or self._has_pointer):
            self.updateGeometries()  # the bar's range first, or the value would be cut
            self._newer += last - first + 1
            bar.setValue(bar.value() + (last - first + 1) * tokens.HEIGHT_ROW)
            self.newer_above.emit(self._newer)

    def _on_rows_removed(self, _parent: QModelIndex, first: int, last: int) -> None:
        """Those that came in above may go again: a recording is played from an earlier place."""
        gone = min(last + 1, self._newer) - first
        if gone > 0:
            self._newer -= gone
            self.newer_above.emit(self._newer)
            bar = self.verticalScrollBar()
            bar.setValue(bar.value() - gone * tokens.HEIGHT_ROW)

    def _on_scrolled(self, value: int) -> None:
        if value == 0:
            self._forget_newer()

    def _forget_newer(self) -> None:
        if self._newer:
            self._newer = 0
            self.newer_above.emit(0)


class RequestDelegate(QStyledItemDelegate):
    """Paints rows without a widget for each: 256 requests may stream at once."""

    def __init__(self, model: RequestsModel) -> None:
        super().__init__()
        self._model = model

    def sizeHint(self, _option: QStyleOptionViewItem, _index: QModelIndex | QPersistentModelIndex) -> QSize:
        return QSize(tokens.WIDTH_SIDE_MIN, tokens.HEIGHT_ROW)

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        row: TableRow = index.data(ROW_ROLE)
        palette = current()
        rect: QRect = option.rect
        state: QStyle.StateFlag = option.state
        is_raised = bool(state & (QStyle.StateFlag.State_Selected | QStyle.StateFlag.State_MouseOver))
        if is_raised:
            painter.fillRect(rect, colour(palette.hover))
        self._paint_glyph(painter, row, rect)
        left = rect.left() + tokens.REQUEST_TEXT_X
        # The right edge is the panel's, not the viewport's: it must not move when a scroll bar comes.
        table: QWidget = option.widget
        words = QRect(left, rect.top(), table.width() - tokens.PANEL_PADDING - left, rect.height())
        self._paint_upper(painter, row, words, palette)
        self._paint_lower(painter, row, words, palette, is_raised)

    def _paint_glyph(self, painter: QPainter, row: TableRow, rect: QRect) -> None:
        shape, ink = _SHAPES[row.state]
        share = row.tokens / row.max_tokens if row.max_tokens else 0.0
        x = rect.left() + tokens.PANEL_PADDING + tokens.GLYPH / 2
        paint_glyph(painter, shape, QPointF(x, rect.top() + tokens.REQUEST_UPPER_Y), ink, share)

    def _paint_upper(self, painter: QPainter, row: TableRow, words: QRect, palette: Palette) -> None:
        upper = QRect(words.left(), words.top() + tokens.REQUEST_UPPER_Y - 8, words.width(), 16)
        seconds = f"{row.seconds(self._model.now_s):.2f}"
        painter.setPen(colour(palette.t1 if row.is_live or row.is_error else palette.t2))
        _paint_pair(painter, upper, row.prompt, seconds, tokens.FONT_TEXT, tokens.WEIGHT_MEDIUM)

    def _paint_lower(self, painter: QPainter, row: TableRow, words: QRect, palette: Palette, is_raised: bool) -> None:
        lower = QRect(words.left(), words.top() + tokens.REQUEST_LOWER_Y - 8, words.width(), 16)
        text = row.second_line(self._model.now_s)
        if row.state == "running" and not row.is_late:
            text += _CURSOR
        quiet = palette.t2 if is_raised or row.state == "running" else palette.t3
        painter.setPen(colour(palette.error if row.is_error else quiet))
        _paint_pair(painter, lower, text, row.token_count, tokens.FONT_CAPTION, tokens.WEIGHT_REGULAR, quiet)


def _paint_pair(
    painter: QPainter, place: QRect, left: str, right: str, size: int, weight: int, right_ink: str | None = None
) -> None:
    """Paint `right` whole, and `left` shortened to the rest of the width."""
    face = font(size, weight)
    metrics = QFontMetrics(face)
    painter.setFont(face)
    taken = metrics.horizontalAdvance(right) + tokens.GAP_3 if right else 0
    painter.drawText(place, _LEFT, metrics.elidedText(left, Qt.TextElideMode.ElideRight, place.width() - taken))
    if right:
        if right_ink is not None:
            painter.setPen(colour(right_ink))
        painter.drawText(QRectF(place), _RIGHT, right)
