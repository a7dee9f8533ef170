"""How batches are formed: formation, cap, timeout and the limits that follow from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFontMetrics, QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from gui.look import glossary, tokens
from gui.look.theme import font
from gui.panels.redeployment import RedeploymentRows
from gui.panels.section import SECTION_MARGINS, section_head
from gui.widgets.collapsible import Collapsible
from gui.widgets.labels import ElidedLabel, label
from gui.widgets.layouts import box, column
from gui.widgets.scale import Scale
from gui.widgets.segmented import Segmented
from gui.widgets.setting import Setting, SwitchSetting, Throttle
from service.analysis.observed.register import REGISTER
from service.messages.settings import (
    BOUNDS,
    FORMATIONS,
    SCALE_BOUNDS,
    SettingError,
    Settings,
    VersionedSettings,
)
from service.messages.text import format_ms

TITLE: Final = "Batching"
WITH_SLIDER: Final = ("max_batch_size", "batch_wait_timeout_s")
RELEASE: Final = ("allow_small_batch", "stride_s", "max_batch_tokens")
MOST_STEPS: Final = 100
LIMITS: Final = ("max_concurrent_batches", "max_queued_requests", "prefill_chunk_tokens")


class Steps:
    """What the user changed, step by step; a drag of a slider is one step, whatever was sent meanwhile.

    >>> steps = Steps()
    >>> for cap in (5, 6, 8):
    ...     steps.note({"max_batch_size": cap - 1}, {"max_batch_size": cap}, is_final=cap == 8)
    >>> steps.undone(), steps.undone(), steps.redone()
    ({'max_batch_size': 4}, {}, {'max_batch_size': 8})
    """

    def __init__(self) -> None:
        self._past: list[tuple[dict[str, object], dict[str, object]]] = []
        self._future: list[tuple[dict[str, object], dict[str, object]]] = []
        self._is_open = False

    def note(self, before: Mapping[str, object], after: Mapping[str, object], is_final: bool) -> None:
        """The user set these fields, and still holds the control unless it `is_final`."""
        if self._is_open and self._past[-1][0].keys() == before.keys():
            before = self._past.pop()[0]
        self._is_open = not is_final
        self._future.clear()
        if before != after or self._is_open:
            self._past = [*self._past[-MOST_STEPS:], (dict(before), dict(after))]

    def undone(self) -> dict[str, object]:
        """The values that take the last step back; empty where there is none."""
        return self._moved(self._past, self._future)[0]

    def redone(self) -> dict[str, object]:
        """The values of the step that was taken back last; empty where there is none."""
        return self._moved(self._future, self._past)[1]

    def _moved(self, source: list[Any], target: list[Any]) -> tuple[dict[str, object], dict[str, object]]:
        self._is_open = False
        if not source:
            return {}, {}
        target.append(source.pop())
        before, after = target[-1]
        return before, after


class BatchingPanel(QWidget):
    """Asks for changes; shows as in force only what the service has confirmed."""

    settings_wanted = Signal(dict)  # the fields to change; at most one every 40 ms while a slider is dragged
    considered = Signal(object, bool)  # the settings of the controls, and whether the slider was let go

    def __init__(self) -> None:
        super().__init__()
        self._in_force = Settings()
        self._steps = Steps()
        self._recorded: VersionedSettings | None = None
        self._wanted: dict[str, object] = {}  # not yet confirmed
        self._unsent: dict[str, object] = {}
        self._version, self._after, self._drained = "", "", ("", "", False)
        self._moved_version = ""  # by Hold
        self._head = ElidedLabel("", "caption")
        self._formation = Segmented([(name, name) for name in FORMATIONS], "formation")
        for name in FORMATIONS:
            self._formation.set_tip(name, glossary.FORMATIONS[name])
        self._max_batch_size = _setting("max_batch_size")
        self._batch_wait_timeout_s = _setting("batch_wait_timeout_s", 3, "s")
        self._settings: dict[str, Setting | SwitchSetting] = {
            "max_batch_size": self._max_batch_size,
            "batch_wait_timeout_s": self._batch_wait_timeout_s,
            "allow_small_batch": SwitchSetting("allow_small_batch", glossary.SETTINGS["allow_small_batch"]),
            "stride_s": _setting("stride_s", 3, "s"),
            "max_batch_tokens": _setting("max_batch_tokens"),
            "max_concurrent_batches": _setting("max_concurrent_batches", width=tokens.WIDTH_NUMBER_TINY),
            "max_queued_requests": _setting("max_queued_requests", width=tokens.WIDTH_NUMBER_SMALL),
            "prefill_chunk_tokens": _setting("prefill_chunk_tokens", width=tokens.WIDTH_NUMBER_SMALL),
        }
        self.redeployment = RedeploymentRows()
        self._release = Collapsible("Release", self._group(RELEASE))
        self._limits = Collapsible("Limits", self._group(LIMITS, self.redeployment))
        self._groups = {self._release: RELEASE, self._limits: LIMITS}
        for group in self._groups:
            group.set_folded(True)
        self._fixed = label("", "text", wrap=True)
        self._throttle = Throttle(self._send, self)
        self._lay_out()
        self._formation.chosen.connect(lambda name: self._want("formation", name, is_final=True))
        for field, setting in self._settings.items():
            setting.wanted.connect(partial(self._want_number, field))
        self.redeployment.changed.connect(self._show_derived)
        self.show_settings(self._in_force)

    @property
    def settings(self) -> Settings:
        """The settings that the user wants; the controls may show a recording's instead."""
        return self._in_force.revised(self._wanted)

    @property
    def _shown(self) -> Settings:
        return self.settings if self._recorded is None else self._recorded.settings

    @property
    def is_recorded(self) -> bool:
        """Whether the controls show the settings of a recording."""
        return self._recorded is not None

    @property
    def head(self) -> str:
        """What is said of the settings in force, as far as there is room."""
        return self._head.text()

    def control(self, field: str) -> Setting | SwitchSetting:
        return self._settings[field]

    def set_fixed(self, why: str, *, hides_controls: bool = False) -> None:
        """Say why no setting can be changed; `hides_controls` where those in force are not known."""
        self._fixed.setText(why.replace("-", "-\u2060"))  # options are not broken at their hyphens
        self._fixed.setVisible(bool(why))
        self._controls.setVisible(not (why and hides_controls))
        self._head.setVisible(not (why and hides_controls))

    def show_settings(self, settings: Settings) -> None:
        """Start over from `settings`; pending changes are dropped."""
        self._in_force = settings
        self._wanted.clear()
        self._unsent.clear()
        self._version, self._after, self._drained = "", "", ("", "", False)
        self._show_head()
        self._show_all()

    def show_in_force(self, versioned: VersionedSettings, in_force_after_ms: float | None = None) -> None:
        """Show the settings in force; a control that is held or waits for an answer keeps its value."""
        self._in_force = versioned.settings
        for field, value in list(self._wanted.items()):
            if getattr(versioned.settings, field) == value and field not in self._unsent:
                del self._wanted[field]
        self._drop_impossible()
        version = f"v{versioned.version}"
        if version != self._version:
            self._drained = "", "", False  # is said of the version before
        if in_force_after_ms is not None:
            self._after = f"after {format_ms(in_force_after_ms)}"
        elif version != self._version:  # the answer to a change may come after telemetry has told the time
            self._after = ""
        self._version = version
        self._show_head()
        self._show_all()

    def _drop_impossible(self) -> None:
        """Drop pending changes that no longer go with the settings in force: another client may have changed those."""
        try:
            self._in_force.revised(self._wanted)
        except SettingError:
            self._wanted.clear()
            self._unsent.clear()

    def show_recorded(self, recorded: VersionedSettings | None) -> None:
        """Show the settings of a recording; ``None`` shows the user's again."""
        if recorded != self._recorded:
            self._recorded = recorded
            self._show_head()
            self._show_all()

    def show_moved(self, version: int) -> None:
        """Say of this version, once it is in force, that Hold has put it there."""
        self._moved_version = f"v{version}"
        self._show_head()

    def show_drained(self, words: str, brief: str, is_pending: bool = False) -> None:
        """Show when the batches of the settings before had run: "old settings drained after 1.8 s", or nothing.

        With `is_pending` no batch has obeyed the settings yet, and the words say what comes first.
        """
        if (words, brief, is_pending) != self._drained:
            self._drained = words, brief, is_pending
            self._show_head()

    def want(self, changes: Mapping[str, object]) -> None:
        """Ask for these values as if the user had set the controls to them, all in one change."""
        before = self._values(changes)
        if self._ask_for(changes):
            self._steps.note(before, changes, is_final=True)

    def undo(self) -> None:
        """Ask for what was set before the user's last step."""
        self._ask_for(self._steps.undone())

    def redo(self) -> None:
        """Ask once more for the step that was taken back."""
        self._ask_for(self._steps.redone())

    def _values(self, fields: Iterable[str]) -> dict[str, object]:
        settings = self.settings
        return {field: getattr(settings, field) for field in fields}

    def _ask_for(self, changes: Mapping[str, object]) -> bool:
        if not changes or not self.isEnabled():
            return False
        try:
            self._in_force.revised({**self._wanted, **changes})
        except SettingError as error:
            self.show_refusal(error.field, error.rule)
            return False
        self._wanted |= changes
        self._unsent |= changes
        self._show_all()
        self.considered.emit(self.settings, True)
        self._throttle.ask(True)
        return True

    def show_refusal(self, field: str, rule: str) -> None:
        """Show at the control of `field` which rule the value breaks."""
        self._wanted.pop(field, None)
        self._unsent.pop(field, None)
        self._show_all()
        if field in self._settings:
            self._settings[field].show_refusal(rule)

    def settle(self) -> None:
        """Go back to the settings in force: a change could not be sent."""
        self._wanted.clear()
        self._unsent.clear()
        self._show_all()

    def show_measured(self, mean_batch: float | None) -> None:
        entry = REGISTER["mean_batch"]
        text = "" if mean_batch is None else f"{entry.name} {entry.number(mean_batch)}"
        self._max_batch_size.show_measured(mean_batch, text)

    def focus_control(self, field: str) -> None:
        if field == "formation":
            self._formation.button(self._formation.key).setFocus(Qt.FocusReason.ShortcutFocusReason)
        elif field in SCALE_BOUNDS:
            self._limits.set_folded(False)
            self.redeployment.control(field).focus()
        elif field in self._settings:
            for group, fields in self._groups.items():
                group.set_folded(group.is_folded and field not in fields)
            self._settings[field].focus()

    def set_compact(self, compact: bool) -> None:
        for setting in (self._max_batch_size, self._batch_wait_timeout_s):
            setting.set_compact(compact)

    def _lay_out(self) -> None:
        formation = column(label("formation", "name"), self._formation, gap=tokens.GAP_1)
        parts = (formation, self._max_batch_size, self._batch_wait_timeout_s, self._release, self._limits)
        self._controls = box(column(*parts, gap=tokens.GAP_3))
        self._fixed.hide()
        whole = (section_head(TITLE, self._head), self._fixed, self._controls)
        self.setLayout(column(*whole, gap=tokens.GAP_HEAD, margins=SECTION_MARGINS))
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Minimum)

    def _group(self, fields: Iterable[str], *more: QWidget) -> QWidget:
        body, settings = QWidget(), [self._settings[field] for field in fields]
        for each in settings:
            each.set_plain()
        body.setLayout(column(*settings, *more, gap=tokens.GAP_1, margins=(tokens.GAP_1, 0, 0, 0)))
        return body

    # What the user wants ---------------------------------------------------------------------------------------------

    def _want_number(self, field: str, number: float, is_final: bool) -> None:
        self._want(field, _typed(field, number), is_final)

    def _want(self, field: str, value: object, is_final: bool) -> None:
        try:
            self._in_force.revised({**self._wanted, field: value})
        except SettingError as error:  # what was wanted before was right: it is this one that breaks the rule
            self.show_refusal(field, error.rule)
            return
        self._steps.note(self._values((field,)), {field: value}, is_final)
        self._wanted[field] = value
        self._unsent[field] = value
        self._show_derived()
        self.considered.emit(self.settings, is_final)
        self._throttle.ask(is_final)

    def _send(self) -> None:
        changes, self._unsent = self._unsent, {}
        if changes:
            self.settings_wanted.emit(changes)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._show_head()

    def _show_head(self) -> None:
        """Show as much of the head as fits; the tooltip has all of it."""
        version, after = (self._version, self._after) if self._recorded is None else (f"v{self._recorded.version}", "")
        in_force = f"{version} in force {after}" if after else version
        words, brief, is_pending = self._drained
        texts = [in_force]
        if version and version == self._moved_version and self._recorded is None:
            texts = [f"{version}, moved by Hold"]
        elif version and is_pending:
            texts = [f"{version}: {words}", f"{version} {brief}", f"{version} pending"]
        elif in_force and words:
            in_short = f"{version} {after}".rstrip()
            shortest = f"{version} {after.removeprefix('after ')}".rstrip()
            texts = [f"{in_force}, {words}", f"{in_short}, {brief}", f"{shortest}, {brief}", in_force]
        title = QFontMetrics(font(tokens.FONT_TITLE, tokens.WEIGHT_BOLD)).horizontalAdvance(TITLE)
        room = self.width() - 2 * tokens.PANEL_PADDING - title - tokens.GAP_2
        width_of = self._head.fontMetrics().horizontalAdvance
        self._head.setText(next((text for text in texts if width_of(text) <= room), texts[-1]))
        self._head.setToolTip(texts[0] if self._head.text() != texts[0] else "")

    def _show_all(self) -> None:
        settings = self._shown
        self._formation.choose(settings.formation)
        for field, setting in self._settings.items():
            if not setting.is_held:
                setting.set_number(float(getattr(settings, field)))
        self._show_derived()

    def _show_derived(self) -> None:
        settings = self._shown
        numbers = (settings.max_concurrent_batches, settings.max_queued_requests)
        is_joined = settings.formation == "continuous"  # elsewhere no prompt is read while others are decoded
        self._settings["prefill_chunk_tokens"].setVisible(is_joined)
        summary = " · ".join([*map(str, numbers), self.redeployment.summary])
        self._limits.set_summary(self.redeployment.progress or summary)
        self._release.set_summary(_release_summary(settings))


def _setting(field: str, decimals: int = 0, unit: str = "", width: int = tokens.WIDTH_NUMBER) -> Setting:
    bounds = BOUNDS[field]
    scale = Scale(bounds.low, bounds.high, integral=bounds.integral) if field in WITH_SLIDER else None
    return Setting(field, bounds, scale, decimals, unit, glossary.SETTINGS[field], width)


def _release_summary(settings: Settings) -> str:
    size = "any size" if settings.allow_small_batch else "full only"
    tick = f"every {settings.stride_s:g} s" if settings.stride_s else "at once"
    budget = [f"{settings.max_batch_tokens} tokens"] if settings.max_batch_tokens else []
    return " · ".join([size, tick, *budget])


def _typed(field: str, number: float) -> object:
    if field == "allow_small_batch":
        return bool(number)
    return int(number) if BOUNDS[field].integral else number
