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
from service.engine.model.cache import Source, publish_folder
from service.engine.model.report import ModelError
from service.engine.model.resolve import pending_stages, resolve
from service.launch import checks
from service.launch.driver import Driver
from service.launch.model_choice import ModelChoice
from service.launch.supervisor import DriverMessage, DriverPlan
from service.messages.installation import cache_folder
from service.messages.life import StageProgress, Starting
from service.messages.options import LARGE_MODEL, LARGE_MODEL_GPU_BYTES, SMALL_MODEL, RunOptions, ServiceOptions
from tests.unit.model_files import Server, send, send_json, served, sha256, write_model_folder

COMMIT = "a" * 40


@dataclass
class Hub:
    """Serves the files of one folder as the only repository, whatever its name."""

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


# -- the default model ------------------------------------------------------------------------------------------------


@pytest.fixture
def small(hub_cache: Path, tmp_path: Path) -> Path:
    """The small model, which is here already."""
    packed = tmp_path / "small.gguf"
    packed.write_bytes(b"GGUF")
    part, folder = tmp_path / "part", cache_folder() / "models" / SMALL_MODEL
    folder.parent.mkdir(parents=True, exist_ok=True)
    part.mkdir()
    (part / "model.safetensors").write_bytes(b"weights")
    publish_folder(part, folder, Source.of(packed, sha256(b"GGUF")))
    return folder


class Start(list[DriverMessage]):
    """Takes what a driver emits, and ends the start before Ray begins."""

    class RayBeginsError(Exception):
        pass

    def __call__(self, message: DriverMessage) -> None:
        self.append(message)
        if isinstance(message, StageProgress) and message.name == "ray":
            raise self.RayBeginsError

    @property
    def announced(self) -> list[Starting]:
        return [message for message in self if isinstance(message, Starting)]

    @property
    def titles(self) -> list[list[str]]:
        return [[stage.title for stage in starting.stages if stage.name == "fetch"] for starting in self.announced]


def started(device: str = "auto", **options: str) -> Start:
    start = Start()
    service = ServiceOptions(device=device, **options)
    plan = DriverPlan(options=RunOptions(service=service, port=0), instance="i", directory="", started_s=0.0)
    with pytest.raises(Start.RayBeginsError):
        Driver(plan, start).start()
    return start


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The memory of the only GPU of this machine, in bytes."""
    memory = [LARGE_MODEL_GPU_BYTES]
    monkeypatch.setattr(checks, "any_gpu_bytes", lambda: memory[0])
    monkeypatch.setattr(checks, "check_device", lambda device: memory[0])
    monkeypatch.setattr(checks, "check_memory_for_weights", lambda weights_bytes, replicas: None)
    return memory


@pytest.mark.parametrize("device", ["auto", "cuda", "cuda:1"])
def test_that_a_gpu_that_holds_the_large_model_gets_it(
    device: str, gpu: list[int], online: tuple[Hub, Server], small: Path
) -> None:
    start = started(device)
    assert start.titles[-1] == ["Fetch SmolLM2-1.7B-Instruct"]
    assert hub.cached(LARGE_MODEL) is not None
    assert [starting.why_model for starting in start.announced] == ["", ""]


def test_that_a_large_model_that_is_here_is_taken_without_a_network(
    gpu: list[int], online: tuple[Hub, Server], small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve(LARGE_MODEL)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    start = started()
    assert (start.titles[-1], start.announced[-1].why_model) == ([], "")


def test_that_the_small_model_takes_the_place_of_a_large_one_that_cannot_be_fetched_and_says_so(
    gpu: list[int], small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    start = started()
    assert start.titles == [[], ["Fetch SmolLM2-1.7B-Instruct"], []]
    why = start.announced[-1].why_model
    assert why.startswith("SmolLM2-135M-Instruct takes the place of SmolLM2-1.7B-Instruct, which this GPU holds. ")
    assert "the Hugging Face hub can't be reached" in why
    assert why in capsys.readouterr().err
    finished = [message.name for message in start if isinstance(message, StageProgress) and message.finished]
    assert finished == ["check"], "the stage that failed is not reported finished"


def test_that_a_large_model_that_memory_cannot_take_is_not_fetched(
    gpu: list[int], online: tuple[Hub, Server], small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(weights_bytes: int, replicas: int) -> None:
        if weights_bytes > 1e9:
            raise checks.StartError("Ray and the model need more memory.")

    monkeypatch.setattr(checks, "check_memory_for_weights", check)
    assert "need more memory" in started().announced[-1].why_model
    assert online[1].asked == []


@pytest.mark.parametrize(
    ("device", "options", "gpu_bytes"),
    [
        ("cpu", {}, LARGE_MODEL_GPU_BYTES),
        ("auto", {}, 0),
        ("auto", {}, LARGE_MODEL_GPU_BYTES - 1),
        ("auto", {"model": SMALL_MODEL}, LARGE_MODEL_GPU_BYTES),
        ("auto", {"workload": "adder"}, LARGE_MODEL_GPU_BYTES),
    ],
)
def test_that_elsewhere_nothing_changes(
    device: str, options: dict[str, str], gpu_bytes: int, gpu: list[int], online: tuple[Hub, Server], small: Path
) -> None:
    gpu[0] = gpu_bytes
    start = started(device, **options)
    assert (start.titles, online[1].asked) == ([[]], [])


def test_that_a_model_of_the_users_own_that_cannot_be_had_is_refused(gpu: list[int], hub_cache: Path) -> None:
    choice = ModelChoice(ServiceOptions(model="/nowhere"))
    assert not choice.suit(gpu[0])
    with pytest.raises(ModelError, match="There is no model '/nowhere'"):
        choice.bring(lambda *_: None, lambda: pytest.fail("another was taken"))
