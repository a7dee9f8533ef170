"""Child processes: nothing of ours outlives what it was for."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

from service.engine.model.child import run_module
from service.messages.pipes import SOURCE_ROOT

SERVER = ("http.server", "0", "--bind", "127.0.0.1")  # runs until it is ended
RUN_SERVER = f"""
import psutil
from service.engine.model.child import run_module

def tell():
    for child in psutil.Process().children():
        print(child.pid, flush=True)

run_module(*{SERVER!r}, on_tick=tell)
"""


def test_lines_and_exit_code_come_back() -> None:
    lines: list[str] = []
    outcome = run_module("platform", on_line=lines.append)
    assert outcome.is_success
    assert "Linux" in lines[0] or lines


def test_a_module_that_fails_says_how() -> None:
    outcome = run_module("no_such_module_anywhere")
    assert not outcome.is_success
    assert "no_such_module_anywhere" in outcome.last_line


def test_time_is_limited() -> None:
    assert run_module(*SERVER, limit_s=0.1).timed_out
    assert psutil.Process().children() == []


@pytest.mark.parametrize("reason", [KeyboardInterrupt, SystemExit, RuntimeError])
def test_what_stops_us_stops_the_child(reason: type[BaseException]) -> None:
    def stop() -> None:
        raise reason

    with pytest.raises(reason):
        run_module(*SERVER, on_tick=stop)
    assert psutil.Process().children() == []


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the child ends by itself")
def test_a_child_ends_with_a_parent_that_was_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", RUN_SERVER], stdout=subprocess.PIPE, cwd=SOURCE_ROOT)
    with parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    gone, _ = psutil.wait_procs([child], timeout=60)
    assert gone
