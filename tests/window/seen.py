"""What a user finds in a window: widgets by their words or by the name that is read out, texts, open menus."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from PySide6.QtCore import Qt
from PySide6.QtWidgets import (
    QAbstractButton,
    QApplication,
    QFileDialog,
    QGraphicsItem,
    QGraphicsView,
    QLabel,
    QMenu,
    QWidget,
)

from gui.app import Batchscope
from gui.widgets.collapsible import Collapsible
from service.analysis.observed.history import History
from service.analysis.observed.one_batch import batch_summary
from service.messages.settings import Settings

Kind = TypeVar("Kind", bound=QWidget)
Item = TypeVar("Item", bound=QGraphicsItem)


def settings_in_force(batchscope: Batchscope) -> Settings:
    """What the service has reported last."""
    in_force = batchscope.composition.history.in_force
    assert in_force is not None
    return in_force.settings


def named(within: QWidget, kind: type[Kind], name: str) -> Kind:
    """The one widget of this kind that is visible and called so."""
    found = [w for w in within.findChildren(kind) if w.isVisibleTo(within) and name in names_of(w)]
    assert len(found) == 1, (name, found)
    return found[0]


def key_stop(within: QWidget, name: str) -> QWidget:
    """The one widget of that name at which the Tab key stops."""
    stops = [w for w in within.findChildren(QWidget) if w.focusPolicy() & Qt.FocusPolicy.TabFocus]
    [found] = [w for w in stops if w.isVisibleTo(within) and name in names_of(w)]
    return found


def drawn(canvas: QGraphicsView, kind: type[Item]) -> Item:
    """The one item of this kind on a canvas."""
    [found] = [item for item in canvas.scene().items() if isinstance(item, kind)]
    return found


def names_of(widget: QWidget) -> tuple[str, ...]:
    text = widget.text() if isinstance(widget, QAbstractButton) else ""
    return tuple(filter(None, (widget.accessibleName(), text)))


def texts(within: QWidget) -> list[str]:
    """What labels and buttons say, those that are visible."""
    speaking = (w for w in within.findChildren(QWidget) if isinstance(w, QLabel | QAbstractButton))
    return [w.text() for w in speaking if w.isVisibleTo(within) and w.text()]


def pick(button: QAbstractButton, entry: str) -> None:
    """Open the button's menu and choose an entry of it."""
    button.click()
    menu = QApplication.activePopupWidget()
    assert isinstance(menu, QMenu)
    action = next(action for action in menu.actions() if action.text() == entry)
    menu.setActiveAction(action)
    menu.close()
    action.trigger()


def file_dialog(within: QWidget) -> QFileDialog:
    """The one that asks for a file or a folder."""
    [dialog] = [each for each in within.findChildren(QFileDialog) if each.isVisible()]
    return dialog


def choose_file(within: QWidget, path: Path) -> None:
    """Answer the dialog that asks for a file or a folder."""
    dialog = file_dialog(within)
    dialog.selectFile(str(path))
    dialog.accept()


def saying(within: QWidget, text: str) -> QLabel:
    """The one visible label that says this."""
    found = [label for label in within.findChildren(QLabel) if label.isVisibleTo(within) and label.text() == text]
    assert len(found) == 1, (text, texts(within))
    return found[0]


def group(within: QWidget, title: str) -> Collapsible:
    """What folds under this heading."""
    return next(each for each in within.findChildren(Collapsible) if title in texts(each))


def row_of_batch(history: History, id: str) -> int:
    """The row of the batch that a signal tells of by its id."""
    columns = history.batches.columns
    summaries = ((row, batch_summary(history, row)) for row in range(columns.first, columns.next))
    return next(row for row, batch in summaries if batch is not None and batch.id == id)
