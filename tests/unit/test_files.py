from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from service.messages.files import NotWrittenError, write_whole
from tests.disk import room_for, umask

pytestmark = pytest.mark.promise("T18")


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

    with pytest.raises(NotWrittenError, match=r"disk is full; 4,000 bytes are needed\. Nothing was overwritten\. Free"):
        write_whole(path, b"x" * 4000)

    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["figures.csv"]


@pytest.mark.parametrize("room", range(0, 4000, 200))
@pytest.mark.parametrize("overwrite", [True, False])
def test_that_a_write_that_ends_half_way_leaves_what_was_there(tmp_path: Path, overwrite: bool, room: int) -> None:
    path = tmp_path / "figures.csv"
    if overwrite:
        path.write_bytes(b"old")

    with room_for(room), pytest.raises(NotWrittenError, match=r"more than is allowed there\..*Choose another place"):
        write_whole(path, b"x" * 4000, overwrite=overwrite)

    assert os.listdir(tmp_path) == (["figures.csv"] if overwrite else [])
    assert not overwrite or path.read_bytes() == b"old"


def test_that_a_file_that_is_not_to_be_overwritten_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "figures.csv"
    write_whole(path, b"old", overwrite=False)

    with pytest.raises(NotWrittenError, match=r"is there already\. Choose another name"):
        write_whole(path, b"new", overwrite=False)

    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["figures.csv"]


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o777])
@pytest.mark.parametrize("before", [None, 0o666])
@pytest.mark.parametrize("overwrite", [True, False])
def test_that_its_owner_alone_may_read_it(tmp_path: Path, mask: int, before: int | None, overwrite: bool) -> None:
    path = tmp_path / "figures.csv"
    if before and overwrite:
        path.touch()
        path.chmod(before)

    with umask(mask):
        write_whole(path, b"new", overwrite=overwrite)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_that_a_link_goes_on_to_point_to_its_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    file, link = tmp_path / "folder" / "figures.csv", tmp_path / "link.csv"
    file.write_bytes(b"old")
    link.symlink_to(file)

    write_whole(link, b"new")

    assert link.is_symlink()
    assert file.read_bytes() == b"new"


def test_that_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writing = threading.Thread(target=write_whole, args=(path, b"new"))
    writing.start()

    assert path.read_bytes() == b"new"
    writing.join()
    assert path.is_fifo()


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
