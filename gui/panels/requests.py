"""The requests: filters with counts, a row for each, and the details of one below the rows or in their place."""

from __future__ import annotations

from typing import Final, cast

from PySide6.QtCore import QItemSelection, QItemSelectionModel, QModelIndex, QPoint, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QMenu, QWidget

from gui.look import tokens
from gui.panels import shortcuts
from gui.panels.requests_model import FILTERS, ROW_ROLE, UNANSWERED, Filter, RequestsModel
from gui.panels.requests_table import RequestsTable
from gui.panels.section import section_head
from gui.widgets.buttons import Button
from gui.widgets.labels import label
from gui.widgets.layouts import box, column, hairline, row
from gui.widgets.segmented import Segmented
from service.analysis.observed.register import REGISTER, UNKNOWN_FIGURES, Figures

NAMES: Final[dict[str, str]] = {name: name.capitalize() for name in FILTERS}
SHORT: Final[dict[str, str]] = {**NAMES, "waiting": "Wait", "running": "Run"}
MEANINGS: Final = {"waiting": REGISTER["queue"].sentence, "running": REGISTER["running"].sentence}
OF_TEXT: Final = "Prompt and completion"
OF_FUNCTIONS: Final = "Input and output"
ONLY_THIS_ROW: Final = QItemSelectionModel.SelectionFlag.ClearAndSelect | QItemSelectionModel.SelectionFlag.Rows
EMPTY_TEXT: Final = "Every request gets a row here: its state, its answer as it comes, and its latency."


class RequestsPanel(QWidget):
    """Shows a `RequestsModel`; emits requests to cancel, and the one that the user chooses."""

    cancel_wanted = Signal(object)  # tuple[str, ...] of ids, or None for all
    request_chosen = Signal(str)  # the id of the one row that was selected

    def __init__(self, model: RequestsModel | None = None) -> None:
        super().__init__()
        self.model = model if model is not None else RequestsModel()
        self._can_cancel = self._has_live = False
        self._cancel_all = Button(
            "Cancel all", role="link", tip=shortcuts.CANCEL_ALL.tip("Cancel all requests that wait or run")
        )
        self._filters = Segmented([(name, NAMES[name]) for name in FILTERS], "Show requests")
        self._newer = Button("", role="quiet", tip="Back to the newest")
        self.table = RequestsTable(self.model)
        self._empty = label(EMPTY_TEXT, "dim", wrap=True)
        self._lay_out()
        self._filters.chosen.connect(self._on_filter_chosen)
        self._cancel_all.clicked.connect(self.cancel_all)
        self._newer.clicked.connect(self.table.scrollToTop)
        self.table.cancel_key_pressed.connect(self.cancel_selected)
        self.table.customContextMenuRequested.connect(self._on_menu_wanted)
        self.table.newer_above.connect(self._on_newer_above)
        self.table.clicked.connect(self._on_row_picked)
        self.table.activated.connect(self._on_row_picked)
        self.table.selectionModel().selectionChanged.connect(self._on_selection_changed)
        self.refresh_counts()

    def refresh_counts(self, figures: Figures = UNKNOWN_FIGURES) -> None:
        """Update the filters; meant for a few calls a second, not for one per request.

        Requests that wait or run are counted as in all places of the window; without `figures` those of the table are.
        """
        counts = self.model.counts().beside(figures)
        has_live = counts.waiting + counts.running > 0
        for name in ("waiting", "running"):
            self._filters.set_shown(name, has_live or not counts.unanswered or self.model.filter == name)
        self._filters.set_shown("unanswered", counts.unanswered > 0 or self.model.filter == "unanswered")
        unanswered = [state for state in UNANSWERED if getattr(counts, state)]
        names = SHORT if len(unanswered) != 1 else {**SHORT, "unanswered": unanswered[0].capitalize()}
        with_counts: dict[str, str] = {name: f"{names[name]} {getattr(counts, name)}" for name in FILTERS}
        self._filters.set_texts(with_counts if counts.all else NAMES, names)
        for name, text in with_counts.items():  # there may be no room for the numbers
            self._filters.set_tip(name, f"{text}. {MEANINGS[name]}" if name in MEANINGS else text)
        self._filters.set_tip("unanswered", ", ".join(f"{state} {getattr(counts, state)}" for state in unanswered))
        has_any = bool(counts.all)
        self._empty.setVisible(not has_any)
        self.table.setVisible(has_any)
        self._columns.setVisible(has_any)
        self._has_live = has_live
        self._cancel_all.setEnabled(self._can_cancel and has_live)

    def set_generates(self, generates: bool) -> None:
        """Name the column after prompts and completions, or else after inputs and outputs."""
        self._title.setText(OF_TEXT if generates else OF_FUNCTIONS)

    def set_can_cancel(self, can_cancel: bool) -> None:
        self._can_cancel = can_cancel
        self._cancel_all.setEnabled(can_cancel and self._has_live)

    def cancel_all(self) -> None:
        """Emit that all are to be cancelled, if "Cancel all" is enabled."""
        if self._cancel_all.isEnabled():
            self.cancel_wanted.emit(None)

    def select(self, request_id: str) -> None:
        """Select this request, unless the filter hides it; nothing is emitted."""
        line = self.model.line_of(request_id)
        chosen = self.table.selectionModel()
        if line is None or chosen.isRowSelected(line, QModelIndex()):
            return
        chosen.blockSignals(True)
        # Not `selectRow`: with Shift held down, as on the timeline, that would extend a selection instead.
        chosen.setCurrentIndex(self.model.index(line, 0), ONLY_THIS_ROW)
        chosen.blockSignals(False)
        self.table.scrollTo(self.model.index(line, 0))
        self.table.viewport().update()

    def cancel_selected(self) -> None:
        chosen = [index.data(ROW_ROLE) for index in self.table.selectionModel().selectedRows()]
        ids = tuple(request.id for request in chosen if request.is_live)
        if ids and self._can_cancel:
            self.cancel_wanted.emit(ids)

    def _lay_out(self) -> None:
        padding = tokens.PANEL_PADDING
        margins = (padding, tokens.SECTION_TOP, padding, 0)
        head = column(section_head("Requests", self._cancel_all), self._filters, gap=tokens.GAP_2, margins=margins)
        self._title = label(OF_TEXT, "caption")
        words = (self._title, None, self._newer, tokens.GAP_2, label("Seconds", "caption"))
        titles = row(*words, gap=0, margins=(tokens.REQUEST_TEXT_X, 0, padding, 0))
        self._columns = box(column(titles, hairline(), gap=0), height=tokens.HEIGHT_PANEL_HEADER)
        self._empty.setContentsMargins(padding, tokens.GAP_4, padding, 0)
        self._empty.setAlignment(Qt.AlignmentFlag.AlignTop)
        self.setLayout(column(head, self._columns, self.table, self._empty, gap=0, stretch=self.table))
        self._newer.hide()

    def _on_filter_chosen(self, name: str) -> None:
        self.model.set_filter(cast(Filter, name))
        self.table.scrollToTop()

    def _on_newer_above(self, count: int) -> None:
        self._newer.setText(f"↑ {count} new" if count else "")
        self._newer.setVisible(count > 0)

    def _on_selection_changed(self, selected: QItemSelection, deselected: QItemSelection) -> None:
        rows = self.table.selectionModel().selectedRows()
        if len(rows) == 1 and (selected or deselected):  # Qt also reports rows that only moved, with neither
            self._on_row_picked(rows[0])

    def _on_row_picked(self, index: QModelIndex) -> None:
        self.request_chosen.emit(index.data(ROW_ROLE).id)

    def _on_menu_wanted(self, at: QPoint) -> None:
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        cancel = menu.addAction("Cancel")
        cancel.setEnabled(self._can_cancel and any(i.data(ROW_ROLE).is_live for i in self.table.selectedIndexes()))
        cancel.triggered.connect(self.cancel_selected)
        menu.addAction("Cancel all").triggered.connect(self.cancel_all)
        menu.popup(self.table.viewport().mapToGlobal(at))


