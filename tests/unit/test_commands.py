"""The words of `python -m service`: which there are, and what is answered to those that there are not."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest

import service.commands
from gui.control.arguments import parse
from service.__main__ import COMMANDS, main
from service.messages.installation import VERSION, version_of
from service.messages.pipes import our_python, python_path

ROOT = Path(__file__).parents[2]


def helped(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_that_the_help_has_a_line_for_each_command(capsys: pytest.CaptureFixture[str]) -> None:
    shown = helped(capsys)
    assert [
        line.split()[0] for line in shown.splitlines() if line.startswith("  ") and line.split()[0] in COMMANDS
    ] == [*COMMANDS]
    assert "--max-batch-size" in shown, "the options of the service itself"


@pytest.mark.parametrize("word", COMMANDS)
def test_that_each_command_shows_an_example_of_itself(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, _, examples = helped(capsys, word).partition("example:\n")
    assert examples.startswith(f"  python -m service {word} ")


def test_that_every_command_has_a_word() -> None:
    found = [module.name for module in walk_packages(service.commands.__path__, "service.commands.")]
    with_main = [name for name in found if "\ndef main(" in Path(inspect.getfile(import_module(name))).read_text()]
    assert sorted(with_main) == sorted(command.module for command in COMMANDS.values())


@pytest.mark.parametrize(("word", "meant"), [("laod", "load"), ("bnech", "bench"), ("deploy_config", "deploy-config")])
def test_that_a_mistyped_command_is_answered_with_the_nearest(
    word: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([word, "--url", "x"]) == 2
    assert f"There is no command '{word}'. Did you mean {meant}?" in capsys.readouterr().err


def test_that_a_word_like_no_command_is_answered_with_where_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["xyzzy"]) == 2
    assert "--help" in capsys.readouterr().err


def test_that_the_release_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    for ask in (lambda: main(["--version"]), lambda: parse(["--version"])):
        with pytest.raises(SystemExit) as ended:
            ask()
        assert (ended.value.code, capsys.readouterr().out) == (0, f"Batchscope {VERSION}\n")
    assert version_of("batchscope") == VERSION, "what pip was told"
    assert version_of("no-such-package") == "not installed"


@pytest.mark.parametrize("words", [["--max-batch-size", "0"], ["serve", "--max-batch-size", "0"]])
def test_that_options_without_a_command_are_those_of_the_service(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    state = json.loads(capsys.readouterr().out)
    assert state["state"] == "failed"
    assert "--max-batch-size: Must be a whole number from 1 to 256." in state["reason"]


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A folder of the user's with packages that bear the names of ours."""
    for name in ("service", "gui"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text('raise ImportError("a foreign package")')
    return tmp_path


def run_in(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": python_path()}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


BATCHSCOPE = (sys.executable, "-P", "-c", "import sys; from gui.__main__ import main; sys.exit(main())")


def test_that_batchscope_reaches_the_commands_beside_foreign_packages_of_our_names(foreign: Path) -> None:
    recording = ROOT / "tests" / "recordings" / "burst.bsr"
    explained = run_in(foreign, *BATCHSCOPE, "explain", str(recording))
    assert (explained.returncode, explained.stderr) == (0, "")
    assert "requests" in explained.stdout

    mistyped = run_in(foreign, *BATCHSCOPE, "explian")
    assert (mistyped.returncode, mistyped.stdout) == (2, "")
    assert "Did you mean explain?" in mistyped.stderr

    assert "  bench " in run_in(foreign, *BATCHSCOPE, "--help").stdout


def test_that_a_child_of_ours_finds_our_packages_beside_foreign_ones(foreign: Path) -> None:
    assert run_in(foreign, sys.executable, "-m", "service", "--help").returncode != 0, "else this tests nothing"
    assert run_in(foreign, *our_python("service", "--help")).returncode == 0


def test_that_a_workload_of_the_users_is_found_in_the_current_folder(foreign: Path) -> None:
    (foreign / "random.py").write_text("raise ImportError('it hides what Python brings')")
    (foreign / "doubling.py").write_text(
        "from service.workloads.workload import Workload\n"
        "class Doubling(Workload):\n"
        "    name, description, examples = 'doubling', 'Doubles', ('3',)\n"
        "    def __call__(self, inputs): return [2 * each for each in inputs]\n"
    )
    (foreign / "in.jsonl").write_text("3\n4\n")

    ran = run_in(foreign, *BATCHSCOPE, "batch", "in.jsonl", "out.jsonl", "--workload", "doubling:Doubling")

    assert ran.returncode == 0, ran.stderr
    assert (foreign / "out.jsonl").read_text() == '{"line":1,"output":6}\n{"line":2,"output":8}\n'


@pytest.mark.parametrize("words", [["--help"], ["explain", "tests/recordings/burst.bsr"]], ids=" ".join)
def test_that_a_command_says_nothing_of_a_reader_that_leaves_early(words: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "service", *words]
    with open(writing, "wb") as output:
        ended = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, check=False, cwd=ROOT)
    assert (ended.returncode, ended.stderr) == (1, b"")
