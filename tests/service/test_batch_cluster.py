"""A file of numbers through engines on two machines of a Ray cluster, by the command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.messages.pipes import ExitCode
from tests.service import HANG_S
from tests.service.cluster import Cluster
from tests.service.conftest import ROOT

LINES = 400
BAD = range(7, LINES + 1, 10)

MEETING = """
import os
from pathlib import Path

import ray
from service.workloads.adder import Adder

PLACE = Path("FOLDER/place")  # not beside this file, of which each machine has a copy

class Meeting(Adder):
    '''Its two engines wait for each other before they compute; each result tells by which it was.'''

    name = "meeting"

    def load(self, device):
        try:
            PLACE.with_name("first").mkdir()
        except FileExistsError:
            PLACE.with_name("first").rmdir()
            PLACE.open("wb").close()  # opens when the other reads
        else:
            PLACE.open("rb").close()  # opens when the other writes

    def __call__(self, inputs):
        machine = ray.get_runtime_context().get_node_id()
        return [[output, machine] for output in super().__call__(inputs)]
"""

INTERRUPTED_BY = """
import os, signal, sys
from service.commands import batch

class Interrupted(batch.ResultFiles):
    def write(self):
        super().write()
        if self.good > GOOD:
            os.kill(os.getpid(), signal.SIGNAL)

batch.ResultFiles = Interrupted
sys.exit(batch.main(sys.argv[1:]))
"""


class Files:
    """Input and results of runs on the cluster, in a folder that also has a workload of its own."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        self.folder = folder
        self._cluster = cluster
        numbers = (json.dumps(f"no {number}") if number in BAD else str(number) for number in range(1, LINES + 1))
        (folder / "in.jsonl").write_text("\n".join(numbers))

    def run(self, *options: str, program: tuple[str, ...] = ("-m", "service", "batch")) -> tuple[int, str]:
        """Its exit code, and what it said; that stands also in the report of a failure."""
        ended = subprocess.run(
            [sys.executable, *program, "in.jsonl", "out.jsonl", "--address", self._cluster.address, *options],
            cwd=self.folder,
            env=self._cluster.environment | {"PYTHONPATH": str(ROOT)},
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        print(ended.stderr)
        return ended.returncode, ended.stderr

    def run_until(self, good: int, name: str, *options: str) -> int:
        """A run that gets this signal when it has written so many results."""
        program = INTERRUPTED_BY.replace("GOOD", str(good)).replace("SIGNAL", name)
        return self.run(*options, program=("-c", program))[0]

    def read(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / name).read_text().splitlines()]


@pytest.fixture
def files(cluster: Cluster, tmp_path: Path) -> Files:
    return Files(tmp_path, cluster)


@pytest.fixture
def another_machine(cluster: Cluster) -> Iterator[None]:
    with cluster.another_machine():
        yield


@pytest.mark.usefixtures("another_machine")
def test_that_two_machines_do_each_line_once_and_in_order_through_a_kill_and_ctrl_c(files: Files) -> None:
    os.mkfifo(files.folder / "place")
    (files.folder / "meeting.py").write_text(MEETING.replace("FOLDER", str(files.folder)))
    options = ("--workload", "meeting:Meeting", "--max-batch-size", "8")
    assert files.run_until(100, "SIGKILL", *options) == -signal.SIGKILL
    assert files.run_until(200, "SIGINT", *options, "--resume") == ExitCode.INTERRUPTED
    before = files.read("out.jsonl")
    assert 200 < len(before) < LINES - len(BAD)

    code, said = files.run(*options, "--resume")

    assert code == ExitCode.INCOMPLETE
    assert f"{LINES - len(BAD)} results in out.jsonl, {len(BAD)} bad lines in out.errors.jsonl." in said
    assert "lines/s]" in said
    results, errors = files.read("out.jsonl"), files.read("out.errors.jsonl")
    good = [number for number in range(1, LINES + 1) if number not in BAD]
    assert [(each["line"], each["output"][0]) for each in results] == [(number, number + 1) for number in good]
    assert len({each["output"][1] for each in results}) == 2
    assert results[: len(before)] == before
    assert [each["line"] for each in errors] == list(BAD)
    assert errors[0]["error"] == "The adder takes a whole number such as 3, not 'no 7'."


def test_that_a_device_that_no_machine_has_is_told_in_a_sentence(files: Files) -> None:
    code, said = files.run("--workload", "house-price", "--device", "cuda")
    assert code == ExitCode.CANNOT
    assert said.splitlines()[-1].startswith("Ray finds no GPU for the device cuda. Choose the device cpu")


@pytest.mark.promise("T27")
def test_that_a_cluster_that_asks_for_its_token_is_told_at_once(cluster: Cluster, tmp_path: Path) -> None:
    lines = tmp_path / "numbers.jsonl"
    lines.write_text("1\n")
    files = (lines, tmp_path / "sums.jsonl")
    command = [sys.executable, "-m", "service", "batch", *files, "--workload", "adder", "--address", cluster.address]
    without = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    refused = subprocess.run(command, env=without, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert refused.returncode == ExitCode.CANNOT
    assert f"The Ray cluster at {cluster.address} asks for its token. Set RAY_AUTH_MODE=token" in refused.stderr
