"""The engine's threads use the cores there are and stand back for everybody else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from service.engine import threads

SCRIPT = """
import json, os, threading
import torch
from service.engine.threads import prepare_engine_thread

def niceness():
    return {int(tid): os.getpriority(os.PRIO_PROCESS, int(tid)) for tid in os.listdir("/proc/self/task")}

def work():
    before = set(niceness())
    prepare_engine_thread("cpu")
    square = torch.randn(512, 512)
    square @ square
    after = niceness()
    workers = [nice for tid, nice in after.items() if tid not in before]
    mine = after[threading.get_native_id()]
    print(json.dumps([torch.get_num_threads(), mine, workers, after[os.getpid()]]))

thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a priority for each thread")
def test_that_the_engine_and_its_workers_are_nice_and_the_rest_of_the_process_is_not() -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    run = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True)
    count, mine, workers, main = json.loads(run.stdout)
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert count == threads.usable_cores()
    assert mine == threads.NICENESS
    assert set(workers) == {threads.NICENESS}
    assert len(workers) >= count - 1
    assert main == own


def test_that_a_gpus_engine_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads.torch, "set_num_threads", None)
    threads.prepare_engine_thread("cuda:1")


@pytest.mark.parametrize(("text", "cores"), [("max 100000", None), ("150000 100000", 2), ("50000 100000", 1)])
def test_that_a_control_groups_quota_counts(
    text: str, cores: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quota = tmp_path / "cpu.max"
    quota.write_text(text)
    monkeypatch.setattr(threads, "_CGROUP_QUOTA", quota)
    assert threads._quota_cores() == cores


def test_that_no_control_group_is_no_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_CGROUP_QUOTA", tmp_path / "missing")
    assert threads._quota_cores() is None
    assert threads.usable_cores() >= 1
