"""The surface of a plot: pyqtgraph's view with pixels as its coordinates, so that what is drawn lands on whole ones."""

from __future__ import annotations

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QEvent, QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QMouseEvent, QPen, QResizeEvent, QWheelEvent
from PySide6.QtWidgets import QGraphicsItem, QGraphicsRectItem, QGraphicsScene, QGraphicsView, QSizePolicy

from gui.look.theme import current
from gui.look.tokens import CLICK_SLACK, PLOT_MIN_HEIGHT
from gui.plots.ghost import GhostItem
from gui.plots.guess import GuessItem
from gui.plots.layout import Axes, Layout
from gui.plots.marks import Marks
from gui.plots.overlay import MarkLines, OutageTint, PointerItem, StretchLines
from service.analysis.observed.columns import Floats


class Canvas(pg.GraphicsView):
    """Holds the axes, the data (clipped, one clip a pane), the marks and the pointer, from back to front."""

    pointed = Signal(object)  # QPointF, or None when the pointer left
    dragged = Signal(float)  # pixels to the right since the last time
    wheeled = Signal(QPointF, object, object)  # where, QPoint of the angle, modifiers
    guess_dragged = Signal(float)  # to this height
    clicked = Signal(QPointF)  # pressed and released without being dragged
    double_clicked = Signal()
    resized = Signal()

    def __init__(self, panes: int, with_words: bool) -> None:
        super().__init__(background=current().plot)
        self.setViewportUpdateMode(QGraphicsView.ViewportUpdateMode.FullViewportUpdate)
        self.sceneObj.setItemIndexMethod(QGraphicsScene.ItemIndexMethod.NoIndex)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setMinimumSize(0, PLOT_MIN_HEIGHT)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Expanding)
        self._dragged_from: QPointF | None = None
        self._pressed_at: QPointF | None = None
        self._drags_guess = False
        self.axes = Axes()
        self.tint = OutageTint()
        self.stretch_lines = StretchLines()
        self.mark_lines = MarkLines(with_words)
        self.ghost = GhostItem()
        self.guess = GuessItem()
        self.pointer = PointerItem()
        self._overlays = (self.tint, self.stretch_lines, self.mark_lines, self.ghost, self.guess, self.pointer)
        for item in (self.axes, *self._overlays):
            self.addItem(item)
        self.clips = [self._clip() for _ in range(panes)]

    def add_data(self, item: QGraphicsItem, pane: int = 0) -> None:
        item.setParentItem(self.clips[pane])

    def set_layout(self, layout: Layout, marks: Marks) -> None:
        self.axes.set_layout(layout)
        for clip, pane in zip(self.clips, layout.panes, strict=True):
            rect = QRectF(layout.left, pane.top, layout.right - layout.left, pane.height)
            if clip.rect() != rect:
                clip.setRect(rect)
        for item in (self.tint, self.stretch_lines, self.mark_lines):
            item.set_marks(layout, marks)

    def show_data(self, is_shown: bool) -> None:
        """Without data nothing but the axes are to be seen."""
        items: tuple[QGraphicsItem, ...] = (*self.clips, *self._overlays)
        for item in items:
            item.setVisible(is_shown)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        position = event.position()
        if self._drags_guess:
            self.guess_dragged.emit(position.y())
            return
        self.setCursor(Qt.CursorShape.SizeVerCursor if self.guess.is_at(position) else Qt.CursorShape.ArrowCursor)
        if self._pressed_at is not None and (position - self._pressed_at).manhattanLength() >= CLICK_SLACK:
            self._pressed_at = None
        if self._dragged_from is not None and self._pressed_at is None:
            self.dragged.emit(position.x() - self._dragged_from.x())
            self._dragged_from = position
        self.pointed.emit(position)
        event.accept()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton and self.guess.is_at(event.position()):
            self._drags_guess = True
        elif event.button() == Qt.MouseButton.LeftButton:
            self._dragged_from = self._pressed_at = event.position()
        event.ignore()  # so that the panel around it takes the focus

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        pressed, self._dragged_from, self._pressed_at = self._pressed_at, None, None
        self._drags_guess = False
        if pressed is not None:
            self.clicked.emit(event.position())
        event.accept()

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        self._dragged_from = self._pressed_at = None
        self.double_clicked.emit()
        event.accept()

    def leaveEvent(self, event: QEvent) -> None:
        self._dragged_from = None
        self.pointed.emit(None)
        event.accept()

    def wheelEvent(self, event: QWheelEvent) -> None:
        self.wheeled.emit(event.position(), event.angleDelta(), event.modifiers())
        event.accept()

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.DevicePixelRatioChange and hasattr(self, "clips"):
            self.resized.emit()  # the window is on another screen: there are more pixels to draw on, or fewer
        return bool(super().event(event))

    def resizeEvent(self, event: QResizeEvent | None) -> None:
        super().resizeEvent(event)
        if hasattr(self, "clips"):
            self.resized.emit()

    def _clip(self) -> QGraphicsRectItem:
        clip = QGraphicsRectItem()
        clip.setPen(QPen(Qt.PenStyle.NoPen))
        clip.setFlag(QGraphicsItem.GraphicsItemFlag.ItemClipsChildrenToShape)
        clip.setFlag(QGraphicsItem.GraphicsItemFlag.ItemHasNoContents)
        self.addItem(clip)
        return clip


class Curve(pg.PlotCurveItem):
    """A line in pixels, with a gap at NaN; made once, then set.

    A sharp one runs along and between pixels only, along their middles.
    """

    def __init__(self, is_sharp: bool = False) -> None:
        super().__init__(antialias=not is_sharp, connect="finite")
        self._is_sharp = is_sharp

    def show_line(self, xs: Floats, ys: Floats) -> None:
        """Show this line, or nothing where no value is known."""
        is_known = not np.isnan(ys).all()
        self.setVisible(is_known)
        if is_known and self._is_sharp:
            xs, ys = np.floor(xs) + 0.5, np.floor(ys) + 0.5
        if is_known:
            self.setData(xs, ys)
