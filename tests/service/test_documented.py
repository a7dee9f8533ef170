"""The commands that the documents show, as they stand there: on a running service, with shorter times."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.messages.pipes import our_python
from tests.service.conftest import Service
from tests.unit.test_documents import commands

SHOWN_URL = "http://127.0.0.1:8000"
SHORT = {
    "record": ("--seconds", "2"),
    "predict": ("--seconds", "3"),
    "goal": ("--seconds", "3", "--max-batch-size-up-to", "4"),
    "hold": ("--seconds", "3"),
    "compare": ("--duration", "1", "--rounds", "2", "--warm-up", "0"),
    "sweep": ("--duration", "1", "--warm-up", "0"),
    "load": ("--duration", "1"),
}
UNDER_LOAD = ("record", "predict", "goal", "hold")
ELSEWHERE = ("batch", "bench")
"""Commands with tests of their own: `batch` reads a file that the reader has, and `bench` takes minutes."""


def of_service() -> list[tuple[str, ...]]:
    """What the documents show after `python -m service`, in their order: a recording is made before it is read."""
    shown = [words[3:] for words in commands() if words[1:3] == ("-m", "service")]
    return [words for words in shown if words and not words[0].startswith("-") and words[0] not in ELSEWHERE]


@contextlib.contextmanager
def loaded(url: str) -> Iterator[None]:
    load = our_python("service", "load", "--url", url, "--pattern", "closed", "--users", "4", "--duration", "600")
    with subprocess.Popen(load, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        yield
        process.kill()


def test_that_the_commands_on_a_service_do_what_the_documents_show(adder_service: Service, tmp_path: Path) -> None:
    for words in of_service():
        shown = [word.replace(SHOWN_URL, adder_service.url) for word in words]
        command = our_python("service", *shown, *SHORT.get(words[0], ()))
        with loaded(adder_service.url) if words[0] in UNDER_LOAD else contextlib.nullcontext():
            ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, (words, ran.stdout, ran.stderr)
    named = {word for words in of_service() for word in words if word.endswith((".bsr", ".json", ".html", ".yaml"))}
    assert {path.name for path in tmp_path.iterdir()} >= named


@pytest.mark.parametrize(
    ("shown", "answer"),
    [
        ("/?number=3", r"4"),
        ("/?text=", r"Once upon a time.+"),
        ("/v1/completions", r"data: .+\[DONE\]\s+"),
        ("/v1/chat/completions", r'\{.+"role":"assistant".+\}'),
    ],
)
def test_that_curl_is_answered(shown: str, answer: str, service: Service, adder_service: Service) -> None:
    if shutil.which("curl") is None:
        pytest.skip("there is no curl here")
    url = adder_service.url if "number" in shown else service.url
    asked = [words for words in commands() if words[0] == "curl" and any(SHOWN_URL + shown in word for word in words)]
    assert asked, "the documents show it"
    for words in asked:
        command = [word.replace(SHOWN_URL, url) for word in words]
        ran = subprocess.run([*command, "--silent", "--fail"], capture_output=True, text=True, check=True)
        assert re.fullmatch(answer, ran.stdout, re.DOTALL)
