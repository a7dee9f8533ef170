"""Paints one request: its state by shape, the prompt over the completion, the seconds over the tokens."""

from __future__ import annotations

from typing import Final

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QPointF, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QFontMetrics, QPainter
from PySide6.QtWidgets import QStyle, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from gui.look import tokens
from gui.look.theme import colour, current, font
from gui.look.tokens import Palette
from gui.panels.requests_model import ROW_ROLE, RequestRow, RequestsModel
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
        row: RequestRow = index.data(ROW_ROLE)
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

    def _paint_glyph(self, painter: QPainter, row: RequestRow, rect: QRect) -> None:
        shape, ink = _SHAPES[row.state]
        share = row.tokens / row.max_tokens if row.max_tokens else 0.0
        x = rect.left() + tokens.PANEL_PADDING + tokens.GLYPH / 2
        paint_glyph(painter, shape, QPointF(x, rect.top() + tokens.REQUEST_UPPER_Y), ink, share)

    def _paint_upper(self, painter: QPainter, row: RequestRow, words: QRect, palette: Palette) -> None:
        upper = QRect(words.left(), words.top() + tokens.REQUEST_UPPER_Y - 8, words.width(), 16)
        seconds = f"{row.seconds(self._model.now_s):.2f}"
        painter.setPen(colour(palette.t1 if row.is_live or row.filter == "failed" else palette.t2))
        _paint_pair(painter, upper, row.prompt, seconds, tokens.FONT_TEXT, tokens.WEIGHT_MEDIUM)

    def _paint_lower(self, painter: QPainter, row: RequestRow, words: QRect, palette: Palette, is_raised: bool) -> None:
        lower = QRect(words.left(), words.top() + tokens.REQUEST_LOWER_Y - 8, words.width(), 16)
        text = row.second_line(self._model.now_s)
        if row.state == "running":
            text += _CURSOR
        quiet = palette.t2 if is_raised or row.state == "running" else palette.t3
        painter.setPen(colour(palette.error if row.filter == "failed" else quiet))
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
