from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

WINDOW = Path(__file__).with_name("scripted_window.py")
GONE_WITHIN_S = 5.0


@pytest.fixture
def window() -> Iterator[subprocess.Popen[bytes]]:
    """A window in a process of its own, its service under load."""
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
    with subprocess.Popen([sys.executable, WINDOW], stdout=subprocess.PIPE, env=environment) as process:
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

    _, alive = psutil.wait_procs(children, timeout=GONE_WITHIN_S)
    assert alive == []
