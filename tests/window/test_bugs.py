"""What the user hears of a bug: that the window could not be opened, or once what went wrong in it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication, QMessageBox

from gui.control.bugs import Bugs, report_failed_start

WINDOW = Path(__file__).with_name("failing_window.py")


def run_with_bug(where: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen", "XDG_CONFIG_HOME": str(folder)}
    command = [sys.executable, str(WINDOW), where]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("where", ["window", "plots"])
def test_that_a_window_that_cannot_be_completed_says_why_and_ends(where: str, tmp_path: Path) -> None:
    ended = run_with_bug(where, tmp_path)

    assert ended.stderr.endswith("batchscope: The window could not be opened: ValueError: nothing to draw\n")
    assert ended.returncode == 1


def test_that_a_bug_in_painting_is_reported_once_and_then_counted(tmp_path: Path) -> None:
    ended = run_with_bug("painting", tmp_path)

    assert ended.stderr.count("Traceback") == 1
    assert ended.stderr.count("Something in the window went wrong") == 1
    assert "batchscope: 10 times by now: ValueError: nothing to draw in frame 10" in ended.stderr
    assert ended.returncode == 0


def test_that_bugs_in_two_places_are_both_reported(capsys: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []
    bugs = Bugs(said.append)
    for text in ("", "x", "", "y"):
        try:
            [][0] if not text else int(text)
        except (IndexError, ValueError) as error:
            bugs.report(type(error), error, error.__traceback__)

    assert [sentence.split(": ")[1] for sentence in said] == ["IndexError", "ValueError"]


def test_that_a_message_box_says_why_there_is_no_window(
    qapp: QApplication, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gui.control.bugs.UNSEEN", ())  # the platform of tests has no user either
    shown: list[tuple[str, str]] = []

    def close() -> None:
        box = qapp.activeModalWidget()
        assert isinstance(box, QMessageBox)
        shown.append((box.text(), box.informativeText()))
        box.accept()

    QTimer.singleShot(0, close)
    report_failed_start(ValueError("nothing to draw"), is_attended=True)
    report_failed_start(ValueError("nothing to draw"), is_attended=False)

    assert shown == [("The window could not be opened.", "ValueError: nothing to draw")]
    assert capsys.readouterr().err.count("batchscope: The window could not be opened") == 2
