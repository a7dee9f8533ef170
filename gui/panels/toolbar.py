"""The toolbar: the next step of the life cycle, model and device, the state, and the view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QAction, QActionGroup, QGuiApplication
from PySide6.QtWidgets import QMenu, QSizePolicy, QWidget

from gui.look import tokens
from gui.look.theme import scaled
from gui.look.tokens import Palette
from gui.panels import shortcuts
from gui.session.lifecycle import EnabledActions, LifeCycle, Step, enabled
from gui.widgets.buttons import Button, Chooser, menu_of, pop_up
from gui.widgets.glyphs import Glyph, Shape
from gui.widgets.labels import ElidedLabel, label, set_role
from gui.widgets.layouts import box, column, hairline, row
from gui.widgets.model_field import ModelField
from gui.widgets.segmented import Segmented
from service.messages.text import format_time

STEP_FACES: Final[Mapping[Step, tuple[str, str, str]]] = {  # words, icon, tip
    "start": ("Start", "ph.play-fill", "Start the service"),
    "cancel": ("Cancel", "ph.x", "Cancel the start"),
    "stop": ("Stop", "ph.stop-fill", "Stop the service"),
    "restart": ("Restart", "ph.arrow-clockwise", "Start the service again"),
}
ATTACHING_FACES: Final[Mapping[Step, tuple[str, str, str]]] = {
    "start": ("Attach", "ph.link", "Look at the running service"),
    "cancel": ("Cancel", "ph.x", "Attach to nothing"),
    "stop": ("Detach", "ph.eject-fill", "Leave the service, which runs on"),
    "restart": ("Attach", "ph.link", "Look for the service again"),
}
STATE_FACES: Final[Mapping[LifeCycle, tuple[str, Shape, str]]] = {  # word, shape, ink
    LifeCycle.NOT_STARTED: ("Not started", "circle", "t2"),
    LifeCycle.STARTING: ("Starting", "arc", "t1"),
    LifeCycle.RUNNING: ("Running", "dot", "t1"),
    LifeCycle.STOPPING: ("Stopping", "arc", "t1"),
    LifeCycle.FAILED: ("Failed", "alert", "error"),
}
ATTACHED_WORDS: Final[Mapping[LifeCycle, str]] = {
    LifeCycle.NOT_STARTED: "Not attached",
    LifeCycle.STARTING: "Attaching",
    LifeCycle.RUNNING: "Attached",
    LifeCycle.STOPPING: "Detaching",
    LifeCycle.FAILED: "Failed",
}
WINDOW_NAMES: Final[Mapping[float, str]] = {30: "30 s", 60: "1 min", 300: "5 min", 600: "10 min"}
DEVICES: Final[Mapping[str, str]] = {"auto": "Auto", "cpu": "CPU", "cuda": "CUDA", "mps": "MPS"}
ELSEWHERE: Final = "Elsewhere"
DTYPES: Final[Mapping[str, str]] = {"auto": "", "bfloat16": "bf16", "float16": "f16", "float32": "f32", "int8": "int8"}
EXPORTS: Final[Mapping[str, str]] = {
    "figures": "Figures as a table…",
    "requests": "Requests as a table…",
    "batches": "Batches as a table…",
    "plots_png": "Plots as PNG…",
    "window_png": "Window as PNG…",
}


DEVICE_TIP: Final = "Where the model runs, and in which precision; Auto takes the best there is"
ZOOMED: Final = "zoomed"  # the key of the span that the user zoomed to
UNFREEZE: Final = "Unfreeze"
SHOW_ME: Final = "Show me why batching matters"
RECORD: Final = f"Record to a file…\t{shortcuts.RECORD.native}"
STOP_RECORDING: Final = f"Stop recording\t{shortcuts.RECORD.native}"


class Toolbar(QWidget):
    """Shows the state of the service and the choices for its start and for the view."""

    step_wanted = Signal(str)
    model_chosen = Signal(str)
    token_file_chosen = Signal(str)
    device_chosen = Signal(str)
    dtype_chosen = Signal(str)
    window_chosen = Signal(float)
    freeze_toggled = Signal(bool)
    export_wanted = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("toolbar")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setFixedHeight(tokens.HEIGHT_TOOLBAR)
        self._step: Step = "start"
        self._url: str | None = None
        self._device, self._dtype = "auto", "auto"
        self._is_compact = False
        self._is_attaching = False
        self._life_cycle = LifeCycle.NOT_STARTED, enabled(LifeCycle.NOT_STARTED)
        self._create_start()
        self._create_state()
        self._create_view()
        self._lay_out()
        self.step_button.clicked.connect(self.take_step)
        self._model.chosen.connect(self.model_chosen)
        self._model.token_file_chosen.connect(self.token_file_chosen)
        self._device_button.clicked.connect(lambda: pop_up(self._device_menu, self._device_button))
        self._device_menu.triggered.connect(self._on_device_picked)
        self._copy.clicked.connect(self._on_copy_clicked)
        self._windows.chosen.connect(lambda key: self.choose_window(float(key)))
        self._window_button.clicked.connect(lambda: pop_up(self._window_menu, self._window_button))
        self._window_menu.triggered.connect(lambda action: self.choose_window(action.data()))
        self.freeze_button.clicked.connect(self.freeze_toggled)
        self.export_button.clicked.connect(self.pop_up_export)
        self.export_menu.triggered.connect(lambda action: self.export_wanted.emit(action.data()))
        self._more_button.clicked.connect(lambda: pop_up(self._more_menu, self._more_button))

    # What is shown ---------------------------------------------------------------------------------------------------

    def set_attaching(self, is_attaching: bool) -> None:
        """Offer to attach to a service that runs already, or to start one."""
        self._is_attaching = is_attaching
        self.show_state(*self._life_cycle)

    def show_state(self, state: LifeCycle, actions: EnabledActions) -> None:
        self._life_cycle = state, actions
        self._step = actions.step
        words, icon, tip = (ATTACHING_FACES if self._is_attaching else STEP_FACES)[actions.step]
        self.step_button.setText(words)
        self.step_button.set_icon(icon)
        self.step_button.setToolTip(shortcuts.STEP.tip(tip))
        self.step_button.setEnabled(actions.can_step)
        self.close_action.setVisible(False)
        word, shape, ink = STATE_FACES[state]
        self._state_glyph.show_shape(shape, ink)
        self._state_word.setText(ATTACHED_WORDS[state] if self._is_attaching else word)
        set_role(self._state_word, "failed" if state is LifeCycle.FAILED else "strong")
        for control in (self._model, self._device_button):
            if control.hasFocus() and not actions.can_choose_model:
                self.step_button.setFocus()  # or Qt gives it to whatever comes next
            control.setEnabled(actions.can_choose_model)
        self._device_button.setEnabled(actions.can_choose_model and not self._is_attaching)
        self.freeze_button.setEnabled(actions.can_freeze)
        self.export_button.setEnabled(actions.can_export)
        self._place_state()

    def show_reconnecting(self, lost_for_s: float) -> None:
        """Show that the service cannot be reached at present, and since when."""
        self._state_glyph.show_shape("arc", "t1")
        self._state_word.setText("Reconnecting")
        self.set_detail(f"lost {format_time(lost_for_s)} ago")

    def set_detail(self, text: str) -> None:
        """Show a detail beside the state's word: "12 s", "at 14:32:07"."""
        self._detail.setText(text)
        self._detail.setVisible(bool(text))

    def set_url(self, url: str | None) -> None:
        self._url = url
        self._address.setText(url.removeprefix("http://") if url else "")
        self._address.setVisible(url is not None)
        self._copy.setVisible(url is not None)

    def set_uptime_s(self, seconds: float | None) -> None:
        self._uptime.setText("" if seconds is None else f"up {format_time(int(seconds))}")
        self._place_state()

    def offer_addresses(self, addresses: Sequence[str]) -> None:
        """Offer to attach to the services there."""
        self._model.set_addresses(addresses)

    def set_models(self, specs: Sequence[str], functions: Sequence[str], chosen: str) -> None:
        """Offer these text generators, and these other workloads."""
        self._model.set_suggestions(specs, functions)
        self._model.set_spec(chosen)

    def show_model_in_force(self, model: str, why: str) -> None:
        """Show the model that the service took, and on hover a sentence that says why."""
        self._model.show_in_force(model, why)

    def set_device(self, device: str, dtype: str) -> None:
        """Show the wanted device and dtype; "auto" leaves them to the service."""
        self._device, self._dtype = device, dtype
        for action in self._device_menu.actions():
            if action.data() is not None:
                action.setChecked(action.data() in (("device", device), ("dtype", dtype)))
        self._device_button.show_choice(DEVICES.get(device, device), DTYPES.get(dtype, dtype))
        self._device_button.setToolTip(DEVICE_TIP)

    def show_device_in_force(self, device: str, dtype: str, why: str = "") -> None:
        """Show the device and dtype that the service chose, and on hover the sentence that says why this device."""
        shown = DEVICES.get(device, device.upper()) or ELSEWHERE  # of a server that does not say where it computes
        self._device_button.show_choice(shown, DTYPES.get(dtype, dtype))
        self._device_button.setToolTip("\n".join(filter(None, (DEVICE_TIP, why))))

    def set_window_s(self, seconds: float) -> None:
        is_zoomed = seconds not in WINDOW_NAMES
        name = _span_name(seconds) if is_zoomed else WINDOW_NAMES[seconds]
        self._windows.choose(ZOOMED if is_zoomed else f"{seconds:g}")
        self._windows.set_shown(ZOOMED, is_zoomed)
        if is_zoomed:
            self._windows.button(ZOOMED).setText(name)
            self._windows.button(ZOOMED).setAccessibleName(f"Time window: {name}")
        self._window_button.show_choice(name)

    def set_frozen(self, frozen: bool, at: str = "", arrived: int = 0) -> None:
        self.freeze_button.setChecked(frozen)
        self.freeze_button.setText(UNFREEZE if frozen else "Freeze")
        does = "Follow the present again" if frozen else "Freeze the plots"
        self.freeze_button.setToolTip(shortcuts.FREEZE.tip(does))
        self.freeze_button.set_icon("ph.play-fill" if frozen else "ph.pause-fill")
        parts = [f"at {at}" if at else "", f"{arrived} new" if arrived else ""]
        self._chip.setText(" · ".join(part for part in parts if part))
        self._chip.setVisible(frozen and bool(self._chip.text()))

    def set_recording(self, is_recording: bool) -> None:
        self.record_action.setText(STOP_RECORDING if is_recording else RECORD)

    def show_replay(self, name: str, clock_time: str) -> None:
        """Show a recording's name and time of day in place of a state."""
        self._state_glyph.show_shape("circle", "t2")
        self._state_word.setText("Recording")
        self.close_action.setVisible(True)
        self.set_detail(f"{name} at {clock_time}")

    def set_compact(self, compact: bool) -> None:
        self._is_compact = compact
        self._windows.setVisible(not compact)
        self._window_button.setVisible(compact)
        self._place_state()

    def set_drawer(self, offered: bool, is_open: bool) -> None:
        self.drawer_button.setVisible(offered)
        self._model.setFixedWidth(scaled(tokens.WIDTH_MODEL_SMALL if offered else tokens.WIDTH_MODEL))
        self._device_button.setFixedWidth(scaled(tokens.WIDTH_DEVICE_SMALL if offered else tokens.WIDTH_DEVICE))
        self.step_button.setFixedWidth(scaled(tokens.WIDTH_LIFE_CYCLE))
        self.freeze_button.setFixedWidth(scaled(self._freeze_width))
        self.drawer_button.setChecked(is_open)

    # What is done ----------------------------------------------------------------------------------------------------

    def take_step(self) -> None:
        """Emit the next step, if it is enabled."""
        if self.step_button.isEnabled():
            self.step_wanted.emit(self._step)

    def toggle_freeze(self) -> None:
        if self.freeze_button.isEnabled():
            self.freeze_button.click()

    def pop_up_export(self) -> None:
        if self.export_button.isEnabled():
            pop_up(self.export_menu, self.export_button)

    def choose_window(self, seconds: float) -> None:
        """Show and emit this time window."""
        self.set_window_s(seconds)
        self.window_chosen.emit(seconds)

    def _create_start(self) -> None:
        self.step_button = Button("Start", "ph.play-fill", large=True)
        self._model = ModelField()
        self._device_button = Chooser("Auto", large=True, name="Device and dtype", tip=DEVICE_TIP)
        self._device_menu = self._made_device_menu()

    def _create_state(self) -> None:
        self._state_glyph = Glyph("circle")
        self._state_word = label("Not started", "strong")
        self._detail = ElidedLabel("", "text")
        self._address = ElidedLabel("", "text")
        self._copy = Button(icon="ph.copy", role="icon", name="Copy the address", tip="Copy the address")
        self._uptime = ElidedLabel("", "text")

    def _create_view(self) -> None:
        self._chip = label("", "chip")
        self._chip.setFixedHeight(tokens.HEIGHT_CHIP)
        self._chip.setToolTip("The plots stand still at this time; the number counts requests that have finished since")
        spans = [*((f"{s:g}", text) for s, text in WINDOW_NAMES.items()), (ZOOMED, "")]
        self._windows = Segmented(spans, "Time window", large=True)
        self._window_button = Chooser(large=True, name="Time window")
        self._window_button.setFixedWidth(tokens.WIDTH_TIME_WINDOW)
        self._window_menu = menu_of(self, [(text, s) for s, text in WINDOW_NAMES.items()])
        self.freeze_button = Button(UNFREEZE, "ph.pause-fill", large=True)
        self._freeze_width = self.freeze_button.sizeHint().width()  # kept, so that nothing moves when it is pressed
        self.freeze_button.setCheckable(True)
        self.export_button = Button("Export", "ph.export", large=True, tip=shortcuts.EXPORT.tip())
        self.export_menu = menu_of(self, [(text, key) for key, text in EXPORTS.items()])
        self.theme_button = Button(icon="ph.sun", role="icon", name="Light or dark", tip=shortcuts.THEME.tip())
        beside = "Prompts and requests"
        self.drawer_button = Button(icon="ph.columns", role="icon", name=beside, tip=shortcuts.DRAWER.tip(beside))
        self.drawer_button.setCheckable(True)
        self._more_button = Button(
            icon="ph.dots-three-vertical",
            role="icon",
            name="More",
            tip="Recordings, Show me, lessons, log, theme, keyboard shortcuts",
        )
        self._more_menu = self._made_more_menu()

    def _lay_out(self) -> None:
        divider = hairline(vertical=True)
        divider.setFixedHeight(tokens.HEIGHT_DIVIDER)
        words = (self._state_glyph, self._state_word, tokens.GAP_1, self._detail)
        self._state_box = box(row(*words, self._address, self._copy, self._uptime, None))
        self._state_box.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        view = (self._chip, self._windows, self._window_button, self.freeze_button, self.export_button)
        tools = row(self.theme_button, self.drawer_button, self._more_button, gap=0)
        start = (self.step_button, self._model, self._device_button, tokens.GAP_1, divider, tokens.GAP_1)
        above = (tokens.HEIGHT_TOOLBAR - tokens.HAIRLINE - tokens.HEIGHT_CONTROL_TOOLBAR) // 2
        margins = (tokens.GAP_3, above, tokens.GAP_3, above)
        bar = row(*start, self._state_box, *view, tools, margins=margins, stretch=self._state_box)
        self.setLayout(column(bar, None, hairline(), gap=0))
        for hidden in (self._detail, self._chip, self._window_button):
            hidden.hide()
        self.set_drawer(offered=False, is_open=False)
        self.set_url(None)
        self.set_window_s(60)
        self.set_frozen(False)

    def _made_device_menu(self) -> QMenu:
        menu = QMenu(self)
        for kind, names in (("device", DEVICES), ("dtype", DTYPES)):
            group = QActionGroup(menu)
            for key, name in names.items():
                action = QAction("Precision: auto" if (kind, key) == ("dtype", "auto") else (name or key), menu)
                action.setCheckable(True)
                action.setData((kind, key))
                action.setChecked(key == "auto")
                group.addAction(action)
                menu.addAction(action)
            menu.addSeparator()
        self.deterministic_action = menu.addAction("Deterministic: no answer depends on its batch")
        self.deterministic_action.setCheckable(True)
        return menu

    def _made_more_menu(self) -> QMenu:
        menu = QMenu(self)
        self.record_action = menu.addAction(RECORD)
        self.save_action = menu.addAction(f"Save the last ten minutes…\t{shortcuts.SAVE.native}")
        self.open_action = menu.addAction(f"Open a recording…\t{shortcuts.OPEN.native}")
        self.note_action = menu.addAction(f"Note this moment…\t{shortcuts.NOTE.native}")
        self.close_action = menu.addAction(f"Close the recording\t{shortcuts.CLOSE_RECORDING.native}")
        self.close_action.setVisible(False)
        menu.addSeparator()
        self.show_me_action = menu.addAction(f"{SHOW_ME}\t{shortcuts.SHOW_ME.native}")
        self.lessons_menu = menu.addMenu("Lessons")
        menu.addSeparator()
        self.log_action = menu.addAction("Service log")
        self.system_theme_action = menu.addAction("Follow the system's light and dark")
        self.projector_action = menu.addAction(f"For a projector\t{shortcuts.PROJECTOR.native}")
        self.projector_action.setCheckable(True)
        self.find_action = menu.addAction(f"Find…\t{shortcuts.FIND.native}")
        self.shortcuts_action = menu.addAction("Keyboard shortcuts")
        self.about_action = menu.addAction("About Batchscope")
        return menu

    def _place_state(self) -> None:
        self._uptime.setVisible(bool(self._uptime.text()) and not self._is_compact)

    def _on_device_picked(self, action: QAction) -> None:
        if action is self.deterministic_action:
            return
        kind, key = action.data()
        if kind == "device":
            self.set_device(key, self._dtype)
            self.device_chosen.emit(key)
        else:
            self.set_device(self._device, key)
            self.dtype_chosen.emit(key)

    def _on_copy_clicked(self) -> None:
        if self._url is not None:
            QGuiApplication.clipboard().setText(self._url)

    def show_theme(self, palette: Palette) -> None:
        self.theme_button.set_icon("ph.sun" if palette.is_dark else "ph.moon")


def _span_name(seconds: float) -> str:
    """
    >>> _span_name(48.83), _span_name(2.56), _span_name(468.75)
    ('49 s', '2.6 s', '7.8 min')
    """
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min"
