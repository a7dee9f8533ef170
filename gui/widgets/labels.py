"""Labels in the roles of the look, and one that shortens its text."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from PySide6.QtCore import QRect, QSize, Qt
from PySide6.QtGui import QFont, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QLabel, QSizePolicy, QWidget

from gui.look.theme import colour

LEFT: Final = Qt.AlignmentFlag.AlignLeft
Role: TypeAlias = Literal["title", "heading", "name", "strong", "text", "dim", "caption", "error", "chip", "status"]


def label(text: str = "", role: Role = "text", wrap: bool = False) -> QLabel:
    made = QLabel(text)
    set_role(made, role)
    made.setTextFormat(Qt.TextFormat.PlainText)
    made.setWordWrap(wrap)
    return made


def draw_text(
    painter: QPainter, place: QRect, text: str, used: QFont, ink: str, align: Qt.AlignmentFlag = LEFT
) -> None:
    """A line of text in the middle of the height of `place`."""
    painter.setFont(used)
    painter.setPen(colour(ink))
    painter.drawText(place, int(Qt.AlignmentFlag.AlignVCenter | align), text)


def set_role(widget: QWidget, role: str) -> None:
    """Give `widget` a role of the style sheet; at once, if it already wears another."""
    if widget.property("role") == role:
        return
    widget.setProperty("role", role)
    repolish(widget)


def repolish(widget: QWidget) -> None:
    """Let the style sheet see a changed property."""
    style = widget.style()
    style.unpolish(widget)
    style.polish(widget)
    widget.update()


class ElidedLabel(QLabel):
    """One line that ends in an ellipsis where room lacks; the whole text is its tooltip then."""

    def __init__(
        self, text: str = "", role: Role = "text", mode: Qt.TextElideMode = Qt.TextElideMode.ElideRight
    ) -> None:
        super().__init__()
        self._mode = mode
        self._tip = ""
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        set_role(self, role)
        self.setText(text)

    def setText(self, text: str) -> None:
        if text == self.text():
            return
        super().setText(text)
        self.updateGeometry()
        self._offer_whole_text()

    def set_tip(self, tip: str) -> None:
        """What the tooltip says besides."""
        if tip != self._tip:
            self._tip = tip
            self._offer_whole_text()

    @property
    def shown_text(self) -> str:
        """What is painted: the whole text where the width of its size hint is there, which is rounded to pixels."""
        if not self._is_cut:
            return self.text()
        return self.fontMetrics().elidedText(self.text(), self._mode, self.contentsRect().width())

    @property
    def _is_cut(self) -> bool:
        return self.fontMetrics().horizontalAdvance(self.text()) > self.contentsRect().width()

    def minimumSizeHint(self) -> QSize:
        return QSize(0, super().minimumSizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._offer_whole_text()

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setPen(self.palette().color(self.foregroundRole()))
        painter.drawText(self.contentsRect(), int(self.alignment()), self.shown_text)

    def _offer_whole_text(self) -> None:
        self.setToolTip("\n".join(filter(None, (self.text() if self._is_cut else "", self._tip))))
