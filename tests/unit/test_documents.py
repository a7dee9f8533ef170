"""The documents say what is so: their links, tables and commands are held against the product."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tests import documents
from tests.documents import ROOT

FOLDERS = ("service", "gui", "tests")
DOCUMENTS = [*ROOT.glob("*.md"), *(path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.md")))]
MOST_README_LINES = 200
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
FENCE = re.compile(r"```sh\n(.*?)```", re.DOTALL)
MARK = re.compile(r"mark\.promise\(([^)]*)\)")
PATHS = re.compile(r"`((?:service|gui|tests)/[\w/]+(?:\.\w+)?/?)`")


def commands() -> Iterator[tuple[str, ...]]:
    """The words of every command that a document shows, each once, without its comment."""
    seen = set()
    for document in DOCUMENTS:
        for block in FENCE.findall(document.read_text()):
            for line in block.replace("\\\n", " ").splitlines():
                words = tuple(shlex.split(line, comments=True))
                if words and words not in seen:
                    seen.add(words)
                    yield words


def of_service() -> list[tuple[str, ...]]:
    """The words after `python -m service`."""
    shown = [words[3:] for words in commands() if words[1:3] == ("-m", "service")]
    return [words for words in shown if words and not words[0].startswith("-")]


def of_benchmarks() -> list[str]:
    """The benchmarks that the documents name."""
    return sorted({words[2] for words in commands() if words[1:2] == ("-m",) and words[2].startswith("tests.")})


def test_that_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= MOST_README_LINES


def test_that_readme_and_package_name_the_same_pythons() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [each.rpartition(" ")[2] for each in project["classifiers"] if re.search(r":: 3\.\d+$", each)]
    after = f"3.{int(named[-1].partition('.')[2]) + 1}"
    assert project["requires-python"] == f">={named[0]},<{after}"
    assert f"With Python {', '.join(named[:-1])} or {named[-1]}," in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_that_links_and_paths_lead_somewhere(document: Path) -> None:
    text = document.read_text()
    links = [link for link in LINK.findall(text) if "://" not in link]
    assert [link for link in links if not (document.parent / link).exists()] == []
    assert [path for path in PATHS.findall(text) if not (ROOT / path).exists()] == []


def test_that_keys_and_glossary_are_those_of_the_window() -> None:
    text = documents.WINDOW.read_text()
    assert text == documents.window_document(text), "Run python -m tests.documents"


@pytest.mark.parametrize("command", sorted({words[0] for words in of_service()}))
def test_that_a_command_has_every_option_that_is_shown(command: str) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "service", command, "--help"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "200"},
        check=False,
    )
    assert run.returncode == 0, run.stderr
    shown = {word for words in of_service() if words[0] == command for word in words if word.startswith("--")}
    assert {option for option in shown if option not in run.stdout} <= {"--help"}


@pytest.mark.parametrize("benchmark", of_benchmarks())
def test_that_a_benchmark_exists(benchmark: str) -> None:
    assert import_module(benchmark).__doc__


def test_that_every_promise_has_a_test_and_every_test_of_one_stands_in_the_table() -> None:
    promised = re.findall(r"^\| (T\d\d) \|", (ROOT / "tests" / "README.md").read_text(), re.MULTILINE)
    sources = (path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    tested = {test for source in sources for marks in MARK.findall(source) for test in re.findall(r"T\d\d", marks)}
    assert promised == [f"T{number:02}" for number in range(1, 28)] == sorted(tested)
