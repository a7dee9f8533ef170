"""Buttons that paint their own face: icon, words, and the shortcut as a hint."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

from PySide6.QtCore import QPoint, QPointF, QSize, Qt
from PySide6.QtGui import QFont, QFontMetrics, QIcon, QPainter, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QMenu, QPushButton, QSizePolicy, QStyle, QStyleOptionButton, QStylePainter, QWidget

from gui.look import tokens
from gui.look.theme import colour, current, font
from gui.widgets import icons
from gui.widgets.labels import draw_text, set_role

ButtonRole: TypeAlias = Literal["plain", "primary", "link", "icon", "quiet"]


class Button(QPushButton):
    """A push button with an icon before its words and, where there is room, its shortcut after them."""

    def __init__(
        self,
        text: str = "",
        icon: str | None = None,
        role: ButtonRole = "plain",
        hint: str = "",
        large: bool = False,
        *,
        tip: str = "",
        name: str = "",
    ) -> None:
        """`name` is what a screen reader says of a button without words."""
        super().__init__(text)
        self.setToolTip(tip)
        if name:
            self.setAccessibleName(name)
        self._icon = icon
        self._hint = hint
        self._shows_hint = bool(hint)
        if large:
            self.setProperty("tall", True)
        set_role(self, role)
        self.setSizePolicy(QSizePolicy.Policy.Minimum, QSizePolicy.Policy.Fixed)
        if role == "icon":
            self.setFixedSize(tokens.HEIGHT_CONTROL, tokens.HEIGHT_CONTROL)

    def set_icon(self, name: str | None) -> None:
        if name != self._icon:
            self._icon = name
            self.updateGeometry()
            self.update()

    def set_hint(self, hint: str) -> None:
        """Say this after the words."""
        if hint != self._hint:
            self._hint, self._shows_hint = hint, bool(hint)
            self.updateGeometry()
            self.update()

    def set_hint_shown(self, shown: bool) -> None:
        if shown != self._shows_hint:
            self._shows_hint = shown and bool(self._hint)
            self.updateGeometry()
            self.update()

    def sizeHint(self) -> QSize:
        if self.property("role") == "icon":
            return QSize(tokens.HEIGHT_CONTROL, tokens.HEIGHT_CONTROL)
        padding = 0 if self._is_bare() else 2 * (tokens.GAP_3 + tokens.HAIRLINE)
        return QSize(self._face_width() + padding, super().sizeHint().height())

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter = QStylePainter(self)
        option = QStyleOptionButton()
        self.initStyleOption(option)
        option.text = ""
        option.icon = QIcon()
        painter.drawControl(QStyle.ControlElement.CE_PushButton, option)
        self._paint_face(painter, self._face_colour())

    def _paint_face(self, painter: QPainter, ink: str) -> None:
        left = 0 if self._is_bare() and self.text() else (self.width() - self._face_width()) // 2
        if self._icon is not None:
            drawn = icons.pixmap(self._icon, ink, tokens.ICON, self.devicePixelRatioF())
            if drawn is not None:
                painter.drawPixmap(left, (self.height() - tokens.ICON) // 2, drawn)
            left += tokens.ICON + tokens.GAP_2
        draw_text(painter, self.rect().adjusted(left, 0, 0, 0), self.text(), self._face_font(), ink)
        if self._shows_hint:
            left += QFontMetrics(self._face_font()).horizontalAdvance(self.text()) + tokens.GAP_2
            hint_font = font(tokens.FONT_CAPTION, tokens.WEIGHT_MEDIUM)
            draw_text(painter, self.rect().adjusted(left, 0, 0, 0), self._hint, hint_font, ink)

    def _face_width(self) -> int:
        width = 0
        if self._icon is not None:
            width += tokens.ICON + (tokens.GAP_2 if self.text() else 0)
        width += QFontMetrics(self._face_font()).horizontalAdvance(self.text())
        if self._shows_hint:
            hint = QFontMetrics(font(tokens.FONT_CAPTION, tokens.WEIGHT_MEDIUM))
            width += tokens.GAP_2 + hint.horizontalAdvance(self._hint)
        return width

    def _face_font(self) -> QFont:
        return font(tokens.FONT_TEXT, tokens.WEIGHT_MEDIUM if self._is_bare() else tokens.WEIGHT_BOLD)

    def _is_bare(self) -> bool:
        return self.property("role") in ("link", "quiet", "icon")

    def _face_colour(self) -> str:
        palette = current()
        if not self.isEnabled():
            return palette.t3
        if self.property("role") == "primary":
            return palette.primary_text
        if self.property("role") in ("quiet", "icon") and not self.underMouse():
            return palette.t2
        return palette.t1


class Chooser(Button):
    """A button that shows what is chosen, with a remark beside it, and opens its menu."""

    def __init__(self, text: str = "", remark: str = "", large: bool = False, tip: str = "", name: str = "") -> None:
        super().__init__(text, large=large, tip=tip, name=name)
        self._remark = remark

    def show_choice(self, text: str, remark: str = "") -> None:
        self._remark = remark
        self.setText(text)
        self.setAccessibleDescription(f"{text} {remark}".rstrip())
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        inner = self._face_width() + self._remark_width() + tokens.GAP_3 + tokens.ICON_SMALL
        return QSize(inner + 2 * tokens.GAP_3, super().sizeHint().height())

    def _paint_face(self, painter: QPainter, ink: str) -> None:
        inner = self.rect().adjusted(tokens.GAP_3 - 2, 0, -tokens.GAP_3 - tokens.ICON_SMALL, 0)
        metrics = QFontMetrics(self._face_font())
        text = metrics.elidedText(self.text(), Qt.TextElideMode.ElideMiddle, inner.width())
        draw_text(painter, inner, text, self._face_font(), ink if self.isEnabled() else current().t2)
        after_text = inner.adjusted(metrics.horizontalAdvance(self.text()) + 6, 0, 0, 0)
        draw_text(painter, after_text, self._remark, font(), current().t3)
        if self.isEnabled():
            paint_caret(painter, self.width() - tokens.GAP_3 - tokens.ICON_SMALL / 2, self.height() / 2, current().t3)

    def _remark_width(self) -> int:
        return QFontMetrics(font()).horizontalAdvance(self._remark) + 6 if self._remark else 0

    def _face_font(self) -> QFont:
        return font(tokens.FONT_TEXT, tokens.WEIGHT_MEDIUM)


def paint_caret(painter: QPainter, x: float, y: float, ink: str, points_right: bool = False) -> None:
    """A small open arrow head, centred at (x, y)."""
    long, short = tokens.CARET / 2, tokens.CARET / 4
    corners = (
        [(-short, -long), (short, 0), (-short, long)] if points_right else [(-long, -short), (0, short), (long, -short)]
    )
    painter.save()
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(QPen(colour(ink), tokens.STROKE))
    painter.drawPolyline(QPolygonF([QPointF(x + dx, y + dy) for dx, dy in corners]))
    painter.restore()


def menu_of(parent: QWidget, entries: Iterable[tuple[str, object]]) -> QMenu:
    """A menu of texts, each with the data of its action."""
    menu = QMenu(parent)
    for text, data in entries:
        menu.addAction(text).setData(data)
    return menu


def pop_up(menu: QMenu, under: QWidget, gap: int = tokens.GAP_1) -> None:
    """Open `menu` below `under`."""
    menu.popup(under.mapToGlobal(QPoint(0, under.height() + gap)))
