"""`batchscope desktop`: what a desktop reads is where it looks for it, by the rules of freedesktop.org."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gui.control.desktop_entry import PLACES, SOURCES, install, remove
from gui.look.tokens import DARK
from service.analysis.recording.format import SUFFIX
from service.messages.text import UserError

ROOT = Path(__file__).parents[2]
MIME_TYPE = "application/x-batchscope-recording"
COMMAND = (sys.executable, "-P", "-m", "gui", "desktop")
ASKED = """
import json, sys
from PySide6.QtCore import QMimeDatabase
of = QMimeDatabase().mimeTypeForFile(sys.argv[1])
print(json.dumps([of.name(), of.comment(), of.iconName(), of.inherits("application/gzip")]))
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program in a folder whose name has every character that the key Exec treats in its own way."""
    path = tmp_path / "a b'c\"d$e`f\\g%h&i;j" / "batchscope"
    path.parent.mkdir()
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def entry_in(folder: Path) -> configparser.SectionProxy:
    parser = configparser.RawConfigParser(delimiters="=", interpolation=None)
    parser.optionxform = str
    parser.read(folder / "applications" / "batchscope.desktop", encoding="utf-8")
    assert parser.sections() == ["Desktop Entry"]
    return parser["Desktop Entry"]


def test_that_the_entry_starts_the_program_whatever_its_folder_is_called(program: Path, tmp_path: Path) -> None:
    install(program, tmp_path)
    entry = entry_in(tmp_path)
    assert (entry["Type"], entry["Icon"], entry["MimeType"]) == ("Application", "batchscope", f"{MIME_TYPE};")
    command = entry["Exec"].replace("\\\\", "\\")  # the escapes of a string come first, then quotes as a shell has them
    printed = subprocess.check_output(["sh", "-c", f"printf '%s\\n' {command}"], text=True)
    assert [word.replace("%%", "%") for word in printed.splitlines()] == [str(program), "%f"]


@pytest.mark.skipif(shutil.which("desktop-file-validate") is None, reason="desktop-file-utils is not installed")
def test_that_the_tool_of_the_specification_finds_no_fault(program: Path, tmp_path: Path) -> None:
    install(program, tmp_path)
    for path in (SOURCES / "batchscope.desktop", tmp_path / "applications" / "batchscope.desktop"):
        found = subprocess.run(["desktop-file-validate", str(path)], capture_output=True, text=True, check=False)
        assert (found.returncode, found.stdout) == (0, "")


def test_that_a_desktop_knows_a_recording_by_its_name_and_gives_it_the_icon(program: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    install(program, data)
    recording = tmp_path / f"run{SUFFIX}"
    shutil.copy(ROOT / "tests" / "recordings" / "burst.bsr", recording)
    environment = {**os.environ, "XDG_DATA_HOME": str(data)}
    asked = subprocess.run([sys.executable, "-c", ASKED, recording], env=environment, capture_output=True, check=True)
    assert json.loads(asked.stdout) == [MIME_TYPE, "Batchscope recording", "batchscope", True]
    assert (data / "icons" / "hicolor" / "scalable" / "apps" / "batchscope.svg").read_text().startswith("<svg ")


def test_that_removing_takes_away_what_was_installed_and_nothing_else(program: Path, tmp_path: Path) -> None:
    other = tmp_path / "applications" / "other.desktop"
    install(program, tmp_path)
    other.write_text("[Desktop Entry]\n")
    assert all((tmp_path / place).is_file() for place in PLACES)
    remove(tmp_path)
    assert not any((tmp_path / place).exists() for place in PLACES)
    assert other.is_file()
    assert remove(tmp_path) == f"There is nothing of Batchscope in {tmp_path}."


def test_that_what_no_menu_can_start_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Call the command as: batchscope desktop"):
        install(tmp_path / "gone", tmp_path)
    assert not (tmp_path / "applications").exists()


def test_that_a_folder_that_cannot_be_written_to_is_named(program: Path, tmp_path: Path) -> None:
    (tmp_path / "icons").write_text("a file")
    with pytest.raises(UserError, match="icons"):
        install(program, tmp_path)


def test_that_the_command_answers_in_a_sentence(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path)}
    ran = [subprocess.run([*COMMAND, *words], env=environment, capture_output=True, text=True, cwd=ROOT, check=False)
           for words in ([], ["remove"])]  # fmt: skip
    assert [each.returncode for each in ran] == [2, 0], "the module that was run is no program"
    assert "Call the command as: batchscope desktop" in ran[0].stderr
    assert ran[1].stdout == f"There is nothing of Batchscope in {tmp_path}.\n"


def test_that_the_icon_wears_the_palette_of_the_window() -> None:
    colours = set(re.findall(r"#[0-9A-Fa-f]{6}", (SOURCES / "batchscope.svg").read_text()))
    assert colours == {DARK.panel, DARK.border, DARK.t1, DARK.t3, DARK.full}
