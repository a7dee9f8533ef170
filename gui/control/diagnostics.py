"""What About shows of this installation, and what it copies for the report of a fault: also the state, and the log."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import psutil
from PySide6.QtCore import QObject, Qt, qVersion

from gui.control.presenter import GIGABYTE, facts_at_rest
from gui.main_window import MainWindow
from gui.panels.about import About
from gui.session.session import Session
from service.analysis.observed.descriptions import settings_text
from service.messages.installation import VERSION, cache_folder, processor_name, version_of
from service.messages.load import describe_pattern
from service.messages.text import counted, format_time

LICENCES: Final = "Apache-2.0; the typeface Inter: SIL Open Font License"
LIBRARIES: Final = ("pyqtgraph", "ray", "torch", "transformers")
MOST_LINES: Final = 50  # of the log
LEAST_PROMPT: Final = 4  # characters; a shorter one would be found in every other line
TOKEN: Final = re.compile(r"(?i)(\bbearer\s+|\btoken[\"']?\s*[=:]\s*)\S+|\bhf_\w{8,}")


def installation() -> dict[str, str]:
    """Versions, machine, folder of models and licence, by their names."""
    memory = f"{psutil.virtual_memory().total / GIGABYTE:.1f} GB memory"
    return {
        "Batchscope": VERSION,
        "Python": platform.python_version(),
        "Qt, PySide6": f"{qVersion()}, {version_of('PySide6-Essentials')}",
        **{name: version_of(name) for name in LIBRARIES},
        "System": platform.platform(),
        "Processor": processor_name(),
        "Machine": ", ".join([memory, *facts_at_rest()]),
        "Models": str(cache_folder()),
        "Licence": LICENCES,
    }


class Diagnostics(QObject):
    """Opens About, and gathers what it copies."""

    def __init__(self, window: MainWindow, session: Session) -> None:
        super().__init__(window)
        self._window = window
        self._session = session
        window.toolbar.about_action.triggered.connect(self._show_about)

    def text(self) -> str:
        """The installation, the state and the end of the log, as lines; without prompts, tokens and the user's name."""
        lines = [f"{name}: {value}" for name, value in (*installation().items(), *self._state())]
        log = self._window.log.text().splitlines()[-MOST_LINES:]
        text = "\n".join([*lines, "", f"The end of the log, {counted(len(log), 'line')}:", *log])
        return redacted(text, self._window.prompts.prompts)

    def _state(self) -> Iterator[tuple[str, str]]:
        session, history = self._session, self._session.history
        yield "State", f"{session.state.value}, for {format_time(session.state_age_s)}"
        if session.ready is not None:
            ready = session.ready
            replicas = counted(ready.replicas, "replica")
            yield "Service", f"{ready.workload.name}, {ready.model}, {ready.device}, {ready.dtype}, {replicas}"
        if history.in_force is not None:
            yield f"Settings v{history.in_force.version}", settings_text(history.in_force.settings)
        if history.load is not None:
            yield "Load", describe_pattern(history.load.pattern)
        yield "Verdict", self._window.verdict.text
        yield "Status", ", ".join(self._window.status.facts)

    def _show_about(self) -> None:
        about = About(self._window, installation(), self.text)
        about.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        about.open()


def redacted(text: str, prompts: Iterable[str], home: Path | None = None) -> str:
    """`text` without these prompts, tokens, and the path of the user's folder.

    >>> redacted("Authorization: Bearer s3cret of /home/ada/x: Once upon", ["Once upon"], Path("/home/ada"))
    'Authorization: Bearer … of ~/x: …'
    """
    for prompt in sorted(prompts, key=len, reverse=True):  # one may begin another
        if len(prompt) >= LEAST_PROMPT:
            text = text.replace(prompt, "…")
    folder = str(home or Path.home())
    text = text if folder == "/" else text.replace(folder, "~")
    return TOKEN.sub(lambda found: f"{found[1] or ''}…", text)
