"""The engine's threads use the cores there are and stand back for everybody else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from service.engine import compute_thread, cores
from tests.unit.tiny_models import byte_level_tokenizer, tiny_llama

SCRIPT = """
import json, os, sys, threading
from service.engine.loading import load_engine
from service.messages.options import ServiceOptions

def niceness():
    return {int(tid): os.getpriority(os.PRIO_PROCESS, int(tid)) for tid in os.listdir("/proc/self/task")}

def work():
    before = set(niceness())
    load_engine(ServiceOptions(model=sys.argv[1], device="cpu", replicas=int(sys.argv[2])))
    import torch
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


@pytest.fixture(scope="module")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    tiny_llama().save_pretrained(folder)
    byte_level_tokenizer().save_pretrained(folder)
    return folder


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a priority for each thread")
@pytest.mark.parametrize("replicas", [1, 2])
def test_that_an_engine_computes_on_its_share_of_the_cores_behind_all_else(tiny_folder: Path, replicas: int) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", SCRIPT, str(tiny_folder), str(replicas)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    count, mine, workers, main = json.loads(run.stdout)
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert count == max(1, cores.usable_cores() // replicas)
    assert mine == own + compute_thread.NICENESS
    assert set(workers) <= {mine}
    assert len(workers) >= count - 1
    assert main == own


def test_that_a_gpus_engine_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "set_num_threads", None)
    compute_thread.prepare_engine_thread("cuda:1", 2)


@pytest.mark.parametrize(("text", "granted"), [("max 100000", None), ("150000 100000", 2), ("50000 100000", 1)])
def test_that_a_control_groups_quota_counts(
    text: str, granted: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quota = tmp_path / "cpu.max"
    quota.write_text(text)
    monkeypatch.setattr(cores, "_CGROUP_QUOTA", quota)
    assert cores._quota_cores() == granted


def test_that_no_control_group_is_no_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "_CGROUP_QUOTA", tmp_path / "missing")
    assert cores._quota_cores() is None
    assert cores.usable_cores() >= 1
