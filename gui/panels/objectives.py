"""What requests are to meet, of the viewer and not of the service: from it follow goodput and a line in the plot."""

from __future__ import annotations

from typing import Final

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from gui.look import glossary, tokens
from gui.widgets.collapsible import Collapsible
from gui.widgets.layouts import column
from gui.widgets.setting import Setting
from service.messages.objectives import OBJECTIVE_BOUNDS, TIMES, Objectives

NONE: Final = "none"


class ObjectivesRows(Collapsible):
    """A time for each of `TIMES`, or none."""

    changed = Signal(object)  # the `Objectives` that the user wants

    def __init__(self) -> None:
        settings = {name: _setting(name) for name in TIMES}
        body = QWidget()
        body.setLayout(column(*settings.values(), gap=tokens.GAP_1, margins=(tokens.GAP_1, 0, 0, 0)))
        super().__init__("Objectives", body)
        self._settings = settings
        self.setToolTip(glossary.TERMS["objectives"])
        for setting in settings.values():
            setting.wanted.connect(lambda *_: self._on_wanted())
        self.set_folded(True)
        self.set_objectives(Objectives())

    @property
    def objectives(self) -> Objectives:
        asked = {TIMES[name]: setting.number for name, setting in self._settings.items() if setting.number}
        return Objectives(**asked)

    def setting(self, name: str) -> Setting:
        return self._settings[name]

    def set_objectives(self, objectives: Objectives) -> None:
        """Show these; nothing is emitted."""
        for name, setting in self._settings.items():
            setting.set_number(getattr(objectives, TIMES[name]) or 0.0)
        self._show_summary()

    def _on_wanted(self) -> None:
        self._show_summary()
        self.changed.emit(self.objectives)

    def _show_summary(self) -> None:
        self.set_summary(self.objectives.brief)


def _setting(name: str) -> Setting:
    made = Setting(name, OBJECTIVE_BOUNDS, None, 2, "s", glossary.TERMS[name], zero_text=NONE)
    made.set_plain()
    return made
