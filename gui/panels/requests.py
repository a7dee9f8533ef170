"""The requests: filters with counts, and a row for each."""

from __future__ import annotations

from typing import Final, cast

from PySide6.QtCore import QEvent, QItemSelection, QModelIndex, QPoint, Qt, Signal
from PySide6.QtGui import QEnterEvent, QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QAbstractItemView, QFrame, QHeaderView, QMenu, QTableView, QWidget

from gui.look import tokens
from gui.panels import shortcuts
from gui.panels.request_delegate import RequestDelegate
from gui.panels.requests_model import FILTERS, ROW_ROLE, Counts, Filter, RequestsModel
from gui.panels.section import section_head
from gui.widgets.buttons import Button
from gui.widgets.labels import label
from gui.widgets.layouts import box, column, hairline, row
from gui.widgets.segmented import Segmented

NAMES: Final[dict[str, str]] = {
    "all": "All",
    "waiting": "Waiting",
    "running": "Running",
    "failed": "Failed",
    "done": "Done",
}
SHORT: Final[dict[str, str]] = {**NAMES, "waiting": "Wait", "running": "Run"}
OF_TEXT: Final = "Prompt and completion"
OF_FUNCTIONS: Final = "Input and output"
EMPTY_TEXT: Final = "Every request gets a row here: its state, its answer as it comes, and its latency."


class RequestsPanel(QWidget):
    """Shows a `RequestsModel`; emits requests to cancel, and the one that the user chooses."""

    cancel_wanted = Signal(object)  # tuple[str, ...] of ids, or None for all
    request_chosen = Signal(str)  # the id of the one row that was selected

    def __init__(self, model: RequestsModel | None = None) -> None:
        super().__init__()
        self.model = model if model is not None else RequestsModel()
        self._can_cancel = False
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

    def refresh_counts(self) -> None:
        """Update the filters; meant for a few calls a second, not for one per request."""
        counts = self.model.counts()
        has_live = counts.waiting + counts.running > 0
        for name in ("waiting", "running"):
            self._filters.set_shown(name, has_live or not counts.failed or self.model.filter == name)
        self._filters.set_shown("failed", counts.failed > 0 or self.model.filter == "failed")
        self._filters.set_texts(
            {name: f"{SHORT[name]} {counts.of(name)}" if counts.all else NAMES[name] for name in FILTERS}, SHORT
        )
        self._show_table(counts)
        self._cancel_all.setEnabled(self._can_cancel and has_live)

    def set_generates(self, generates: bool) -> None:
        """Name the column after prompts and completions, or else after inputs and outputs."""
        self._title.setText(OF_TEXT if generates else OF_FUNCTIONS)

    def set_can_cancel(self, can_cancel: bool) -> None:
        self._can_cancel = can_cancel
        self.refresh_counts()

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
        self.table.selectRow(line)
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
        head = column(
            section_head("Requests", self._cancel_all),
            self._filters,
            gap=tokens.GAP_2,
            margins=(padding, tokens.SECTION_TOP, padding, 0),
        )
        self._title = label(OF_TEXT, "caption")
        titles = row(
            self._title,
            None,
            self._newer,
            tokens.GAP_2,
            label("Seconds", "caption"),
            gap=0,
            margins=(tokens.REQUEST_TEXT_X, 0, padding, 0),
        )
        self._columns = box(column(titles, hairline(), gap=0), height=tokens.HEIGHT_PANEL_HEADER)
        self._empty.setContentsMargins(padding, tokens.GAP_4, padding, 0)
        self._empty.setAlignment(Qt.AlignmentFlag.AlignTop)
        self.setLayout(column(head, self._columns, self.table, self._empty, gap=0, stretch=self.table))
        self._newer.hide()

    def _show_table(self, counts: Counts) -> None:
        if self._empty.isHidden() != bool(counts.all) or self.table.isHidden() == bool(counts.all):
            self._empty.setVisible(not counts.all)
            self.table.setVisible(bool(counts.all))
            self._columns.setVisible(bool(counts.all))

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

    def _on_scrolled(self, value: int) -> None:
        if value == 0:
            self._forget_newer()

    def _forget_newer(self) -> None:
        if self._newer:
            self._newer = 0
            self.newer_above.emit(0)
