from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from gui.control.preferences import FOLDER_VARIABLE, Preferences, PreferencesFile, default_path
from service.messages.files import NotWrittenError
from service.messages.load import Burst
from service.messages.pipes import SOURCE_ROOT
from service.messages.settings import Settings

pytestmark = pytest.mark.promise("T15")

OTHERS = Preferences(
    theme="dark",
    layout={"splitter": [1, 2, 3]},
    window_s=300.0,
    settings=Settings(formation="early", max_batch_size=3),
    pattern=Burst(count=7),
    prompts=("é", "two\nlines"),
    workload="mine:Squares",
    other_prompts={"text": ("Once",)},
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "batchscope" / "preferences.json"


def saved(path: Path) -> bytes:
    PreferencesFile(path).save(OTHERS)
    return path.read_bytes()


def test_that_without_a_file_the_defaults_hold_and_nothing_is_said(path: Path) -> None:
    file = PreferencesFile(path)

    assert file.load() == Preferences()
    assert file.complaint is None


def test_that_what_was_saved_is_read(path: Path) -> None:
    saved(path)
    file = PreferencesFile(path)

    assert file.load() == OTHERS
    assert file.complaint is None


def test_that_saving_the_same_again_does_not_touch_the_file(path: Path) -> None:
    saved(path)
    file = PreferencesFile(path)
    preferences = file.load()
    path.unlink()

    file.save(preferences)

    assert not path.exists()


def test_that_an_older_file_with_fewer_fields_and_a_newer_one_with_more_are_read(path: Path) -> None:
    path.parent.mkdir()
    path.write_text('{"theme": "light", "of_tomorrow": {"a": 1}}')

    assert PreferencesFile(path).load() == Preferences(theme="light")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"layout": ' + b'{"a": ' * 100_000,
        b'{"window_s": 1e400}',
        b'{"window_s": NaN}',
        b'{"window_s": -1}',
        b'{"settings": {"max_batch_size": 100000}}',
        b'{"settings": {"batch_wait_timeout_s": "0.05"}}',
        b'{"settings": {"stride_s": 5e-324}}',
        b'{"theme": "pink"}',
        b"x" * 2_000_000,
    ],
)
def test_that_a_damaged_file_gives_defaults_a_reason_and_is_kept(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    file = PreferencesFile(path)

    assert file.load() == Preferences()

    assert file.complaint is not None
    assert file.complaint.startswith("The saved preferences could not be used (")
    file.save(OTHERS)
    assert (path.parent / "preferences.damaged.json").read_bytes() == content
    assert PreferencesFile(path).load() == OTHERS


def test_that_no_damaged_file_replaces_an_earlier_one(path: Path) -> None:
    path.parent.mkdir()
    for content in ("one", "two", "three"):
        path.write_text(content)
        PreferencesFile(path).load()

    assert sorted(p.read_text() for p in path.parent.iterdir()) == ["one", "three", "two"]


def test_that_mutated_files_are_read_as_valid_or_as_defaults(path: Path) -> None:
    whole = saved(path)
    chance = random.Random(15)
    for _ in range(1000):
        mutated = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            match chance.randrange(3):
                case 0:
                    mutated[chance.randrange(len(mutated))] = chance.randrange(256)
                case 1:
                    del mutated[chance.randrange(len(mutated)) :]
                    mutated += b" "
                case _:
                    at = chance.randrange(len(mutated))
                    mutated[at:at] = chance.randbytes(3)
        path.write_bytes(mutated)
        file = PreferencesFile(path)

        preferences = file.load()

        assert preferences == Preferences() or file.complaint is None
        assert msgspec.json.decode(msgspec.json.encode(preferences), type=Preferences) == preferences
        for aside in path.parent.glob("*.damaged*"):
            aside.unlink()


KILLED_AT_EACH_CALL = """
import itertools, os, signal, sys
from pathlib import Path
from gui.control.preferences import Preferences, PreferencesFile

path, old, new = Path(sys.argv[1]), Preferences(theme="light"), Preferences(theme="dark")
for last in itertools.count(1):
    PreferencesFile(path).save(old)
    child = os.fork()
    if not child:
        calls = itertools.count(1)

        def count(frame, event, arg):
            if event == "c_call" and next(calls) == last:
                os.kill(os.getpid(), signal.SIGKILL)

        file = PreferencesFile(path)
        sys.setprofile(count)
        file.save(new)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    print(PreferencesFile(path).load().theme, flush=True)
    if not status:
        break
"""


def test_that_a_process_that_is_killed_while_it_saves_leaves_the_old_file_or_the_new_one(path: Path) -> None:
    """At each call that saving makes of what is not Python, one process after the other."""
    script = [sys.executable, "-c", KILLED_AT_EACH_CALL, str(path)]
    read = subprocess.run(script, capture_output=True, text=True, cwd=SOURCE_ROOT, check=True).stdout.split()
    olds, news = read.count("light"), read.count("dark")
    assert read == ["light"] * olds + ["dark"] * news, "and never the defaults of a file that cannot be read"
    assert min(olds, news) > 1


def test_that_a_folder_in_the_file_s_place_is_told(path: Path) -> None:
    path.mkdir(parents=True)
    file = PreferencesFile(path)

    assert file.load() == Preferences()
    assert file.complaint is not None


def test_that_a_folder_that_cannot_be_made_is_told_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(NotWrittenError, match="could not be made"):
        PreferencesFile(tmp_path / "file" / "preferences.json").save(OTHERS)


def test_that_the_environment_names_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, os.fspath(tmp_path))

    assert default_path() == tmp_path / "preferences.json"


def test_that_the_file_can_be_read_by_people(path: Path) -> None:
    assert json.loads(saved(path))["settings"]["formation"] == "early"
    assert b"\n" in saved(path)
