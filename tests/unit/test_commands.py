"""The words of `python -m service`: which there are, and what is answered to those that there are not."""

from __future__ import annotations

import json

import pytest

from service.__main__ import COMMANDS, main


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


@pytest.mark.parametrize(("word", "meant"), [("laod", "load"), ("bnech", "bench"), ("deploy_config", "deploy-config")])
def test_that_a_mistyped_command_is_answered_with_the_nearest(
    word: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([word, "--url", "x"]) == 2
    assert f"There is no command '{word}'. Did you mean {meant}?" in capsys.readouterr().err


def test_that_a_word_like_no_command_is_answered_with_where_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["xyzzy"]) == 2
    assert "python -m service --help" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--max-batch-size", "0"], ["serve", "--max-batch-size", "0"]])
def test_that_options_without_a_command_are_those_of_the_service(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    state = json.loads(capsys.readouterr().out)
    assert state["state"] == "failed"
    assert "--max-batch-size: Must be a whole number from 1 to 256." in state["reason"]
