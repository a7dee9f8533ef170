"""The window: toolbar above, three columns with splitters, status bar below; and the layout for each width."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from PySide6.QtCore import QEvent, QMimeData, QObject, Qt, QTimer, Signal
from PySide6.QtGui import QDragEnterEvent, QDropEvent, QKeySequence, QPaintEvent, QResizeEvent, QShortcut
from PySide6.QtWidgets import QBoxLayout, QScrollArea, QSplitter, QWidget

from gui.look import glossary, tokens
from gui.look.theme import FocusRing, Theme
from gui.panels import shortcuts
from gui.panels.batching import BatchingPanel
from gui.panels.figures_row import FiguresRow
from gui.panels.finder import Entry, Finder
from gui.panels.findings_panel import FindingsPanel
from gui.panels.load import LoadPanel
from gui.panels.log import LogPanel
from gui.panels.notice import Notice
from gui.panels.player import Player
from gui.panels.prompts import PromptsPanel
from gui.panels.requests import RequestsColumn, RequestsPanel
from gui.panels.scenarios import Scenario
from gui.panels.shortcuts import Shortcut, ShortcutHelp
from gui.panels.status_bar import StatusBar
from gui.panels.toolbar import Toolbar
from gui.panels.verdict_line import VerdictLine
from gui.panels.views import COMPARE, VIEWS, Views
from gui.session.lifecycle import LifeCycle, enabled
from gui.widgets import icons
from gui.widgets.labels import repolish
from gui.widgets.layouts import column, hairline, scrolled
from service.analysis.recording.format import OPENED
from service.messages.settings import Scale, VersionedSettings

TITLE: Final = "Batchscope"
_TERMS: Final = (
    *(Entry(f"{glossary.plot_title(name)}: how to read it", text) for name, text in glossary.PLOTS.items()),
    *(
        Entry(name, sentence)
        for name, sentence in glossary.GLOSSARY.items()
        if name not in glossary.FORMATIONS and name not in glossary.SETTINGS
    ),
)
SMALL_WIDTHS: Final = (tokens.WIDTH_LEFT_SMALL, tokens.WIDTH_RIGHT_SMALL)


class MainWindow(QWidget):
    """Lays the panels out; holds neither processes nor data."""

    recording_dropped = Signal(Path)  # the first recording among the files that were dropped on the window
    first_shown = Signal()  # once, after the first frame
    reserved = Signal(str)  # what has the service to itself from now on; "" where nothing has any more
    show_me_wanted = Signal()  # or, while that is played, its end
    details_closed = Signal()  # the user pressed Esc while details were shown

    def __init__(self, plots: QWidget, theme: Theme) -> None:
        super().__init__()
        self.plots = plots
        self._theme = theme
        self._is_compact: bool | None = None
        self._has_drawer = False
        self._was_shown = False
        self._holder = ""  # of the service, which no other load is to disturb
        self._is_lost = False
        self._is_fixed = False  # no settings can be changed
        self._why_closed = ""  # to requests
        self._instead: QWidget | None = None  # of prompts and requests
        self._widths = {False: (tokens.WIDTH_LEFT, tokens.WIDTH_RIGHT), True: SMALL_WIDTHS}
        self.toolbar = Toolbar()
        self.batching, self.load, self.findings = BatchingPanel(), LoadPanel(), FindingsPanel()
        self.figures, self.notice, self.log = FiguresRow(), Notice(), LogPanel()
        self.verdict, self.player = VerdictLine(), Player()
        self.prompts, self.requests = PromptsPanel(), RequestsPanel()
        self.requests_column = RequestsColumn(self.requests)
        self.status, self.views = StatusBar(), Views(self.plots)
        self._help: ShortcutHelp | None = None
        self.found_elsewhere: Callable[[], Iterable[Entry]] = tuple  # what the finder finds besides
        self._commands: list[tuple[Shortcut, Callable[[], object]]] = []
        self._lay_out()
        theme.changed.connect(self.toolbar.show_theme)
        self.toolbar.theme_button.clicked.connect(theme.toggle)
        self.toolbar.system_theme_action.triggered.connect(lambda: theme.set_preference("system"))
        self.toolbar.log_action.triggered.connect(self._toggle_log)
        self.toolbar.find_action.triggered.connect(self._find)
        self.toolbar.shortcuts_action.triggered.connect(self._show_shortcuts)
        self.toolbar.projector_action.toggled.connect(self.set_projecting)
        self.toolbar.drawer_button.clicked.connect(self.show_drawer)
        for show_log in (self.notice.starting.show_log, self.notice.failed.show_log):
            show_log.clicked.connect(self.log.show)
        self.notice.step_wanted.connect(self.toolbar.step_wanted)
        self.notice.ready.fire.clicked.connect(self.prompts.fire)
        self.notice.ready.run_load.clicked.connect(self.load.toggle)
        self.notice.ready.show_me.clicked.connect(self.show_me_wanted)
        self.notice.ready.scenarios.wanted.connect(self._run_scenario)
        self.toolbar.show_me_action.triggered.connect(self.show_me_wanted)
        self.status.log_button.clicked.connect(self._toggle_log)
        self.log.close_button.clicked.connect(self.log.hide)
        self.findings.control_wanted.connect(self.batching.focus_control)
        for asks in (self.findings, self.verdict):
            asks.change_wanted.connect(self.batching.want)
        self.verdict.load_wanted.connect(self.load.toggle)
        self.views.pages.currentChanged.connect(lambda _page: self._show_verdict_line())
        self._columns.splitterMoved.connect(lambda _at, _index: self._remember_widths())
        self._bind_shortcuts()
        self._ring = FocusRing(self)
        for place in (plots, self.views.pages):
            place.installEventFilter(self)
        self._include_plots()
        self.toolbar.step_button.setFocus(Qt.FocusReason.OtherFocusReason)  # or Qt gives it away as if by Tab
        self.show_life_cycle(LifeCycle.NOT_STARTED)
        self.toolbar.show_theme(theme.palette)

    # What is shown ---------------------------------------------------------------------------------------------------

    def show_life_cycle(self, state: LifeCycle, has_data: bool = False) -> None:
        """Show the state and the next step, and enable what may be clicked, in every panel."""
        self._life_cycle = state, has_data
        actions = enabled(state, has_data, self.is_reserved or self._is_lost, bool(self._why_closed))
        self.toolbar.show_state(state, actions)
        self.prompts.set_can_fire(actions.can_fire)
        waits_for = self._holder or ("the connection" if self._is_lost else "the service")
        self.notice.ready.set_can_run(actions.can_run_load)
        can_show_me = actions.can_run_load and not self._is_fixed
        self.toolbar.show_me_action.setEnabled(can_show_me)
        self.notice.ready.set_can_show_me(not self._is_fixed)
        why = self._why_closed if state is LifeCycle.RUNNING and self._why_closed else f"Waits for {waits_for}."
        self.load.set_can_run(actions.can_run_load, "" if actions.can_run_load else why)
        self.requests.set_can_cancel(actions.can_cancel_requests)
        can_change = actions.can_change_settings and not self._is_fixed
        self.batching.setEnabled(can_change and not self.batching.is_recorded)
        self.batching.redeployment.setEnabled(state is not LifeCycle.STARTING)

    def set_attaching(self, is_attaching: bool) -> None:
        """Offer to attach to a service that runs already, or to start one."""
        self.toolbar.set_attaching(is_attaching)
        self.notice.set_attaching(is_attaching)

    def set_fixed(self, why: str, is_ours: bool) -> None:
        """Say why no settings can be changed, in the place of the controls unless the service `is_ours`.

        Where they can, `why` is empty.
        """
        self._is_fixed = bool(why)
        self.batching.set_fixed(why, hides_controls=not is_ours)
        self.show_life_cycle(*self._life_cycle)

    def set_closed(self, why: str) -> None:
        """Say why no request can be sent; where they can, `why` is empty."""
        self._why_closed = why
        self.show_life_cycle(*self._life_cycle)

    def set_generates(self, generates: bool) -> None:
        """Show prompts that are continued token by token, or else inputs of a function."""
        for panel in (self.load, self.prompts, self.requests):
            panel.set_generates(generates)

    def show_recorded_settings(self, recorded: VersionedSettings | None, scale: Scale | None = None) -> None:
        """Show a recording's settings in the controls; ``None`` gives the controls back to the user."""
        was_recorded = self.batching.is_recorded
        self.batching.show_recorded(recorded)
        self.batching.redeployment.show_recorded(scale)
        if self.batching.is_recorded != was_recorded:
            self.show_life_cycle(*self._life_cycle)

    def reserve(self, holder: str = "") -> None:
        """Disable what would disturb the one that has the service to itself, or enable it again."""
        self._holder = holder
        self.show_life_cycle(*self._life_cycle)
        self.reserved.emit(holder)

    def set_lost(self, is_lost: bool) -> None:
        """Disable what nobody would hear while a service cannot be reached, or enable it again."""
        if is_lost != self._is_lost:
            self._is_lost = is_lost
            self.toolbar.set_detail("")
            self.show_life_cycle(*self._life_cycle)

    @property
    def is_reserved(self) -> bool:
        return bool(self._holder)

    def show_in_right(self, widget: QWidget | None) -> None:
        """Show this instead of prompts and requests; ``None``: those again."""
        for each in self._prompts_and_requests:
            each.setVisible(widget is None)
        if widget is None and self.is_projecting:
            self._right.hide()
        if self._instead is not None:
            self._instead.setVisible(self._instead is widget)
        self._instead = widget or self._instead
        if widget is not None:
            self._right_layout.addWidget(widget, 1)
            widget.show()
            self._right.show()
        self._adapt()

    @property
    def _is_taught(self) -> bool:
        """Whether the right column shows something in the place of prompts and requests."""
        return self._instead is not None and not self._instead.isHidden()

    @property
    def is_projecting(self) -> bool:
        """Whether the window is as a projector needs it: large type, and beside the plots nothing but a lesson."""
        return self._theme.is_large

    def set_projecting(self, is_projecting: bool) -> None:
        self._theme.set_large(is_projecting)
        self.toolbar.projector_action.setChecked(is_projecting)
        self._right.setVisible(self._is_taught or not (is_projecting or self._has_drawer))
        self.toolbar.set_drawer(self._has_drawer, is_open=not self._right.isHidden())
        self._is_compact = None
        self._adapt()

    def watch_focus(self, of: QWidget) -> None:
        """Surround what is in this widget when the keyboard comes to it; for what is made after the window."""
        for each in (of, *of.findChildren(QWidget)):
            self._ring.watch(each)

    def show_log(self, visible: bool) -> None:
        self.log.setVisible(visible)

    def put_above_views(self, widget: QWidget) -> None:
        self._upper.insertWidget(self._upper.indexOf(self.views), widget)
        self.watch_focus(widget)

    def put_details(self, details: QWidget) -> None:
        self.requests_column.put(details)
        self.watch_focus(details)

    def show_details(self, visible: bool) -> None:
        """Show or hide the details; they open the drawer in a narrow window."""
        self.requests_column.show_details(visible)
        if visible:
            self.show_drawer(True)

    def show_drawer(self, visible: bool) -> None:
        """Show or hide the right panel over the centre of a window too narrow for three columns."""
        if self._has_drawer:
            self._right.setVisible(visible)
            self._place_drawer()
            self.toolbar.set_drawer(True, visible)

    # Remembered layout -----------------------------------------------------------------------------------------------

    def layout_state(self) -> dict[str, object]:
        """Sizes and choices for the preferences, as JSON values."""
        self._remember_widths()
        return {
            "size": [self.width(), self.height()],
            "is_maximized": self.isMaximized(),
            "widths": list(self._widths[False]),
            "widths_compact": list(self._widths[True]),
            "log_height": self._centre.sizes()[1] or tokens.HEIGHT_LOG,
            "view": self.views.key,
        }

    def restore_layout(self, state: Mapping[str, object]) -> None:
        """Restore what `layout_state` returned; invalid entries are ignored."""
        for compact, key in ((False, "widths"), (True, "widths_compact")):
            widths = _two_numbers(state.get(key))
            if widths is not None:
                self._widths[compact] = (_side_width(widths[0]), _side_width(widths[1]))
        size = _two_numbers(state.get("size"))
        if size is not None:
            self.resize(max(size[0], tokens.WINDOW_MIN[0]), max(size[1], tokens.WINDOW_MIN[1]))
        if state.get("is_maximized") is True:
            self.setWindowState(Qt.WindowState.WindowMaximized)
        self.views.show_view(str(state.get("view")))
        self._is_compact = None
        self._adapt()

    def _lay_out(self) -> None:
        self.setWindowTitle(TITLE)
        self.setMinimumSize(*tokens.WINDOW_MIN)
        self.setAcceptDrops(True)
        self.resize(*tokens.WINDOW_DEFAULT)
        self._left = _scrolled(_panel(self.batching, hairline(), self.load, hairline(), self.findings))
        self._prompts_and_requests = (self.prompts, hairline(), self.requests_column)
        self._right = _panel(*self._prompts_and_requests)
        layout = self._right.layout()
        assert isinstance(layout, QBoxLayout)
        self._right_layout = layout
        self._centre = self._made_centre()
        self._columns = QSplitter(Qt.Orientation.Horizontal)
        for each, stretch in ((self._left, 0), (self._centre, 1), (self._right, 0)):
            self._columns.addWidget(each)
            self._columns.setStretchFactor(self._columns.indexOf(each), stretch)
            self._columns.setCollapsible(self._columns.indexOf(each), False)
        self._columns.setHandleWidth(tokens.HAIRLINE)
        self.setLayout(column(self.toolbar, self._columns, self.status, gap=0))
        self.log.hide()

    def _made_centre(self) -> QSplitter:
        upper = QWidget()
        upper.setObjectName("centre")
        upper.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        above = (self.figures, self.verdict, self.notice, self.player)
        self._upper = column(*above, self.views, gap=0, stretch=self.views)
        upper.setLayout(self._upper)
        centre = QSplitter(Qt.Orientation.Vertical)
        centre.setHandleWidth(tokens.HAIRLINE)
        centre.setMinimumWidth(tokens.WIDTH_CENTRE_MIN)
        centre.addWidget(upper)
        centre.addWidget(self.log)
        centre.setStretchFactor(0, 1)
        centre.setCollapsible(0, False)
        centre.setSizes([tokens.WINDOW_DEFAULT[1], tokens.HEIGHT_LOG])
        return centre

    def _bind_shortcuts(self) -> None:
        self._bind(shortcuts.STEP, self.toolbar.take_step)
        self._bind(shortcuts.FIRE, self.prompts.fire)
        self._bind(shortcuts.SHOW_ME, self.toolbar.show_me_action.trigger)
        self._bind(shortcuts.LOAD, self.load.toggle)
        self._bind(shortcuts.PAUSE_LOAD, self.load.toggle_pause)
        self._bind(shortcuts.FREEZE, self.toolbar.toggle_freeze)
        self._bind(shortcuts.EXPORT, self.toolbar.pop_up_export)
        self._bind(shortcuts.RECORD, self.toolbar.record_action.trigger)
        self._bind(shortcuts.SAVE, self.toolbar.save_action.trigger)
        self._bind(shortcuts.OPEN, self.toolbar.open_action.trigger)
        self._bind(shortcuts.NOTE, self.toolbar.note_action.trigger)
        self._bind(shortcuts.CLOSE_RECORDING, self.toolbar.close_action.triggered.emit)  # also while it is hidden
        self._bind(shortcuts.CANCEL_ALL, self.requests.cancel_all)
        self._bind(shortcuts.LOG, self._toggle_log)
        self._bind(shortcuts.THEME, self._theme.toggle)
        self._bind(shortcuts.PROJECTOR, lambda: self.set_projecting(not self.is_projecting))
        self._bind(shortcuts.DRAWER, lambda: self.show_drawer(self._right.isHidden()))
        self._bind(shortcuts.PROMPTS, lambda: self._go_to(self.prompts.editor))
        self._bind(shortcuts.REQUESTS, lambda: self._go_to(self.requests.table))
        self._bind(shortcuts.UNDO, self.batching.undo)
        self._bind(shortcuts.REDO, self.batching.redo)
        self._bind(shortcuts.FIND, self._find)
        self._bind(shortcuts.HELP, self._show_shortcuts)
        self._bind(shortcuts.QUIT, self.close)
        for shortcut, seconds in zip(shortcuts.WINDOWS, tokens.TIME_WINDOWS_S, strict=True):
            self._bind(shortcut, partial(self.toolbar.choose_window, seconds))
        for view in VIEWS:
            self._bind(view.shortcut, partial(self.views.show_view, view.key))
        self._bind(Shortcut("Esc", "Close the request, the log or the drawer"), self._on_escape)

    def _bind(self, shortcut: Shortcut, does: Callable[[], object]) -> None:
        QShortcut(QKeySequence(shortcut.keys), self).activated.connect(does)
        self._commands.append((shortcut, does))

    # Events ----------------------------------------------------------------------------------------------------------

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched in (self.plots, self.views.pages) and event.type() == QEvent.Type.ChildAdded:
            QTimer.singleShot(0, self, self._include_plots)  # the child is not yet what it will be
        return super().eventFilter(watched, event)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if _recording_in(event.mimeData()) is not None:
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        recording = _recording_in(event.mimeData())
        if recording is not None:
            event.acceptProposedAction()
            self.recording_dropped.emit(recording)

    def focusNextPrevChild(self, next: bool) -> bool:
        """Qt asks for this, too, when the widget with the focus disappears: nothing else is to be stressed then."""
        focused = self.focusWidget()
        if focused is not None and not focused.isVisible():
            self.setFocus()
            return True
        return super().focusNextPrevChild(next)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._adapt()

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if not self._was_shown:
            self._was_shown = True
            QTimer.singleShot(0, self, self._on_first_shown)

    def _on_first_shown(self) -> None:
        self.first_shown.emit()
        self._ring.settle()
        icons.load()

    def _include_plots(self) -> None:
        """Add focus ring and tab order to views that were added after the window was built."""
        before: QWidget = self.verdict.button
        QWidget.setTabOrder(self.findings.last_in_tab_order, before)
        for widget in self.views.findChildren(QWidget):
            self._ring.watch(widget)
            if widget.focusPolicy() & Qt.FocusPolicy.TabFocus:
                QWidget.setTabOrder(before, widget)
                before = widget

    def _show_verdict_line(self) -> None:
        """It is of the present, of which Compare shows nothing."""
        self.verdict.setVisible(self.views.key != COMPARE)

    def _on_escape(self) -> None:
        if not self.player.isHidden():
            self.show_me_wanted.emit()
        elif self.requests_column.shows_details:
            self.details_closed.emit()
        elif not self.log.isHidden():
            self.show_log(False)
        elif self._has_drawer:
            self.show_drawer(False)

    def _run_scenario(self, scenario: Scenario) -> None:
        """Show the load in its panel, and run it."""
        self.load.take(scenario)
        if not self.load.is_running:
            self.load.toggle()

    def _toggle_log(self) -> None:
        self.show_log(self.log.isHidden())

    def _go_to(self, widget: QWidget) -> None:
        self.show_drawer(True)
        widget.setFocus(Qt.FocusReason.ShortcutFocusReason)

    def _find(self) -> None:
        found = (*self._found_commands(), *self.found_elsewhere(), *self._found_settings(), *_TERMS)
        finder = Finder(self, found)
        finder.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        finder.open()

    def _found_commands(self) -> Iterator[Entry]:
        for shortcut, does in self._commands:
            if shortcut in shortcuts.ALL and shortcut is not shortcuts.FIND:
                yield Entry(shortcut.does, shortcut.native, does)
        for action in (self.toolbar.system_theme_action, self.toolbar.about_action):
            yield Entry(action.text(), "In the menu ⋮.", action.trigger)

    def _found_settings(self) -> Iterator[Entry]:
        for name, sentence in glossary.FORMATIONS.items():
            yield Entry(f"formation: {name}", sentence, partial(self.batching.want, {"formation": name}))
        for field, sentence in glossary.SETTINGS.items():
            yield Entry(field, sentence, partial(self.batching.focus_control, field))

    def _show_shortcuts(self) -> None:
        if self._help is None:
            self._help = ShortcutHelp(self)
        self._help.show()
        self._help.raise_()

    # Widths ----------------------------------------------------------------------------------------------------------

    def _adapt(self) -> None:
        compact, narrow = self.width() < tokens.BREAKPOINT_COMPACT, self.width() < tokens.BREAKPOINT_DRAWER
        self._left.setVisible(not (self.is_projecting or (narrow and self._is_taught)))  # a lesson leaves it unused
        self._adapt_drawer(narrow and not self._is_taught)
        self.notice.ready.set_low(self.height() < tokens.BREAKPOINT_LOW)
        if compact != self._is_compact:
            self._is_compact = compact
            for panel in (self.toolbar, self.figures, self.batching, self.prompts):
                panel.set_compact(compact)
            self._apply_widths()
        self._place_drawer()

    def _adapt_drawer(self, wanted: bool) -> None:
        if wanted == self._has_drawer:
            return
        self._has_drawer = wanted
        if wanted:
            self._right.setParent(self)
            self._name_right("drawer")
            self._right.hide()
        else:
            self._name_right("panel")
            self._columns.addWidget(self._right)
            self._columns.setStretchFactor(2, 0)
            self._columns.setCollapsible(2, False)
            self._right.setVisible(self._is_taught or not self.is_projecting)
        self._apply_widths()
        self.toolbar.set_drawer(wanted, is_open=False)

    def _name_right(self, name: str) -> None:
        self._right.setObjectName(name)
        repolish(self._right)

    def _place_drawer(self) -> None:
        if self._has_drawer:
            top = tokens.HEIGHT_TOOLBAR
            height = self.height() - top - self.status.height()
            width = tokens.WIDTH_RIGHT
            self._right.setGeometry(self.width() - width, top, width, height)
            self._right.raise_()

    def _apply_widths(self) -> None:
        left, right = self._widths[bool(self._is_compact)]
        if self._left.isHidden():
            left, right = 0, tokens.WIDTH_RIGHT
        if self._has_drawer:
            self._columns.setSizes([left, self.width() - left])
        else:
            self._columns.setSizes([left, self.width() - left - right - 2 * tokens.HAIRLINE, right])

    def _remember_widths(self) -> None:
        if self._is_compact is not None and not (self._has_drawer or self._left.isHidden()) and self._was_shown:
            sizes = self._columns.sizes()
            self._widths[self._is_compact] = (sizes[0], sizes[2])


