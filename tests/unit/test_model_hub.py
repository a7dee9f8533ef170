"""Models from the hub, played by a server of the test's own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Event

import pytest
from huggingface_hub import constants

from service.engine.model import hub
from service.engine.model.report import ModelError
from service.engine.model.resolve import pending_stages, resolve
from tests.unit.model_files import Server, send, send_json, served, sha256, write_model_folder

COMMIT = "a" * 40


@dataclass
class Hub:
    """Serves the files of one folder as the only repository, `owner/tiny`, and `tiny` too."""

    files: dict[str, bytes]
    status: int = 200
    hold: Event | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def answer(self, handler: BaseHTTPRequestHandler, path: str) -> None:
        if self.hold is not None:
            self.hold.wait()
        if self.status != 200:
            send(handler, b"", status=self.status, **self.headers)
        elif "/tree/" in path:
            send_json(handler, [self._listed(name, data) for name, data in self.files.items()])
        elif path.startswith("/api/models/"):
            siblings = [{"rfilename": name, "size": len(data)} for name, data in self.files.items()]
            send_json(handler, {"id": "owner/tiny", "sha": COMMIT, "siblings": siblings})
        else:
            data = self.files[path.rpartition(COMMIT + "/")[2]]
            send(handler, data, "application/octet-stream", ETag=f'"{sha256(data)}"', X_Repo_Commit=COMMIT)

    @staticmethod
    def _listed(name: str, data: bytes) -> dict[str, object]:
        return {"type": "file", "path": name, "size": len(data), "oid": sha256(data)[:40]}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = write_model_folder(tmp_path_factory.mktemp("hub") / "tiny")
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BATCHSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "hub"


@pytest.fixture
def online(files: dict[str, bytes], hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Hub, Server]]:
    fake = Hub(dict(files))
    with served(fake.answer) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield fake, server


def asked_for(server: Server) -> set[str]:
    return {line.rpartition("/")[2] for line in server.asked if line.startswith("GET") and COMMIT + "/" in line}


@pytest.mark.parametrize("name", ["tiny", "owner/tiny"])
def test_a_model_is_fetched_once_and_then_found_without_asking(online: tuple[Hub, Server], name: str) -> None:
    assert pending_stages(name) == ("fetch",)
    totals: list[float | None] = []
    model = resolve(name, lambda stage, done, total: totals.append(total))
    assert model.name == name
    assert totals[-1] == sum(map(len, online[0].files.values()))
    asked = len(online[1].asked)
    assert pending_stages(name) == ()
    assert resolve(name) == model
    assert len(online[1].asked) == asked


def test_only_what_is_needed_is_fetched(online: tuple[Hub, Server], files: dict[str, bytes]) -> None:
    extras = ["pytorch_model.bin", "tf_model.h5", "modeling_tiny.py", "consolidated.safetensors"]
    online[0].files |= dict.fromkeys(extras, b"never")
    resolve("tiny")
    assert asked_for(online[1]) == set(files)


def test_a_model_with_only_a_pickle_is_refused_before_it_is_fetched(online: tuple[Hub, Server]) -> None:
    online[0].files["pytorch_model.bin"] = online[0].files.pop("model.safetensors")
    with pytest.raises(ModelError, match="no weights in safetensors"):
        resolve("tiny")
    assert asked_for(online[1]) == set()


def test_damaged_weights_are_told(online: tuple[Hub, Server]) -> None:
    online[0].files["model.safetensors"] = online[0].files["model.safetensors"][:-1]
    with pytest.raises(ModelError, match="damaged or cut short"):
        resolve("tiny")


def test_a_name_that_the_hub_does_not_know_is_told(online: tuple[Hub, Server]) -> None:
    online[0].status, online[0].headers = 404, {"X-Error-Code": "RepoNotFound"}
    with pytest.raises(ModelError, match="There is no model owner/unknown on the hub"):
        resolve("owner/unknown")


def test_a_hub_that_cannot_be_reached_is_told(hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ModelError, match="the Hugging Face hub can't be reached"):
        resolve("gpt2")


def test_a_hub_that_never_answers_is_given_up(online: tuple[Hub, Server], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "ANSWER_S", 0.5)
    online[0].hold = Event()
    try:
        with pytest.raises(ModelError, match="the Hugging Face hub can't be reached"):
            resolve("tiny")
    finally:
        online[0].hold.set()


def test_no_name_leads_out_of_the_cache(hub_cache: Path) -> None:
    for name in ("..", "a/..", "../a", "a/b/c", "a--b", "a\\b", "-a", "a/", "/a", "a" * 200, os.devnull):
        assert not hub.is_repo_id(name)
