"""What a user finds in a window: widgets by their words or by the name that is read out, texts, open menus."""

from __future__ import annotations

from typing import TypeVar

from PySide6.QtWidgets import QAbstractButton, QApplication, QLabel, QMenu, QWidget

from gui.widgets.collapsible import Collapsible

Kind = TypeVar("Kind", bound=QWidget)


def named(within: QWidget, kind: type[Kind], name: str) -> Kind:
    """The one widget of this kind that is visible and called so."""
    found = [w for w in within.findChildren(kind) if w.isVisibleTo(within) and name in names_of(w)]
    assert len(found) == 1, (name, found)
    return found[0]


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


def saying(within: QWidget, text: str) -> QLabel:
    """The one visible label that says this."""
    found = [label for label in within.findChildren(QLabel) if label.isVisibleTo(within) and label.text() == text]
    assert len(found) == 1, (text, texts(within))
    return found[0]


def group(within: QWidget, title: str) -> Collapsible:
    """What folds under this heading."""
    return next(each for each in within.findChildren(Collapsible) if title in texts(each))
