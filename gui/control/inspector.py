"""Connects the three views of one request: timeline, table and details."""

from __future__ import annotations

from PySide6.QtCore import QObject

from gui.control.rows import shown
from gui.main_window import MainWindow
from gui.panels.request_details import RequestDetails
from gui.plots.plot_stack import PlotStack
from gui.series.waits import request_details
from service.analysis.observed.history import History
from service.analysis.observed.one_batch import BatchSummary


class RequestInspector(QObject):
    """Holds the chosen request, if any: marked in timeline and table, described in the details."""

    def __init__(self, window: MainWindow, plots: PlotStack, history: History) -> None:
        super().__init__(window)
        self._window = window
        self._plots = plots
        self._history = history
        self.row: int | None = None
        self.details = RequestDetails()
        window.put_details(self.details)
        plots.request_chosen.connect(self._on_timeline_chosen)
        window.requests.request_chosen.connect(self._on_table_chosen)
        window.details_closed.connect(self.close)
        self.details.mate_chosen.connect(self._on_table_chosen)
        self.details.close_button.clicked.connect(self.close)

    def close(self) -> None:
        self._choose(None)

    def refresh(self) -> None:
        """Update the details; close them if the history no longer holds the request."""
        if self.row is None:
            return
        found = request_details(self._history, self.row)
        if found is None:
            self.close()
            return
        request, batch, now_s = shown(found.request), found.batch, self._history.now_s()
        self.details.show_request(request, found.stages, found.spans_s, None if batch is None else batch.reason)
        self.details.show_times(found.waited, found.paced)
        title, remark = ("", "") if batch is None else batch_words(batch, len(found.mates))
        self.details.show_batch(title, remark, [shown(mate) for mate in found.mates], now_s)

    def _on_timeline_chosen(self, row: int | None) -> None:
        self._choose(row)
        if row is not None and self._history.requests.columns.has(row):
            self._window.requests.select(shown(self._history.requests.row(row)).id)

    def _on_table_chosen(self, request_id: str) -> None:
        row = self._window.requests.model.key_of(request_id)
        if row is None or not self._history.requests.columns.has(row):
            return
        self._choose(row)
        self._window.requests.select(request_id)

    def _choose(self, row: int | None) -> None:
        if row == self.row:
            return
        self.row = row
        self._plots.choose_request(row)
        self.refresh()
        self._window.show_details(row is not None)


def batch_words(batch: BatchSummary, mates: int) -> tuple[str, str]:
    """Title and remark of a batch, for a request that ran with `mates` others."""
    if batch.formation == "continuous":
        others = "1 other" if mates == 1 else f"{mates} others"
        return (
            f"Ran beside {others}" if mates else "Ran alone",
            f"{batch.size} of {batch.cap} when it joined, v{batch.version}",
        )
    alone = ", alone" if batch.size == 1 else ""
    return f"Batch {batch.id}", f"{batch.size} of {batch.cap}, {batch.reason}, v{batch.version}{alone}"
