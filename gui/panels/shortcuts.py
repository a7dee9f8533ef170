"""Every shortcut of the window in one table, which tooltips, bindings and the help read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeySequence
from PySide6.QtWidgets import QDialog, QGridLayout, QWidget

from gui.look import tokens
from gui.widgets.labels import label


@dataclass(frozen=True)
class Shortcut:
    """Keys, and what they do."""

    keys: str
    does: str

    @property
    def native(self) -> str:
        """The keys as the system writes them: "Ctrl+R", "⌘R"."""
        return QKeySequence(self.keys).toString(QKeySequence.SequenceFormat.NativeText)

    @property
    def hint(self) -> str:
        """The keys as a button shows them."""
        return self.native.replace("Return", "↵").replace("+", " ")

    def tip(self, text: str = "") -> str:
        """A tooltip that ends with the shortcut; without `text` it says what the shortcut does."""
        return f"{text or self.does} ({self.native})"


STEP: Final = Shortcut("Ctrl+R", "Start, cancel, stop or restart the service")
FIRE: Final = Shortcut("Ctrl+Return", "Fire the prompts")
SHOW_ME: Final = Shortcut("Ctrl+M", "Show in a minute why batching matters, or end that")
LOAD: Final = Shortcut("Ctrl+L", "Run or stop the load")
PAUSE_LOAD: Final = Shortcut("Ctrl+Shift+L", "Pause or resume the load")
FREEZE: Final = Shortcut("F", "Freeze the plots, or let them run again")
EXPORT: Final = Shortcut("Ctrl+E", "Export figures, requests or pictures")
RECORD: Final = Shortcut("Ctrl+Shift+R", "Record to a file, or stop recording")
SAVE: Final = Shortcut("Ctrl+S", "Save the last ten minutes as a recording")
OPEN: Final = Shortcut("Ctrl+O", "Open a recording")
NOTE: Final = Shortcut("Ctrl+Shift+N", "Note something of the moment at the right edge of the plots")
CLOSE_RECORDING: Final = Shortcut("Ctrl+W", "Close the recording")
CANCEL_ALL: Final = Shortcut("Ctrl+Shift+X", "Cancel all requests")
LOG: Final = Shortcut("Ctrl+J", "Show or hide the service's log")
THEME: Final = Shortcut("Ctrl+T", "Light or dark")
PROJECTOR: Final = Shortcut("Ctrl+Shift+P", "Large type and no side panels, for a projector, or back")
DRAWER: Final = Shortcut("Ctrl+B", "Show or hide prompts and requests in a narrow window")
PROMPTS: Final = Shortcut("Ctrl+P", "Go to the prompts")
REQUESTS: Final = Shortcut("Ctrl+D", "Go to the requests")
WINDOWS: Final = tuple(
    Shortcut(f"Ctrl+{n}", f"Show the last {text}")
    for n, text in enumerate(("30 s", "minute", "5 minutes", "10 minutes"), start=1)
)
UNDO: Final = Shortcut("Ctrl+Z", "Undo the last change of a setting; a drag of a slider is one")
REDO: Final = Shortcut("Ctrl+Shift+Z", "Redo it")
LIVE: Final = Shortcut("Alt+1", "Show the plots as they run")
DISTRIBUTIONS: Final = Shortcut("Alt+2", "Show how latencies, batch sizes and stages are distributed")
COMPARE: Final = Shortcut("Alt+3", "Compare two settings, or sweep many")
GOAL: Final = Shortcut("Alt+4", "Search settings that hold a goal, and keep it")
FIND: Final = Shortcut("Ctrl+K", "Find a command, a setting or a term")
HELP: Final = Shortcut("F1", "Keyboard shortcuts")
QUIT: Final = Shortcut("Ctrl+Q", "Close the window and stop the service")
IN_PLACE: Final = (
    Shortcut("Left, Right", "One step on a slider; Page Up and Page Down double and halve"),
    Shortcut("Esc", "Take back a refused value, close the request, the log or the drawer"),
    Shortcut("Del", "Cancel the selected requests"),
    Shortcut("Return", "In the timeline: look at the first request of the batch; Up and Down lead to the others"),
)
ALL: Final = (
    STEP, SHOW_ME, FIRE, LOAD, PAUSE_LOAD, UNDO, REDO, FREEZE, EXPORT, RECORD, SAVE, OPEN, NOTE, CLOSE_RECORDING,
    CANCEL_ALL, LOG, THEME, PROJECTOR, DRAWER, PROMPTS, REQUESTS, *WINDOWS, LIVE, DISTRIBUTIONS, COMPARE, GOAL, FIND,
    HELP, QUIT, *IN_PLACE,
)  # fmt: skip


class ShortcutHelp(QDialog):
    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle("Keyboard shortcuts")
        grid = QGridLayout(self)
        grid.setContentsMargins(tokens.NOTICE_PADDING, tokens.GAP_4, tokens.NOTICE_PADDING, tokens.GAP_4)
        grid.setHorizontalSpacing(tokens.NOTICE_PADDING)
        grid.setVerticalSpacing(tokens.GAP_2)
        for line, shortcut in enumerate(ALL):
            keys = label(shortcut.native, "name")
            grid.addWidget(keys, line, 0, Qt.AlignmentFlag.AlignRight)
            grid.addWidget(label(shortcut.does, "text"), line, 1)
