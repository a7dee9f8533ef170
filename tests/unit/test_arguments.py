from __future__ import annotations

from pathlib import Path

import pytest

from gui.control.arguments import Arguments, parse


def test_that_nothing_has_to_be_said() -> None:
    assert parse([]) == Arguments()


def test_that_all_that_is_said_is_heard() -> None:
    words = "--model gpt2 --device cpu --dtype float32 --port 8100 --theme dark --replicas 2 --address auto"

    assert parse(words.split()) == Arguments(
        model="gpt2",
        device="cpu",
        dtype="float32",
        port=8100,
        theme="dark",
        service=("--replicas=2", "--address=auto"),
    )


def test_that_a_demo_says_where_its_results_go() -> None:
    arguments = parse(["--demo", "30", "--report", "r.json", "--screenshot", "s.png"])

    assert (arguments.demo_s, arguments.report, arguments.screenshot) == (30.0, Path("r.json"), Path("s.png"))


@pytest.mark.parametrize(
    "words",
    [
        "--demo 0",
        "--demo nan",
        "--demo ten",
        "--report r.json",
        "--screenshot s.png",
        "--port 70000",
        "--theme pink",
        "--nonsense",
        "--mod gpt2",
    ],
)
def test_that_what_makes_no_sense_is_refused(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parse(words.split())

    assert end.value.code == 2
    assert "error:" in capsys.readouterr().err
