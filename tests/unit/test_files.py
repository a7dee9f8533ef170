from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from service.files import NotWrittenError, write_whole


def test_that_a_file_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "figures.csv"
    path.write_bytes(b"old")

    write_whole(path, b"new")

    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["figures.csv"]


@pytest.mark.parametrize("failing", ["fsync", "replace", "fdopen"])
def test_that_a_full_disk_leaves_the_old_file_and_says_how_much_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    path = tmp_path / "figures.csv"
    path.write_bytes(b"old")
    real_close = os.close

    def full(*args: object, **_: object) -> None:
        if failing == "fdopen":
            real_close(args[0])  # type: ignore[arg-type]
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, failing, full)

    with pytest.raises(NotWrittenError, match=r"the disk is full; 4,000 bytes are needed\. Nothing was overwritten"):
        write_whole(path, b"x" * 4000)

    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["figures.csv"]


def test_that_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotWrittenError, match="that folder does not exist"):
        write_whole(tmp_path / "none" / "figures.csv", b"")


def test_that_a_folder_in_the_file_s_place_stays(tmp_path: Path) -> None:
    path = tmp_path / "figures.csv"
    path.mkdir()

    with pytest.raises(NotWrittenError, match="there is a folder of that name"):
        write_whole(path, b"x")

    assert path.is_dir()
    assert os.listdir(tmp_path) == ["figures.csv"]
