"""What the items that stand over a whole canvas have in common."""

from __future__ import annotations

import pyqtgraph as pg
from PySide6.QtCore import QRectF, QSize

from gui.look.tokens import Palette
from gui.plots.frame import Layout


class Overlay(pg.GraphicsObject):
    """As large as its canvas; subclasses paint where the layout says, once there is one."""

    def __init__(self, palette: Palette, z: float = 0.0) -> None:
        super().__init__()
        self.setZValue(z)
        self._palette = palette
        self._layout: Layout | None = None

    def set_palette(self, palette: Palette) -> None:
        self._palette = palette
        self.update()

    def boundingRect(self) -> QRectF:
        size = self._layout.size if self._layout else QSize(0, 0)
        return QRectF(0, 0, size.width(), size.height())

    def _lie(self, layout: Layout) -> None:
        """Lie as `layout` says, and be painted anew."""
        if self._layout is None or layout.size != self._layout.size:
            self.prepareGeometryChange()
        self._layout = layout
        self.update()
