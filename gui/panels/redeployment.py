"""Replicas and max_ongoing_requests, which take a redeployment, and the progress of that."""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec
from PySide6.QtCore import Signal
from PySide6.QtWidgets import QSizePolicy, QWidget

from gui.look import glossary, tokens
from gui.widgets.icons import Icon
from gui.widgets.labels import label
from gui.widgets.layouts import column, row
from gui.widgets.setting import ErrorLine, Setting
from service.messages.settings import SCALE_BOUNDS, Scale
from service.messages.telemetry import Deployment
from service.messages.text import format_ms

MARK: Final = "ph.arrows-clockwise"
MARK_MEANS: Final = "Takes a redeployment; loses nothing"


class RedeploymentRows(QWidget):
    """Asks for other numbers; shows a redeployment as the service reports it."""

    wanted = Signal(dict)  # the fields to change
    changed = Signal()  # `summary` or `progress` is another text

    def __init__(self) -> None:
        super().__init__()
        self._in_force = Scale()
        self._recorded: Scale | None = None
        self._asked: dict[str, int] = {}  # not yet answered
        self._seen: Deployment | None = None
        self._began_s: float | None = None  # when what is under way was first seen
        self._rows = {name: _row(name) for name in SCALE_BOUNDS}
        self.news = label("", "caption", wrap=True)
        self._failure = ErrorLine()
        self.news.setText(MARK_MEANS)
        legend = row(Icon(MARK, "t3"), self.news, gap=tokens.GAP_1, stretch=self.news)
        self.setLayout(column(legend, *self._rows.values(), self._failure, gap=tokens.GAP_1))
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Minimum)
        for name, shown in self._rows.items():
            shown.wanted.connect(partial(self._want, name))
        self._show_all()

    @property
    def scale(self) -> Scale:
        """The scale that the user wants; the controls may show a recording's instead."""
        return self._in_force.revised(self._asked)

    @property
    def progress(self) -> str:
        """The progress of a redeployment under way, or nothing."""
        return progress(self._seen) if self._seen is not None and not self._seen.is_settled else ""

    @property
    def summary(self) -> str:
        """The number of replicas, for the folded group."""
        replicas = (self._recorded or self.scale).replicas
        return f"{replicas} replica{'s' if replicas > 1 else ''}"

    @property
    def failure(self) -> str | None:
        """Why the last redeployment was taken back."""
        return None if self._failure.isHidden() else self._failure.text

    def control(self, field: str) -> Setting:
        return self._rows[field]

    def show_scale(self, scale: Scale) -> None:
        """Start over from `scale`, while there is no service."""
        self._in_force = scale
        self._asked.clear()
        self._seen = self._began_s = None
        self._failure.hide()
        self.news.setText(MARK_MEANS)
        self._show_all()

    def forget_service(self) -> None:
        """Start over without a service: the next one starts with the wanted scale."""
        self.show_scale(self.scale)

    def show_deployment(self, deployment: Deployment) -> None:
        """Show a deployment; a control that waits for an answer keeps its value."""
        self._in_force = deployment.wanted
        self._asked = {name: value for name, value in self._asked.items() if value != getattr(self._in_force, name)}
        self._seen = deployment
        self.news.setText(self._news_of(deployment))
        if deployment.failure is not None:
            self._failure.show_text(deployment.failure)
        else:
            self._failure.hide()
        self._show_all()

    def show_recorded(self, scale: Scale | None) -> None:
        """Show the scale of a recording; ``None`` shows the user's again."""
        if scale != self._recorded:
            self._recorded = scale
            self._show_all()

    def show_refusal(self, field: str, rule: str) -> None:
        """Show at the control of `field` which rule the value breaks."""
        self._asked.pop(field, None)
        self._show_all()
        if field in self._rows:
            self._rows[field].show_refusal(rule)

    def settle(self) -> None:
        """Go back to the scale in force: a change could not be sent."""
        self._asked.clear()
        self._show_all()

    def _want(self, name: str, number: float, _is_final: bool) -> None:
        self._asked[name] = int(number)
        self.wanted.emit({name: int(number)})
        self.changed.emit()

    def _news_of(self, deployment: Deployment) -> str:
        if not deployment.is_settled:
            self._began_s = deployment.at_s if self._began_s is None else self._began_s
            return progress(deployment)
        began_s, self._began_s = self._began_s, None
        if deployment.failure is not None:
            return MARK_MEANS
        if began_s is None:
            return self.news.text()
        return f"Redeployed in {format_ms((deployment.at_s - began_s) * 1e3)}"

    def _show_all(self) -> None:
        scale = self._recorded or self.scale
        for name, shown in self._rows.items():
            shown.set_number(float(getattr(scale, name)))
        self.changed.emit()


def progress(deployment: Deployment) -> str:
    """The progress of a redeployment in words.

    >>> two = Scale(replicas=2)
    >>> progress(Deployment(at_s=0, wanted=two, running=1, is_settled=False))
    '1 of 2 replicas'
    >>> progress(Deployment(at_s=0, wanted=Scale(), running=1, leaving=1, is_settled=False))
    '1 leaves when it has answered'
    """
    wanted = deployment.wanted.replicas
    if deployment.leaving:
        one = "1 leaves when it has answered"
        return one if deployment.leaving == 1 else f"{deployment.leaving} leave when they have answered"
    if deployment.running > wanted:
        return f"{deployment.running} replicas, {deployment.running - wanted} to leave"
    if deployment.running == wanted:
        return "Redeploying"
    parts = [f"{deployment.running} of {wanted} replicas"]
    if deployment.loading is not None:
        parts.append("{done} of {total} {unit}".format(**msgspec.structs.asdict(deployment.loading)))
    return " · ".join(parts)


def _row(name: str) -> Setting:
    made = Setting(name, SCALE_BOUNDS[name], tip=glossary.SETTINGS[name], number_width=tokens.WIDTH_NUMBER_SMALL)
    made.set_plain()
    return made
