"""The chooser of what is served: a model by a name one can type, a folder or a file, or another workload."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from PySide6.QtCore import QEvent, QPoint, Qt, Signal
from PySide6.QtGui import QFocusEvent, QKeyEvent, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QLineEdit, QMenu, QToolButton, QWidget

from gui.look import tokens
from gui.look.theme import current
from gui.widgets.buttons import paint_caret
from gui.widgets.dialogs import ask_for_file, ask_for_folder
from service.messages.options import address_of

TIP: Final = (
    "A model's name, a local folder, a GGUF file, or a workload such as adder or package.module:Class.\n"
    "auto takes what suits the device. The address of a running service, such as http://127.0.0.1:8000, attaches to it."
)
ADDRESS: Final = "http://127.0.0.1:8000"


class ModelField(QLineEdit):
    """Emits `chosen` when another model is entered, picked or browsed for."""

    chosen = Signal(str)
    token_file_chosen = Signal(str)  # of the service at the address that was chosen

    def __init__(self) -> None:
        super().__init__()
        self._spec = ""
        self._in_force: tuple[str, str] | None = None
        self._suggestions: tuple[str, ...] = ()
        self._functions: tuple[str, ...] = ()
        self._addresses: tuple[str, ...] = ()
        self.setProperty("tall", True)
        self.setAccessibleName("Model")
        self.setFixedWidth(tokens.WIDTH_MODEL)
        self._opener = _Opener(self)
        self._opener.clicked.connect(self.pop_up)
        self.editingFinished.connect(self._on_editing_finished)

    @property
    def spec(self) -> str:
        return self._spec

    def set_suggestions(self, specs: Sequence[str], functions: Sequence[str] = ()) -> None:
        self._suggestions, self._functions = tuple(specs), tuple(functions)

    def set_addresses(self, addresses: Sequence[str]) -> None:
        self._addresses = tuple(addresses)

    def set_spec(self, spec: str) -> None:
        self._spec = spec
        self._in_force = None
        self._show_spec()

    def show_in_force(self, name: str, why: str = "") -> None:
        """While the field is disabled, show the model that was taken for the choice, and on hover why."""
        self._in_force = name, why
        self._show_spec()

    def pop_up(self) -> None:
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self._offer(menu, self._suggestions)
        menu.addSeparator()
        menu.addAction("Choose a folder…").triggered.connect(self._on_folder_wanted)
        menu.addAction("Choose a GGUF file…").triggered.connect(self._on_file_wanted)
        menu.addSeparator()
        self._offer(menu, self._functions)
        menu.addSeparator()
        self._offer(menu, self._addresses)
        menu.addAction("A running service…").triggered.connect(self._on_address_wanted)
        if address_of(self._spec) is not None:
            menu.addAction("The file with its token…").triggered.connect(self._on_token_file_wanted)
        menu.popup(self.mapToGlobal(QPoint(0, self.height() + tokens.GAP_1)))

    def _offer(self, menu: QMenu, specs: Sequence[str]) -> None:
        for spec in specs:
            menu.addAction(spec).triggered.connect(lambda _=False, spec=spec: self._choose(spec))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Down:
            self.pop_up()
        elif event.key() == Qt.Key.Key_Escape and self.isModified():
            self.set_spec(self._spec)
        else:
            super().keyPressEvent(event)

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.EnabledChange:
            self._show_spec()

    def focusInEvent(self, event: QFocusEvent) -> None:
        self._show_spec(is_whole=True)
        super().focusInEvent(event)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self._show_spec()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if not self.hasFocus():
            self._show_spec()
        self._opener.setGeometry(self.width() - self.height(), 0, self.height(), self.height())

    def _show_spec(self, is_whole: bool = False) -> None:
        """The name; shortened to what there is room for while it is not edited."""
        if self.isEnabled():
            self._in_force = None
        name, why = self._in_force or (self._spec, "")
        self.setToolTip("\n".join(filter(None, (name, why, TIP))))
        shown = name.rpartition("/")[2] if self._in_force else name  # of a model on the hub its owner matters less
        whole = is_whole or self.hasFocus()
        for_caret = tokens.ICON + tokens.GAP_1 if self.isEnabled() else 0
        self.setTextMargins(0, 0, for_caret, 0)
        room = self.width() - for_caret - 2 * tokens.GAP_3
        mode = Qt.TextElideMode.ElideLeft if _is_path(shown) else Qt.TextElideMode.ElideRight
        self.setText(shown if whole else self.fontMetrics().elidedText(shown, mode, room))
        if not whole:
            self.setCursorPosition(0)
        self.setAccessibleDescription(shown)
        self.setModified(False)

    def _choose(self, spec: str) -> None:
        spec = address_of(spec) or spec
        changed = spec != self._spec
        self.set_spec(spec)
        if changed:
            self.chosen.emit(spec)

    def _on_editing_finished(self) -> None:
        if self.isModified():
            self._choose(self.text().strip() or self._spec)

    def _on_address_wanted(self) -> None:
        """Let an address be entered; the usual one stands there already."""
        self.setFocus(Qt.FocusReason.OtherFocusReason)
        self.setText(ADDRESS)
        self.selectAll()
        self.setModified(True)

    def _on_token_file_wanted(self) -> None:
        ask_for_file(self, "The file with the service's bearer token", "", self._use_token_file)

    def _use_token_file(self, path: Path) -> None:
        self.token_file_chosen.emit(str(path))

    def _on_folder_wanted(self) -> None:
        ask_for_folder(self, "A model's folder", self._use_path)

    def _on_file_wanted(self) -> None:
        ask_for_file(self, "A GGUF file", "GGUF (*.gguf)", self._use_path)

    def _use_path(self, path: Path) -> None:
        self._choose(str(path))


class _Opener(QToolButton):
    """The caret at the field's right end."""

    def __init__(self, field: QWidget) -> None:
        super().__init__(field)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setCursor(Qt.CursorShape.ArrowCursor)
        self.setAccessibleName("Choose a model")

    def paintEvent(self, _event: QPaintEvent) -> None:
        if self.isEnabled():
            paint_caret(QPainter(self), self.width() / 2, self.height() / 2, current().t3)


def _is_path(spec: str) -> bool:
    return spec.startswith(("/", "~", ".")) or "\\" in spec
