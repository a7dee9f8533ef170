"""GGUF files: crafted and cut ones are refused at once, whole ones are unpacked into the cache."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from service.engine.model import convert
from service.engine.model.cache import MANIFEST, is_intact
from service.engine.model.child import run_module
from service.engine.model.gguf_file import GgufError, read_header
from service.engine.model.load import load
from service.engine.model.report import ModelError
from service.engine.model.resolve import pending_stages, resolve
from service.messages.pipes import SOURCE_ROOT
from tests.unit.model_files import LAYERS, endless_gguf, write_gguf

pytestmark = pytest.mark.promise("T16")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BATCHSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_whole_file_tells_its_architecture(whole: Path) -> None:
    header = read_header(whole)
    assert header.architecture == "llama"
    assert header.metadata["llama.block_count"] == LAYERS


@pytest.mark.timeout(60)  # the reader would go on for years
def test_the_file_that_makes_the_reader_loop_is_refused(tmp_path: Path) -> None:
    (tmp_path / "endless.gguf").write_bytes(endless_gguf())
    with pytest.raises(ModelError, match="claims 4611686018427387904 array elements"):
        resolve(str(tmp_path / "endless.gguf"))


def test_a_file_cut_anywhere_is_refused(whole: Path, tmp_path: Path) -> None:
    data = whole.read_bytes()
    cut = tmp_path / "cut.gguf"
    for size in [0, 1, 4, 24, *random.Random(1).sample(range(len(data)), 40), len(data) - 1]:
        cut.write_bytes(data[:size])
        with pytest.raises(GgufError):
            read_header(cut)


@pytest.mark.timeout(60)
def test_no_damage_to_the_description_does_worse_than_a_refusal(whole: Path, tmp_path: Path) -> None:
    data, chance = whole.read_bytes(), random.Random(2)
    damaged = tmp_path / "damaged.gguf"
    for _ in range(300):
        spoilt = bytearray(data)
        at = chance.randrange(4, 6000)
        spoilt[at : at + 8] = chance.choice([b"\xff" * 8, bytes(8), chance.randbytes(8), struct.pack("<Q", 1 << 40)])
        damaged.write_bytes(spoilt)
        try:
            read_header(damaged)
        except GgufError:
            continue


def test_a_file_is_unpacked_once(whole: Path, cache: Path) -> None:
    assert pending_stages(str(whole)) == ("convert",)
    seen: list[float] = []
    model = resolve(str(whole), lambda stage, done, total: seen.append(done))
    assert model.name == "tiny"
    assert model.path.is_relative_to(cache)
    assert seen[-1] == 1.0
    assert pending_stages(str(whole)) == ()
    loaded = load(model, "cpu", "float32")
    assert (loaded.context_length, loaded.tokenizer.padding_side) == (128, "left")
    assert resolve(str(whole), lambda *_: pytest.fail("it was unpacked again")) == model
    assert [path.name for path in model.path.parent.iterdir()] == [model.path.name]


def test_an_unpacked_model_that_was_cut_or_changed_is_not_used(whole: Path, cache: Path) -> None:
    folder = fake_conversion(whole, cache)
    assert pending_stages(str(whole)) == ()
    weights = folder / "model.safetensors"
    weights.write_bytes(b"wrong!!")
    assert pending_stages(str(whole)) == ("convert",)
    weights.write_bytes(b"weight")
    assert not is_intact(folder)
    weights.unlink()
    assert not is_intact(folder)
    (folder / MANIFEST).write_bytes(b"{")
    assert not is_intact(folder)


def test_a_file_that_changed_is_unpacked_again(whole: Path, cache: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(whole.read_bytes())
    fake_conversion(copy, cache)
    assert pending_stages(str(copy)) == ()
    write_gguf(copy, seed=1)
    assert pending_stages(str(copy)) == ("convert",)


def test_what_an_interrupted_conversion_left_is_removed(
    whole: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(convert, "run_module", interrupt)
    with pytest.raises(KeyboardInterrupt):
        resolve(str(whole))
    assert list((cache / "models").iterdir()) == []


def test_a_conversion_that_takes_too_long_is_ended(whole: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert, "WALL_PER_CPU", 0.0)
    with pytest.raises(ModelError, match="more time or memory"):
        resolve(str(whole))


def test_the_child_is_bound_in_memory_and_processor_time() -> None:
    outcome = run_module("tests.unit.limited_child")
    assert outcome.tail == ("MemoryError",)
    assert outcome.code == 0


def test_what_is_pending_is_known_without_the_model_libraries(whole: Path, cache: Path) -> None:
    code = (
        "import sys; from service.engine.model.resolve import pending_stages;"
        f"print(pending_stages({str(whole)!r}), {{'torch', 'transformers', 'ray'}} & set(sys.modules))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=SOURCE_ROOT)
    assert said.stdout.strip() == "('convert',) set()"


def fake_conversion(source: Path, cache: Path) -> Path:
    """What a conversion of `source` would leave in the cache."""
    from service.engine.model.cache import Source, part_of, publish_folder, sha256_of

    origin = Source.of(source, sha256_of(source))
    folder = cache / "models" / f"gguf-{origin.sha256[:16]}"
    part = part_of(folder)
    part.mkdir()
    (part / "model.safetensors").write_bytes(b"weights")
    publish_folder(part, folder, origin)
    return folder
