"""The prompts that Fire sends: an editor and a number of copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QTextBlockFormat, QTextCursor
from PySide6.QtWidgets import QSizePolicy, QTextEdit, QWidget

from gui.look import tokens
from gui.panels import shortcuts
from gui.panels.section import SECTION_MARGINS, section_head
from gui.widgets.buttons import Button
from gui.widgets.labels import ElidedLabel, label, set_role
from gui.widgets.layouts import column, row
from gui.widgets.number_field import NumberField
from service.messages.load import USUAL_PROMPTS
from service.messages.settings import Bounds


class Editor(QTextEdit):
    """An editor of unwrapped lines; Tab goes on to the next control."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.setAccessibleName(name)
        self.setAcceptRichText(False)
        self.setTabChangesFocus(True)
        self.setLineWrapMode(QTextEdit.LineWrapMode.NoWrap)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.document().setDocumentMargin(tokens.GAP_1)

    def set_text(self, text: str) -> None:
        """Replace the text; nothing is emitted."""
        blocked = self.blockSignals(True)
        self.setPlainText(text)
        self._space_lines()
        self.document().clearUndoRedoStacks()
        self.blockSignals(blocked)

    def _space_lines(self) -> None:
        spaced = QTextBlockFormat()
        spaced.setLineHeight(tokens.LINE_EDITOR, QTextBlockFormat.LineHeightTypes.FixedHeight.value)
        cursor = QTextCursor(self.document())
        cursor.select(QTextCursor.SelectionType.Document)
        cursor.mergeBlockFormat(spaced)


COPIES: Final = Bounds(1, 10_000, integral=True)
USUAL_COPIES: Final = 8


class PromptsPanel(QWidget):
    """Emits the prompts of the editor when the user fires them."""

    fire_wanted = Signal(object, int)  # tuple[str, ...], copies

    def __init__(self) -> None:
        super().__init__()
        self._can_fire = False
        self._head = label("Prompts", "title")
        self.editor = Editor("Prompts, one per line")
        self.editor.setFixedHeight(tokens.HEIGHT_EDITOR)
        self._copies = NumberField(COPIES, "Copies of each prompt", width=tokens.WIDTH_NUMBER_SMALL)
        self._copies.setProperty("tall", True)
        self._copies.setToolTip("How often each prompt is sent")
        self._count = ElidedLabel("", "dim")
        tip = shortcuts.FIRE.tip("Send every prompt, now")
        self.button = Button("Fire", "ph.paper-plane-right-fill", "primary", shortcuts.FIRE.hint, large=True, tip=tip)
        one_per_line = ElidedLabel("one per line", "caption")
        line = row(label("×", "text"), self._copies, self._count, None, self.button)
        margins = (*SECTION_MARGINS[:3], tokens.SECTION_GAP)
        head = column(section_head(self._head, one_per_line), self.editor, gap=tokens.GAP_HEAD)
        self.setLayout(column(head, line, gap=tokens.GAP_2, margins=margins))
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self.editor.textChanged.connect(self._show_count)
        self._copies.entered.connect(lambda _number: self._show_count())
        self._copies.refused.connect(self._count.setText)
        self._copies.restored.connect(self._show_count)
        self.button.clicked.connect(self.fire)
        self.set_prompts(USUAL_PROMPTS)
        self.set_copies(USUAL_COPIES)

    @property
    def prompts(self) -> tuple[str, ...]:
        """The lines that are not blank."""
        return tuple(line.strip() for line in self.editor.toPlainText().splitlines() if line.strip())

    @property
    def copies(self) -> int:
        return int(self._copies.number)

    def set_prompts(self, prompts: Sequence[str]) -> None:
        self.editor.set_text("\n".join(prompts))
        self._show_count()

    def set_copies(self, copies: int) -> None:
        self._copies.set_number(float(copies), keep_typing=False)
        self._show_count()

    def set_generates(self, generates: bool) -> None:
        """Name the lines prompts of a text generator, or else inputs of a function."""
        self._head.setText("Prompts" if generates else "Inputs")

    def set_first(self, is_first: bool) -> None:
        """Stress the button, or leave that to another one."""
        set_role(self.button, "primary" if is_first else "plain")

    def set_can_fire(self, can_fire: bool) -> None:
        self._can_fire = can_fire
        self._show_count()

    def fire(self) -> None:
        """Emit the prompts, if Fire is enabled."""
        self._copies.commit()
        if self.button.isEnabled() and not self._copies.is_refused:
            self.fire_wanted.emit(self.prompts, self.copies)

    def set_compact(self, compact: bool) -> None:
        self.button.set_hint_shown(not compact)

    def _show_count(self) -> None:
        count = len(self.prompts) * self.copies
        self._count.setText("1 request" if count == 1 else f"{count} requests")
        self.button.setEnabled(self._can_fire and count > 0)
