"""Whole files: every good line once and in order, whatever the end of the run before, and bad lines told by number."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from service.commands.batch import main
from service.commands.offline_batch.local_run import FileRun, LineEngine, LinePlan, lines_of
from service.commands.offline_batch.results import ResultFiles, errors_path
from service.engine.job import Engine
from service.engine.stub import AT_ONCE, Fault, StubEngine
from service.messages.options import ServiceOptions
from service.messages.pipes import ExitCode
from service.workloads import adder
from tests.unit.gated_replica import NotingStub

ROOT = Path(__file__).parents[2]


class Files:
    """Input, results and errors of a run in one folder."""

    def __init__(self, folder: Path) -> None:
        self.input, self.output = folder / "in.jsonl", folder / "out.jsonl"

    def write(self, lines: Iterable[object]) -> None:
        self.input.write_text("".join(f"{line}\n" for line in lines))

    def run(self, *options: str) -> int:
        return main([str(self.input), str(self.output), *options])

    @property
    def results(self) -> list[tuple[int, Any]]:
        return [(each["line"], each["output"]) for each in read(self.output)]

    @property
    def errors(self) -> list[tuple[int, str]]:
        return [(each["line"], each["error"]) for each in read(errors_path(self.output))]


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.fixture
def quick_adder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adder, "WORK_S", 0.0)


# -- on the adder -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick_adder")
def test_that_of_ten_thousand_lines_every_good_one_is_answered_once_in_order_and_every_bad_one_is_named(
    files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = range(50, 10_001, 100)
    files.write("three" if number in bad else number for number in range(1, 10_001))
    assert files.run("--workload", "adder", "--max-batch-size", "256") == ExitCode.INCOMPLETE
    assert files.results == [(number, number + 1) for number in range(1, 10_001) if number not in bad]
    assert [line for line, _ in files.errors] == list(bad)
    assert files.errors[0][1].startswith("This line is no JSON: ")
    assert read(errors_path(files.output))[0]["input"] == "three"
    said = capsys.readouterr().err
    assert f"9,900 results in {files.output}, 100 bad lines in {errors_path(files.output)}." in said
    assert "10000/10000 [" in said
    assert " lines/s]" in said


@pytest.mark.usefixtures("quick_adder")
def test_that_blank_lines_count_as_lines_and_ask_for_nothing(files: Files) -> None:
    files.write([1, "", "   ", 4])
    assert files.run("--workload", "adder") == ExitCode.DONE
    assert files.results == [(1, 2), (4, 5)]
    assert files.errors == []


DEADLY = """
import os, pathlib, signal
from service.workloads.workload import Workload

class Deadly(Workload):
    name, description, examples = "deadly", "Gives back, and dies once in the midst of it", ("1",)

    def __call__(self, inputs):
        if DEADLY_INPUT in inputs and not (marker := pathlib.Path(__file__).with_name("died")).exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGNAL_NAME)
        return inputs
