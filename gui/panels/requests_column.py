"""The table of requests and the details of one, below the table or in its place."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QWidget

from gui.look import tokens
from gui.panels.requests import RequestsPanel
from gui.widgets.layouts import column


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