def _panel(*parts: QWidget) -> QWidget:
    panel = QWidget()
    panel.setObjectName("panel")
    panel.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
    panel.setMinimumWidth(tokens.WIDTH_SIDE_MIN)
    panel.setMaximumWidth(tokens.WIDTH_SIDE_MAX)
    layout = column(*parts, gap=0)
    layout.setStretch(len(parts) - 1, 1)
    panel.setLayout(layout)
    return panel


def _scrolled(panel: QWidget) -> QScrollArea:
    """The panel in an area that scrolls if the window is too low for its controls."""
    area = scrolled(panel)
    area.setMinimumWidth(tokens.WIDTH_SIDE_MIN)
    area.setMaximumWidth(tokens.WIDTH_SIDE_MAX)
    panel.setMinimumWidth(0)
    return area


def _recording_in(dragged: QMimeData) -> Path | None:
    """The first recording or result among the dragged files, or ``None``."""
    files = (url.toLocalFile() for url in dragged.urls())
    return next((Path(file) for file in files if file.endswith(OPENED)), None)


def _two_numbers(value: object) -> tuple[int, int] | None:
    if isinstance(value, Sequence) and len(value) == 2 and all(isinstance(each, int) for each in value):
        return value[0], value[1]
    return None


def _side_width(width: int) -> int:
    return min(tokens.WIDTH_SIDE_MAX, max(tokens.WIDTH_SIDE_MIN, width))
