"""The views of the centre: one of them is shown, chosen in a slim row above it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QStackedWidget, QWidget

from gui.look import tokens
from gui.panels import shortcuts
from gui.panels.shortcuts import Shortcut
from gui.widgets.buttons import Button
from gui.widgets.labels import ElidedLabel
from gui.widgets.layouts import box, column, hairline, row
from gui.widgets.segmented import Segmented


@dataclass(frozen=True)
class View:
    key: str
    title: str
    shortcut: Shortcut


@dataclass(frozen=True)
class Remark:
    """A line beside the switch, a shorter one where room lacks, and what its tooltip says besides."""

    text: str = ""
    brief: str = ""
    tip: str = ""


NO_REMARK: Final = Remark()
LIVE: Final = "live"
DISTRIBUTIONS: Final = "distributions"
COMPARE: Final = "compare"
GOAL: Final = "goal"
VIEWS: Final = (
    View(LIVE, "Live", shortcuts.LIVE),
    View(DISTRIBUTIONS, "Distributions", shortcuts.DISTRIBUTIONS),
    View(COMPARE, "Compare", shortcuts.COMPARE),
    View(GOAL, "Goal", shortcuts.GOAL),
)


class Views(QWidget):
    """A page for each of `VIEWS`; a view's widget is put in its page when it is made."""

    chosen = Signal(str)  # the key of the view that the user picked
    back_wanted = Signal()  # to the present, from a moment at which the plots stand

    def __init__(self, live: QWidget) -> None:
        super().__init__()
        self._widgets: dict[str, QWidget] = {}
        self._remarks: dict[str, Remark] = {}
        self._switch = Segmented([(view.key, view.title) for view in VIEWS], "View")
        self._switch.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        for view in VIEWS:
            self._switch.set_tip(view.key, view.shortcut.tip())
            self._switch.button(view.key).setMinimumWidth(tokens.WIDTH_VIEW)
        self._remark = ElidedLabel("", "caption")
        self._remark.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self._remark.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.back_button = Button("Back to now", "ph.arrow-line-right", tip="Follow the present again (double click)")
        self.back_button.clicked.connect(self.back_wanted)
        self.back_button.hide()
        self.pages = QStackedWidget()
        margins = (tokens.PANEL_PADDING, 0, tokens.PANEL_PADDING, 0)
        above = box(
            row(self._switch, self._remark, self.back_button, gap=tokens.GAP_4, margins=margins),
            height=tokens.HEIGHT_VIEWS,
        )
        self.setLayout(column(above, hairline(), self.pages, gap=0, stretch=self.pages))
        self.put(LIVE, live)
        self._switch.chosen.connect(self._on_chosen)

    @property
    def key(self) -> str:
        return self._switch.key

    def put(self, key: str, widget: QWidget) -> None:
        self._widgets[key] = widget
        self.pages.addWidget(widget)
        self._show_chosen()

    def show_view(self, key: str) -> None:
        """Choose a view; an unknown key is ignored."""
        if any(view.key == key for view in VIEWS):
            self._switch.choose(key)
            self._show_chosen()

    def name_live(self, title: str) -> None:
        """Call the view of the plots over time what it shows: the present, or a recording."""
        self._switch.button(LIVE).setText(title)
        self._switch.button(LIVE).setAccessibleName(f"View: {title}")

    def offer_back(self, is_past: bool) -> None:
        """Show the way back to now while the plots stand at another moment."""
        self.back_button.setVisible(is_past)
        self._show_remark()

    @property
    def remark(self) -> str:
        """The remark that is shown, whole."""
        return self._remarks.get(self.key, NO_REMARK).text

    def describe(self, key: str, text: str, *, brief: str = "", tip: str = "") -> None:
        """Set the remark that stands at the right end of the row while the view is shown; `brief` where room lacks."""
        remark = Remark(text, brief, tip)
        if self._remarks.get(key) != remark:
            self._remarks[key] = remark
            self._show_remark()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._show_remark()

    def _show_remark(self) -> None:
        remark = self._remarks.get(self.key, NO_REMARK)
        room = self.width() - self._switch.sizeHint().width() - 2 * tokens.PANEL_PADDING - tokens.GAP_4
        if not self.back_button.isHidden():
            room -= self.back_button.sizeHint().width() + tokens.GAP_4
        is_short = bool(remark.brief) and self._remark.fontMetrics().horizontalAdvance(remark.text) > room
        self._remark.setText(remark.brief if is_short else remark.text)
        self._remark.set_tip("\n".join(filter(None, (remark.text if is_short else "", remark.tip))))

    def _show_chosen(self) -> None:
        self.pages.setCurrentWidget(self._widgets.get(self.key, self._widgets[LIVE]))
        self._show_remark()

    def _on_chosen(self, key: str) -> None:
        self._show_chosen()
        self.chosen.emit(key)
