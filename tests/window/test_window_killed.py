from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from service.analysis.recording.reader import open_recording

WINDOW = Path(__file__).with_name("scripted_window.py")
GONE_WITHIN_S = 5.0


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Where the window records to."""
    return tmp_path / "run.bsr"


@pytest.fixture
def window(recording: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A window in a process of its own, its service under load."""
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
    with subprocess.Popen([sys.executable, WINDOW, recording], stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"running\n"
        yield process
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_that_nothing_outlives_a_window_that_dies(window: subprocess.Popen[bytes], number: signal.Signals) -> None:
    children = psutil.Process(window.pid).children(recursive=True)
    assert len(children) == 3  # the service, the load generator and the predictor

    window.send_signal(number)
    window.wait()

    _, left = psutil.wait_procs(children, timeout=GONE_WITHIN_S)
    assert [each for each in left if is_alive(each)] == []


def is_alive(process: psutil.Process) -> bool:
    """Whether it runs; one that has ended stays as a zombie until the system looks after it."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_that_what_the_window_starts_shares_the_processor_as_one_with_it(window: subprocess.Popen[bytes]) -> None:
    """Linux shares it out by sessions first: in one, the niceness of the engine's threads counts against the window."""
    children = psutil.Process(window.pid).children(recursive=True)

    assert {os.getsid(child.pid) for child in children} == {os.getsid(window.pid)}


def test_that_what_a_killed_window_recorded_can_be_read(window: subprocess.Popen[bytes], recording: Path) -> None:
    assert window.stdout is not None
    while not open_recording(recording).history.requests.rows():
        window.stdout.readline()  # it says something with every frame of the load
    before = open_recording(recording).history.last_s

    window.kill()
    window.wait()

    read = open_recording(recording)
    assert before is not None
    assert read.history.last_s is not None
    assert read.history.last_s >= before
    assert "was not ended in order" in (read.damage or "")
