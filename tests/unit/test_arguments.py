from __future__ import annotations

from pathlib import Path

import pytest

from gui.__main__ import main
from gui.control.arguments import Arguments, parse
from service.messages.options import Attachment


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


def test_that_a_running_service_is_named_by_its_address(tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("0123456789abcdef\n")

    arguments = parse(["--url", "http://127.0.0.1:8000/v1/", "--token-file", str(token_file)])

    assert arguments == Arguments(attachment=Attachment("http://127.0.0.1:8000", str(token_file)))


@pytest.mark.parametrize(
    ("words", "says"), [(["new"], "lesson new FILE.md"), (["99"], "There is no lesson 99"), (["new", "a.txt"], "a.md")]
)
def test_that_a_lesson_that_cannot_be_opened_is_said_without_a_window(
    words: list[str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["batchscope", "lesson", *words])
    with pytest.raises(SystemExit, match=says):
        main()


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
        "--url ftp://x",
        "--url http://x --model gpt2",
        "--url http://x --port 8000",
        "--url http://x --token-file /none",
        "--token-file /dev/null",
    ],
)
def test_that_what_makes_no_sense_is_refused(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parse(words.split())

    assert end.value.code == 2
    assert "error:" in capsys.readouterr().err
