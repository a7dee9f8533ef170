"""What all plots have in common: a header above a canvas, a sentence while there are no data, and their colours."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QRect, Qt
from PySide6.QtGui import QMouseEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget

from gui.look import glossary, tokens
from gui.look.theme import colour, current
from gui.look.tokens import Palette
from gui.plots.canvas import Canvas
from gui.plots.header import Header
from gui.plots.paint import font
from gui.series.declaration import Declaration


class PlotWidget(QWidget):
    """Subclasses say what is drawn; they call `set_colors` once their items are made.

    Attributes:
        plot: itself in words.
        canvas, header: its two parts.
        help: how it is read, once that was asked for.
    """

    def __init__(self, plot: Declaration, panes: int = 1, with_words: bool = False) -> None:
        super().__init__()
        self.plot = plot
        self.setObjectName(plot.name)
        self.setAccessibleName(plot.title)
        self._is_empty = False
        self.header = Header(plot)
        self.canvas = Canvas(panes, with_words)
        self._empty = EmptyText(plot.empty_text, self.canvas)
        self._empty.hide()
        self.help: ReadingHelp | None = None
        self.header.help_wanted.connect(self.toggle_help)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self.header)
        layout.addWidget(self.canvas, 1)
        self.canvas.resized.connect(self._on_canvas_resized)

    # Not an ABC: its metaclass and Qt's exclude each other.

    def set_colors(self, palette: Palette) -> None:
        """Give every item of the data its colours."""
        raise NotImplementedError

    def draw_anew(self) -> None:
        """Draw the data once more: room or colours have changed."""
        raise NotImplementedError

    def set_empty(self, is_empty: bool) -> None:
        """Say what will be shown instead of showing it."""
        self._is_empty = is_empty
        self._empty.setVisible(is_empty)
        self.canvas.show_data(not is_empty)
        if is_empty:
            self.header.show_readout({})
            self.header.forget_widths()

    def toggle_help(self) -> None:
        """Say over the data how they are read, or no longer."""
        if self.help is None:
            self.help = self._made_help()
            self.help.setGeometry(self.canvas.rect())
            self.help.show()
        else:
            self.help.setVisible(self.help.isHidden())

    def _made_help(self) -> ReadingHelp:
        return ReadingHelp(f"{glossary.PLOTS[self.plot.name]}.", self.canvas)

    def changeEvent(self, event: QEvent) -> None:
        """Wear the palette that is in force from now on."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.StyleChange:
            self.canvas.setBackground(current().plot)
            self.set_colors(current())
            self.draw_anew()

    def _on_canvas_resized(self) -> None:
        self._empty.setGeometry(self.canvas.rect())
        if self.help is not None:
            self.help.setGeometry(self.canvas.rect())
        self.draw_anew()


class ReadingHelp(QWidget):
    """How a plot is read, in the place of its data until it is clicked.

    Attributes:
        covers: whether what is below is not to be seen.
    """

    covers = True

    def __init__(self, text: str, parent: QWidget) -> None:
        super().__init__(parent)
        self._text = text
        self.setAccessibleName(self._text)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setToolTip("Click to see the data again")

    def mousePressEvent(self, _event: QMouseEvent) -> None:
        self.hide()

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter = QPainter(self)
        if self.covers:
            painter.fillRect(self.rect(), colour(current().plot))
        self.paint_help(painter)
        painter.end()

    def paint_help(self, painter: QPainter) -> None:
        """The text, in the middle."""
        painter.setFont(font(tokens.FONT_TEXT))
        painter.setPen(colour(current().t2))
        width = min(tokens.HELP_WIDTH, self.width() - 2 * tokens.PANEL_PADDING)  # as is well read
        place = QRect((self.width() - width) // 2, 0, width, self.height())
        painter.drawText(place, Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap, self._text)


class EmptyText(QWidget):
    """A sentence in the middle of a plot, above the line where its data will stand."""

    def __init__(self, text: str, parent: QWidget) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.set_text(text)

    def set_text(self, text: str) -> None:
        self._text = text
        self.setAccessibleName(text)
        self.update()

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setFont(font(tokens.FONT_TEXT))
        painter.setPen(colour(current().t3))
        painter.drawText(self.rect().adjusted(0, 0, 0, -tokens.GAP_2), Qt.AlignmentFlag.AlignCenter, self._text)
        line_y = self.height() - tokens.PLOT_BOTTOM
        line_width = self.width() - tokens.PLOT_GUTTER - tokens.PLOT_MARGIN_RIGHT
        painter.fillRect(tokens.PLOT_GUTTER, line_y, line_width, tokens.HAIRLINE, colour(current().line))
        painter.end()