"""
WRITES_AT_ONCE = """
import sys
from service.commands.batch import main
from service.commands.offline_batch import results
from tests.unit.gated_replica import NotingStub
results.WRITE_EVERY_S = 0.0
sys.exit(main(sys.argv[1:]))
"""


def run_deadly(files: Files, *options: str) -> int:
    command = [sys.executable, "-c", WRITES_AT_ONCE, str(files.input), str(files.output), "--workload", "deadly:Deadly"]
    environment = {"PYTHONPATH": f"{ROOT}:{files.input.parent}", "PATH": ""}
    run = subprocess.run(
        [*command, "--max-batch-size", "64", *options], env=environment, capture_output=True, timeout=120, check=False
    )
    return run.returncode


@pytest.fixture
def deadly(files: Files, request: pytest.FixtureRequest) -> Files:
    """A thousand lines, of which one in ten is bad, and a workload that gets the signal at the 601st."""
    code = DEADLY.replace("DEADLY_INPUT", "601").replace("SIGNAL_NAME", request.param)
    (files.input.parent / "deadly.py").write_text(code)
    files.write("bad" if number % 10 == 0 else number for number in range(1, 1001))
    return files


def assert_exact(files: Files) -> None:
    assert files.results == [(number, number) for number in range(1, 1001) if number % 10]
    assert [line for line, _ in files.errors] == list(range(10, 1001, 10))


@pytest.mark.parametrize("deadly", ["SIGKILL"], indirect=True)
def test_that_after_a_kill_half_way_nothing_is_missing_and_nothing_twice(deadly: Files) -> None:
    assert run_deadly(deadly) == -signal.SIGKILL
    before = deadly.results
    assert 300 < before[-1][0] < 601, "much was safe by then"
    with deadly.output.open("ab") as out:
        out.write(b'{"line":60')  # the kill came in the midst of a write
    with errors_path(deadly.output).open("ab") as errors:
        errors.write(b'{"line":1000,"error":"told before the results that come first","input":"bad"}\n')

    assert run_deadly(deadly, "--resume") == ExitCode.INCOMPLETE

    assert_exact(deadly)
    assert deadly.results[: len(before)] == before


@pytest.mark.parametrize("deadly", ["SIGINT"], indirect=True)
def test_that_ctrl_c_lets_those_that_run_end_and_the_run_can_go_on(deadly: Files) -> None:
    assert run_deadly(deadly) == ExitCode.INTERRUPTED
    assert (601, 601) in deadly.results
    assert deadly.results[-1][0] < 1000
    assert run_deadly(deadly, "--resume") == ExitCode.INCOMPLETE
    assert_exact(deadly)


@pytest.mark.usefixtures("quick_adder")
def test_that_going_on_with_what_is_complete_changes_nothing(files: Files) -> None:
    files.write([1, "bad", 3, "bad"])
    assert files.run("--workload", "adder") == ExitCode.INCOMPLETE
    first = files.output.read_bytes(), errors_path(files.output).read_bytes()
    assert files.run("--workload", "adder", "--resume") == ExitCode.INCOMPLETE
    assert (files.output.read_bytes(), errors_path(files.output).read_bytes()) == first


# -- what cannot be done ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick_adder")
def test_that_results_are_not_overwritten_unasked(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    files.write([1])
    files.output.write_text('{"line":1,"output":"mine"}\n')
    assert files.run("--workload", "adder") == ExitCode.CANNOT
    assert "Go on with --resume, or name another file." in capsys.readouterr().err
    assert files.results == [(1, "mine")]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ('{"line":7,"output":1}\n', "has a result for line 7, but"),
        ("a diary\n", "holds something else than results"),
    ],
)
def test_that_what_belongs_to_another_run_is_left_as_it_is(
    files: Files, content: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    files.write([1])
    files.output.write_text(content)
    assert files.run("--workload", "adder", "--resume") == ExitCode.CANNOT
    assert sentence in capsys.readouterr().err
    assert files.output.read_text() == content


def test_that_impossible_files_and_workloads_are_told_in_a_sentence(
    files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert files.run() == ExitCode.CANNOT
    assert f"{files.input} can't be used: No such file or directory." in capsys.readouterr().err
    files.write([1])
    assert main([str(files.input), str(files.input)]) == ExitCode.CANNOT
    assert "cannot go into the file of the inputs" in capsys.readouterr().err
    assert main([str(files.input), str(tmp_path / "no folder" / "out")]) == ExitCode.CANNOT
    assert "can't be written: No such file or directory." in capsys.readouterr().err
    assert files.run("--workload", "nothing") == ExitCode.CANNOT
    assert "There is no workload 'nothing'" in capsys.readouterr().err


@pytest.mark.usefixtures("quick_adder")
def test_that_without_ray_data_a_cluster_is_refused_with_what_to_install(
    files: Files, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "service.commands.offline_batch.cluster_run", raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    files.write([1])
    assert files.run("--workload", "adder", "--address", "auto") == ExitCode.CANNOT
    assert "Install it with pip install 'ray[data]', or leave --address out." in capsys.readouterr().err
    assert files.run("--workload", "adder") == ExitCode.DONE


def test_that_a_cluster_that_is_not_there_is_told_in_a_sentence(
    files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    files.write([1])
    assert files.run("--workload", "adder", "--address", "127.0.0.1:1") == ExitCode.CANNOT
    assert "There is no Ray cluster to be reached at 127.0.0.1:1." in capsys.readouterr().err


# -- prompts ----------------------------------------------------------------------------------------------------------


def run_prompts(files: Files, engine: Engine, batch_size: int = 2) -> None:
    out = ResultFiles(files.output, resumes=False)
    plan = LinePlan(service=ServiceOptions(), batch_size=batch_size, max_tokens=2)
    run = FileRun(LineEngine(plan, engine), lines_of(files.input), out, on_done=lambda: None)
    assert run.run()
    out.close()


def test_that_an_answered_line_makes_room_for_the_next_and_the_order_stays(files: Files) -> None:
    files.write(['{"prompt": "long", "max_tokens": 9}', '"a"', '"b"', '{"prompt": "c", "max_tokens": 1}'])
    engine = NotingStub()
    run_prompts(files, engine)
    assert [line for line, _ in files.results] == [1, 2, 3, 4]
    assert files.results[1:] == [(2, "<a#1><a#2>"), (3, "<b#1><b#2>"), (4, "<c#1>")]
    assert len(engine.batches) == 1, "the others joined the batch of the long one"


def test_that_a_line_that_is_no_prompt_and_a_prompt_that_fails_are_bad_alone(files: Files) -> None:
    lines = ['"a"', '{"prompt": "b", "tokens": 3}', "17", '"poison"', '""']
    files.write([*lines, '{"prompt": "c", "max_tokens": 0.5}', '{"prompt": "d", "max_tokens": 0}'])
    run_prompts(files, StubEngine(AT_ONCE, faults={"poison": Fault(error="It is poisoned.")}))
    assert files.results == [(1, "<a#1><a#2>")]
    told = dict(files.errors)
    assert sorted(told) == [2, 3, 4, 5, 6, 7]
    assert all(told[line].startswith('A line is a prompt or {"prompt": …, "max_tokens": …}') for line in (2, 3, 6))
    assert (told[4], told[5]) == ("It is poisoned.", "The prompt is empty: there is nothing to continue.")
    assert told[7] == "max_tokens must be at least 1."
