"""The engine's threads use the cores there are and stand back for everybody else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import torch

from service.engine import compute_thread, cores
from tests.unit.tiny_models import byte_level_tokenizer, tiny_llama

SCRIPT = """
import contextlib, json, os, sys, threading
from service.engine.loading import load_engine
from service.messages.options import ServiceOptions

def niceness():
    found = {}
    for tid in map(int, os.listdir("/proc/self/task")):
        with contextlib.suppress(ProcessLookupError):  # a thread may end meanwhile
            found[tid] = os.getpriority(os.PRIO_PROCESS, tid)
    return found

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
@pytest.mark.parametrize(("replicas", "nicer"), [(1, 0), (2, 0), (1, 15)])
def test_that_an_engine_computes_on_its_share_of_the_cores_behind_all_else(
    tiny_folder: Path, replicas: int, nicer: int
) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", SCRIPT, str(tiny_folder), str(replicas)]
    run = subprocess.run(
        ["nice", "-n", str(nicer), *command], env=environment, capture_output=True, text=True, check=True
    )
    count, mine, workers, main = json.loads(run.stdout)
    own = os.getpriority(os.PRIO_PROCESS, 0) + nicer
    assert count == max(1, cores.usable_cores() // replicas)
    assert mine == max(own, compute_thread.NICENESS)  # a Ray that is not ours makes its workers nice by 15
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
    monkeypatch.setattr(cores, "CGROUP_QUOTA", quota)
    assert cores.quota_cores() == granted


def test_that_no_control_group_is_no_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "CGROUP_QUOTA", tmp_path / "missing")
    assert cores.quota_cores() is None
    assert cores.usable_cores() >= 1


class Processor:
    """Cores whose work is scripted, and a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, logical: int, physical: int) -> None:
        self.time = cores.ProcessorTime(at_s=0.0, idle_s=0.0, own_s=0.0)
        monkeypatch.setattr(cores.ProcessorTime, "now", lambda: self.time)
        monkeypatch.setattr(cores.time, "monotonic", lambda: self.time.at_s)
        monkeypatch.setattr(psutil, "cpu_count", lambda logical=True, count=(physical, logical): count[logical])

    def run(self, seconds: float, idle: float, own: float) -> None:
        """So many cores were idle, and so many computed for this process."""
        at_s, idle_s, own_s = self.time
        self.time = cores.ProcessorTime(at_s + seconds, idle_s + seconds * idle, own_s + seconds * own)


@pytest.mark.parametrize(
    ("logical", "idle", "own", "count"),
    [
        (4, 4.0, 0.0, 4),
        (4, 0.0, 3.6, 4),
        (4, 0.5, 1.5, 2),
        (4, 0.0, 0.8, 1),
        (4, 0.0, 0.3, 0),
        (8, 8.0, 0.0, 4),
        (8, 2.0, 2.0, 2),
    ],
)
def test_that_an_engine_leaves_cores_to_other_programs(
    logical: int, idle: float, own: float, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    processor = Processor(monkeypatch, logical, physical=4)
    free = cores.FreeCores(4)
    processor.run(0.9, idle, own)
    assert free.count() == 4, "counted once a second"
    processor.run(0.1, idle, own)
    assert free.count() == count


def test_that_an_engine_computes_in_as_many_threads_as_cores_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    processor, used = Processor(monkeypatch, logical=4, physical=4), list[int]()
    monkeypatch.setattr(torch, "set_num_threads", used.append)
    with ThreadPoolExecutor(1) as executor:
        thread = executor.submit(compute_thread.ComputeThread, executor, cores.FreeCores(4)).result()
        for idle in (4.0, 1.0, 1.0, 0.0, 4.0):
            processor.run(1.0, idle, own=0.0)
            assert thread.compute(list) == []
    assert used == [1, 1, 4]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="only Linux binds threads to cores")
def test_that_an_engine_leaves_its_core_while_no_core_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    processor, cpus = Processor(monkeypatch, logical=4, physical=4), os.sched_getaffinity(0)
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    with ThreadPoolExecutor(1) as executor:
        executor.submit(os.sched_setaffinity, 0, {min(cpus)}).result()  # as OpenMP binds the thread that loads torch
        thread = executor.submit(compute_thread.ComputeThread, executor, cores.FreeCores(4)).result()
        places = []
        for idle in (1.0, 0.0, 1.0, 0.0, 4.0):
            processor.run(1.0, idle, own=0.0)
            places.append(thread.compute(lambda: os.sched_getaffinity(0)))
    assert places == [{min(cpus)}, cpus, cpus, cpus, {min(cpus)}]


def test_that_other_programs_are_seen_at_work() -> None:
    free = cores.FreeCores(2)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        while free.count() > 1:
            sum(range(10_000))
    finally:
        for process in busy:
            process.kill()
            process.wait()