class RequestsColumn(QWidget):
    """Shares its height between table and details; without details the table has all of it."""

    def __init__(self, requests: RequestsPanel) -> None:
        super().__init__()
        self._requests = requests
        self._details: QWidget | None = None
        self._column = column(requests, gap=0)
        self._column.setStretchFactor(requests, 1)
        self.setLayout(self._column)

    @property
    def shows_details(self) -> bool:
        return self._details is not None and not self._details.isHidden()

    def put(self, details: QWidget) -> None:
        """Add the details, hidden; the Tab key reaches them after the table."""
        self._details = details
        details.hide()
        self._column.addWidget(details)
        before: QWidget = self._requests.table
        for widget in details.findChildren(QWidget):
            if widget.focusPolicy() & Qt.FocusPolicy.TabFocus:
                QWidget.setTabOrder(before, widget)
                before = widget

    def show_details(self, is_shown: bool) -> None:
        if self._details is None or is_shown == self.shows_details:
            return
        had_focus = self._details.isAncestorOf(self.focusWidget()) if self.focusWidget() is not None else False
        self._details.setVisible(is_shown)
        self._share()
        if had_focus:
            self._requests.table.setFocus(Qt.FocusReason.OtherFocusReason)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._share()

    def _share(self) -> None:
        if self._details is None:
            return
        left = self.height() - tokens.HEIGHT_REQUESTS_MIN
        has_room = left >= tokens.HEIGHT_DETAILS
        self._requests.setVisible(has_room or not self.shows_details)
        self._details.setFixedHeight(min(left, tokens.HEIGHT_DETAILS_MOST) if has_room else self.height())
