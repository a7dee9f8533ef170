"""A child process of the window: lines in, lines out, and one way of ending it that never blocks.

The child's standard input is a pipe that only the window holds, so its end of file tells the child that the window is
gone, whatever the cause. Ending is written once, here: ask (SIGTERM, or end of file), wait, kill.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from PySide6.QtCore import QObject, QProcess, QProcessEnvironment, QTimer, Signal

from service.messages.pipes import LineCutter, python_path

LONGEST_LINE_BYTES: Final = 32 * 1024 * 1024
KEPT_LOG_LINES: Final = 20
TOO_LONG: Final = b"(a line longer than 32 MiB)"


@dataclass(frozen=True)
class Ending:
    """How a child process ended: its exit code, or the signal that killed it, or why it never ran.

    Attributes:
        asked: the window had asked it to end.
        last_words: the last line of its log.
    """

    exit_code: int | None = None
    signal_number: int | None = None
    not_started: str | None = None
    asked: bool = False
    last_words: str = ""

    @property
    def is_orderly(self) -> bool:
        """Whether it ended as it was asked to."""
        return self.asked and self.exit_code == 0

    def sentence(self, name: str) -> str:
        """A sentence about the end of the process `name`, for the user.

        >>> Ending(signal_number=9).sentence("The service")
        'The service was killed by signal 9 (SIGKILL).'
        >>> Ending(exit_code=1, last_words="MemoryError").sentence("The service")
        'The service ended with exit code 1. Its last words: MemoryError'
        """
        if self.not_started is not None:
            return f"{name} could not be started: {self.not_started}."
        if self.signal_number is not None:
            return f"{name} was killed by signal {self.signal_number} ({_signal_name(self.signal_number)})."
        ended = f"{name} ended by itself" if self.exit_code == 0 else f"{name} ended with exit code {self.exit_code}"
        return f"{ended}. Its last words: {self.last_words}" if self.last_words else f"{ended}."


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def start_detached(command: Sequence[str]) -> None:
    """Start a program that outlives the window."""
    process = QProcess()
    process.setProgram(command[0])
    process.setArguments(command[1:])
    process.setProcessEnvironment(_environment())
    process.startDetached()


def _environment() -> QProcessEnvironment:
    environment = QProcessEnvironment.systemEnvironment()
    environment.insert("PYTHONUNBUFFERED", "1")
    environment.insert("PYTHONIOENCODING", "utf-8")
    environment.insert("PYTHONPATH", python_path())
    return environment


class ChildProcess(QObject):
    """Runs one program at a time."""

    line_received = Signal(bytes)  # a line of its standard output, as bytes
    logged = Signal(str)  # a line of its standard error
    ended = Signal(object)  # an `Ending`; nothing of that run follows

    def __init__(self, grace_ms: int, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._grace_ms = grace_ms
        self._process: QProcess | None = None
        self._was_asked = False
        self._output = LineCutter(LONGEST_LINE_BYTES)
        self._errors = LineCutter(LONGEST_LINE_BYTES)
        self._last_words: deque[str] = deque(maxlen=KEPT_LOG_LINES)
        self._grace = QTimer(self, singleShot=True)
        self._grace.timeout.connect(self.kill)

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.processId() or None

    def start(self, command: Sequence[str]) -> None:
        """Start `command`; signals report the outcome."""
        assert self._process is None, "one run at a time"
        self._was_asked = False
        self._output, self._errors = LineCutter(LONGEST_LINE_BYTES), LineCutter(LONGEST_LINE_BYTES)
        self._last_words.clear()
        process = QProcess(self)
        process.setProcessEnvironment(_environment())
        process.readyReadStandardOutput.connect(self._on_output)
        process.readyReadStandardError.connect(self._on_errors)
        process.finished.connect(self._on_finished)
        process.errorOccurred.connect(self._on_error)
        self._process = process
        program, *arguments = command
        process.start(program, arguments)

    def write_line(self, line: bytes) -> None:
        """Write `line` to its standard input; a process that is ending loses it, and `ended` follows."""
        if self._process is not None:
            self._process.write(line + b"\n")

    def end(self, *, by_end_of_file: bool = False) -> None:
        """Ask the process to end, and kill it after the grace. Returns at once; `ended` follows."""
        if self._process is None or self._was_asked:
            return
        self._was_asked = True
        if by_end_of_file:
            self._process.closeWriteChannel()
        else:
            self._process.terminate()
        self._grace.start(self._grace_ms)

    def kill(self) -> None:
        if self._process is not None:
            self._was_asked = True
            self._process.kill()

    def finish(self) -> None:
        """Kill the process and wait for its end, which takes a few milliseconds."""
        if self._process is not None:
            self.kill()
            self._process.waitForFinished(self._grace_ms)

    def _on_output(self) -> None:
        if self._process is not None:
            self._report(self._output.feed(bytes(self._process.readAllStandardOutput().data())))

    def _on_errors(self) -> None:
        if self._process is not None:
            self._log(self._errors.feed(bytes(self._process.readAllStandardError().data())))

    def _report(self, lines: Sequence[bytes | None]) -> None:
        for line in lines:
            self.line_received.emit(TOO_LONG if line is None else line)

    def _log(self, lines: Sequence[bytes | None]) -> None:
        for line in lines:
            text = (TOO_LONG if line is None else line).decode("utf-8", "replace")
            if text.strip():
                self._last_words.append(text.strip())
            self.logged.emit(text)

    def _on_error(self, error: QProcess.ProcessError) -> None:
        if error is QProcess.ProcessError.FailedToStart and self._process is not None:
            self._close(Ending(not_started=self._process.errorString(), asked=self._was_asked))

    def _on_finished(self, code: int, status: QProcess.ExitStatus) -> None:
        self._on_output()
        self._on_errors()
        self._report(self._output.flush())
        self._log(self._errors.flush())
        last_words = self._last_words[-1] if self._last_words else ""
        if status is QProcess.ExitStatus.CrashExit:
            self._close(Ending(signal_number=code, asked=self._was_asked, last_words=last_words))
        else:
            self._close(Ending(exit_code=code, asked=self._was_asked, last_words=last_words))

    def _close(self, ending: Ending) -> None:
        assert self._process is not None
        self._grace.stop()
        self._process.deleteLater()
        self._process = None
        self.ended.emit(ending)


MOST_SHOWN_BYTES = 500


class ChildOwner(QObject):
    """Decodes the lines of its child; subclasses handle the messages and the end."""

    logged = Signal(str)  # a line of the child's log, or a line of its output that is no message

    def __init__(self, message: Any, grace_ms: int, parent: QObject | None = None) -> None:
        """`message`: the type, or union of types, that the child writes as JSON lines."""
        super().__init__(parent)
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(message)
        self._child = ChildProcess(grace_ms, self)
        self._child.line_received.connect(self._on_child_line)
        self._child.logged.connect(self.logged)
        self._child.ended.connect(self._on_child_ended)

    @property
    def is_running(self) -> bool:
        return self._child.is_running

    @property
    def pid(self) -> int | None:
        return self._child.pid

    # Not an ABC: its metaclass and Qt's exclude each other.

    def _take(self, message: Any) -> None:
        """Take a message of the child."""
        raise NotImplementedError

    def _on_child_ended(self, ending: Ending) -> None:
        raise NotImplementedError

    def _on_child_line(self, line: bytes) -> None:
        try:
            message = self._decoder.decode(line)
        except msgspec.MsgspecError as error:
            self.logged.emit(f"{line[:MOST_SHOWN_BYTES].decode('utf-8', 'replace')}  (not understood: {error})")
            return
        self._take(message)
