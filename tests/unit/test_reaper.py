"""Ending what descends from one start, and nothing else."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from service.launch.reaper import MARK, Lineage, ReapPlan, describe_exit, reap
from tests.processes import is_exiting

# Says when it is up; the second one cannot be asked to end.
IDLE = "print(flush=True); import time; time.sleep(60)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + IDLE
# Its exit takes a while: the system takes its memory back first, and its files and ports after that.
LARGE = "kept = b'x' * 2**29; " + IDLE
# Its first thread ends, as the threads of a killed process do one after the other; another one goes on.
HALF_ENDED = (
    "import ctypes, threading, time; threading.Thread(target=time.sleep, args=[60]).start(); print(flush=True); "
    "ctypes.CDLL(None).pthread_exit(None)"
)
# Ends at once and leaves a child behind, in a session of its own.
ORPHANING = (
    "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdout=subprocess.PIPE, "
    "start_new_session=True); child.stdout.readline(); print(child.pid, flush=True)"
)

Spawn = Callable[..., subprocess.Popen[bytes]]

pytestmark = pytest.mark.skipif(os.name != "posix", reason="sessions and signals are POSIX")


@pytest.fixture
def lineage() -> Lineage:
    return Lineage(instance=secrets.token_hex(8), group=-1)


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Starts Python code and waits for its first line."""
    processes = []

    def start(code: str, *arguments: str, mark: str | None = None) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            env={**os.environ, MARK: mark} if mark is not None else None,
            stdout=subprocess.PIPE,
            process_group=0,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def await_line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()


def pids(lineage: Lineage) -> set[int]:
    """The members, without processes of other programs, which count for the moment in which they exit."""
    return {process.pid for process in lineage.members() if is_child(process) or not is_exiting(process)}


def is_child(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.ppid() == os.getpid()
    return False


def test_that_the_mark_tells_members_from_others(lineage: Lineage, spawn: Spawn) -> None:
    ours, other, unmarked = spawn(IDLE, mark=lineage.instance), spawn(IDLE, mark=lineage.instance + "0"), spawn(IDLE)
    for process in (ours, other, unmarked):
        await_line(process)
    assert pids(lineage) == {ours.pid}


def test_that_the_process_group_tells_members_without_the_mark(lineage: Lineage, spawn: Spawn) -> None:
    leader = spawn(IDLE)
    await_line(leader)
    assert pids(Lineage(lineage.instance, group=leader.pid)) == {leader.pid}


def test_that_a_process_that_has_ended_is_no_member(lineage: Lineage, spawn: Spawn) -> None:
    process = spawn(IDLE, mark=lineage.instance)
    await_line(process)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # ended, not yet asked for
    assert pids(lineage) == set()


@pytest.mark.skipif(sys.platform != "linux", reason="Linux calls it a zombie")
def test_that_a_process_is_a_member_as_long_as_a_thread_of_it_lives(lineage: Lineage, spawn: Spawn) -> None:
    process, other = (spawn(HALF_ENDED, mark=mark) for mark in (lineage.instance, "another"))
    for each in (process, other):
        await_line(each)
        while psutil.Process(each.pid).status() != psutil.STATUS_ZOMBIE:
            pass
    assert pids(lineage) == {process.pid}
    assert reap(lineage, drain_timeout_s=0.0, grace_s=5.0) == []
    assert has_ended(process)
    assert not has_ended(other)


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


def test_that_an_exiting_process_is_a_member_until_it_has_ended(lineage: Lineage, spawn: Spawn) -> None:
    process = spawn(LARGE, mark=lineage.instance)
    await_line(process)
    process.kill()
    while not has_ended(process):
        assert pids(lineage) == {process.pid} or has_ended(process)
    assert pids(lineage) == set()


def test_that_one_that_is_asked_to_end_is_not_killed(lineage: Lineage, spawn: Spawn) -> None:
    process = spawn(IDLE, mark=lineage.instance)
    await_line(process)
    assert reap(lineage, drain_timeout_s=0, grace_s=10) == []
    assert describe_exit(process.wait()) == "signal SIGTERM"


def test_that_a_stubborn_one_is_killed(lineage: Lineage, spawn: Spawn) -> None:
    process = spawn(STUBBORN, mark=lineage.instance)
    await_line(process)
    assert reap(lineage, drain_timeout_s=0, grace_s=0.1) == []
    assert describe_exit(process.wait()) == "signal SIGKILL"


def test_that_one_that_ends_by_itself_is_let(lineage: Lineage, spawn: Spawn) -> None:
    process = spawn("print(flush=True); import time; time.sleep(0.2)", mark=lineage.instance)
    await_line(process)
    assert reap(lineage, drain_timeout_s=10, grace_s=0) == []
    assert process.wait() == 0


def test_that_orphans_in_sessions_of_their_own_are_found(lineage: Lineage, spawn: Spawn) -> None:
    parent = spawn(ORPHANING, STUBBORN, mark=lineage.instance)
    orphan = int(await_line(parent))
    parent.wait()
    assert pids(lineage) == {orphan}
    assert reap(lineage, drain_timeout_s=0, grace_s=0.1) == []
    assert pids(lineage) == set()


def test_that_with_nothing_to_do_it_is_done_at_once(lineage: Lineage) -> None:
    began_s = time.monotonic()
    assert reap(lineage, drain_timeout_s=10, grace_s=10) == []
    assert time.monotonic() - began_s < 5


def test_that_the_sweepers_plan_removes_the_files(lineage: Lineage, tmp_path: Path) -> None:
    directory = tmp_path / "ours"
    (directory / "deep").mkdir(parents=True)
    assert ReapPlan(lineage, str(directory), drain_timeout_s=0, grace_s=0).carry_out() == []
    assert not directory.exists()


@pytest.mark.parametrize(("code", "words"), [(0, "exit code 0"), (3, "exit code 3"), (-9, "signal SIGKILL")])
def test_that_exits_are_told_in_words(code: int, words: str) -> None:
    assert describe_exit(code) == words
