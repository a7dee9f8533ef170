"""What a folder must hold to be taken for a model, and what is said of one that does not."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from pathlib import Path

import pytest

from service.engine.model.report import ModelError
from service.engine.model.resolve import ModelFolder, pending_stages, resolve
from tests.unit.model_files import write_model_folder

pytestmark = pytest.mark.promise("T16")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model_folder(tmp_path_factory.mktemp("whole") / "tiny")


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(whole, tmp_path / "tiny"))


def refusal(spec: str | Path) -> str:
    with pytest.raises(ModelError) as refused:
        resolve(str(spec))
    with pytest.raises(ModelError):
        pending_stages(str(spec))
    return str(refused.value)


def test_a_whole_folder_is_used_where_it_is(folder: Path) -> None:
    assert resolve(str(folder)) == ModelFolder("tiny", folder)
    assert pending_stages(str(folder)) == ()


@pytest.mark.parametrize(
    "spec", ["", "  ", "a b", "/nowhere/at all", "../nowhere", "no\0thing", "x" * 5000, "~nobody/x"]
)
def test_what_is_no_model_is_refused(spec: str) -> None:
    assert "There is no model" in refusal(spec)


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null", "/dev/tty"])
def test_a_device_is_not_read(device: str) -> None:
    assert "neither a file nor a folder" in refusal(device)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.gguf")
    assert "neither a file nor a folder" in refusal(tmp_path / "model.gguf")


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors", "added_tokens.json"])
def test_a_pipe_in_the_folder_is_not_waited_for(folder: Path, name: str) -> None:
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    assert name in refusal(folder)


def test_a_link_to_a_device_is_not_followed(folder: Path) -> None:
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to("/dev/zero")
    assert "config.json" in refusal(folder)


def test_an_empty_folder_is_not_a_model(tmp_path: Path) -> None:
    assert "has no config.json" in refusal(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"a": NaN}', "[" * 100_000, "\xff"])
def test_a_damaged_configuration_is_refused(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text, "latin-1")
    assert "config.json is damaged" in refusal(folder)


def test_a_missing_tokenizer_is_named(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    assert "no tokenizer" in refusal(folder)


def test_a_pickle_is_never_opened(folder: Path, tmp_path: Path) -> None:
    canary = tmp_path / "canary"

    class Canary:
        def __reduce__(self) -> tuple[object, tuple[object, ...]]:
            return (Path.touch, (canary,))

    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Canary()))
    assert "pickle (pytorch_model.bin)" in refusal(folder)
    assert not canary.exists()


def test_a_configuration_that_names_a_pickle_is_refused(folder: Path) -> None:
    revise(folder, transformers_weights="adapter_model.bin")
    assert "not safetensors" in refusal(folder)


@pytest.mark.parametrize("keep", [0, 4, 8, 100, 5000, -1])
def test_weights_cut_short_are_refused(folder: Path, keep: int) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:keep])
    assert "damaged or cut short" in refusal(folder)


def test_weights_with_a_giant_header_are_refused(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(b"\xff" * 8 + weights.read_bytes()[8:])
    assert "damaged or cut short" in refusal(folder)


def test_a_missing_part_of_the_weights_is_named(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    names = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    assert "lacks model-00002-of-00002.safetensors" in refusal(folder)


def test_parts_of_the_weights_lie_in_the_folder(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder.parent / "elsewhere.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../elsewhere.safetensors"}}))
    assert "lacks ../elsewhere.safetensors" in refusal(folder)


@pytest.mark.parametrize("architecture", ["BertForMaskedLM", "T5ForConditionalGeneration", "ViTModel"])
def test_a_model_that_does_not_generate_text_is_refused(folder: Path, architecture: str) -> None:
    revise(folder, architectures=[architecture])
    assert f"{architecture}, which does not generate" in refusal(folder)


def test_more_layers_than_weights_are_refused(folder: Path) -> None:
    revise(folder, num_hidden_layers=1_000_000_000)
    assert "promises 1000000000 layers" in refusal(folder)


def revise(folder: Path, **changes: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
