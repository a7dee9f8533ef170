"""A window that dies leaves no process and a recording that can be read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from service.analysis.recording.reader import open_recording
from service.messages.text import counted

WINDOW = Path(__file__).with_name("scripted_window.py")
GONE_WITHIN_S = 5.0
LOOK_S = 0.05  # a zombie, which nobody has looked after yet, is waited for no longer
MARK = "BATCHSCOPE_TEST"
LEAST = {"open": 1, "starting": 2, "ready": 3, "loaded": 4, "stopping": 1, "closing": 1}
"""Processes in each phase: window, service, load generator and predictor, until they are told to end."""


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Where the window records to."""
    return tmp_path / "run.bsr"


@contextmanager
def window_in(phase: str, recording: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A window in a process of its own, in that phase of its life."""
    program = [sys.executable, WINDOW, recording, phase]
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen", **environment}
    with subprocess.Popen(program, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        try:
            assert f"{phase}\n".encode() in process.stdout, "it reads until then"
            yield process
        finally:
            process.kill()


@pytest.fixture
def window(recording: Path) -> Iterator[subprocess.Popen[bytes]]:
    """With its service under load."""
    with window_in("loaded", recording) as window:
        yield window


@pytest.mark.parametrize(
    ("phase", "number"), [*((phase, signal.SIGKILL) for phase in LEAST), ("loaded", signal.SIGSEGV)]
)
@pytest.mark.promise("T09")
def test_that_nothing_outlives_a_window_that_dies(
    recording: Path, phase: str, number: signal.Signals, record_property: Callable[[str, object], None]
) -> None:
    """T09: what it started is known by a mark in the environment, whatever its parent is by now."""
    mark = uuid4().hex
    with window_in(phase, recording, **{MARK: mark}) as window:
        assert window.stdout is not None
        while len(ours := marked(mark)) < LEAST[phase]:
            window.stdout.readline()  # it says something with every frame of the load
        assert window.pid in [each.pid for each in ours]
        assert phase != "loaded" or len(ours) == LEAST[phase]

        window.send_signal(number)
        window.wait()
        died_s = time.monotonic()

        while left := [each for each in marked(mark) if is_alive(each)]:  # what came after the look as well
            psutil.wait_procs(left, timeout=LOOK_S)
            assert time.monotonic() - died_s < GONE_WITHIN_S, left
        took_s = time.monotonic() - died_s
    others = counted(len(ours) - 1, "other process")
    record_property("T09", f"{phase}, {number.name}: {others}, gone within {took_s:.1f} s")


def marked(mark: str) -> list[psutil.Process]:
    return [each for each in psutil.process_iter() if mark == environment_of(each).get(MARK)]


def environment_of(process: psutil.Process) -> Mapping[str, str]:
    """That of its start; none of one that has ended, or is another user's."""
    try:
        return process.environ()
    except psutil.Error:
        return {}


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


@pytest.mark.promise("T09")
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
