"""Loading: device and dtype, what a loaded model is like, and how a bad one is told."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import DynamicCache

from service.engine.model import load as loading
from service.engine.model.batch_cache import BatchCache
from service.engine.model.lean import LeanLlama
from service.engine.model.linear import has_kernels
from service.engine.model.load import (
    choose_device,
    choose_dtype,
    computed_in,
    gpu_memory_bytes,
    load,
    takes_int8,
    why_no_gpu,
)
from service.engine.model.passes import Part
from service.engine.model.report import ModelError
from service.engine.model.resolve import ModelFolder, resolve
from tests.unit.fake_nvml import Nvml
from tests.unit.model_files import write_model_folder
from tests.unit.tiny_models import tiny_of


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model_folder(tmp_path_factory.mktemp("load") / "tiny")


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> ModelFolder:
    return ModelFolder("tiny", Path(shutil.copytree(whole, tmp_path / "tiny")))


def test_a_loaded_model_only_infers(folder: ModelFolder) -> None:
    loaded = load(folder, "cpu", "float32")
    assert isinstance(loaded.forward, LeanLlama)
    assert not any(parameter.requires_grad for parameter in loaded.forward.parameters())
    assert {parameter.dtype for parameter in loaded.forward.parameters()} == {loaded.dtype} == {torch.float32}
    assert loaded.context_length == 128


def test_that_a_model_is_loaded_whose_attention_transformers_computes_in_one_way_alone(folder: ModelFolder) -> None:
    tiny_of("gemma2").save_pretrained(folder.path)
    loaded = load(folder, "cpu", "float32")
    with torch.inference_mode():
        logits = loaded.forward([Part(torch.zeros(1, 1, dtype=torch.long), torch.zeros(1, 1), None, BatchCache(1))])
    assert logits.isfinite().all()


OUT_OF_MEMORY = {
    "of a GPU": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    "of the machine": RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"),
    "of Python": MemoryError(),
}


@pytest.mark.parametrize("kind", OUT_OF_MEMORY)
def test_that_weights_for_which_memory_lacks_are_told(
    kind: str, folder: ModelFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise OUT_OF_MEMORY[kind]

    monkeypatch.setattr(torch.nn.Module, "to", full)
    with pytest.raises(ModelError, match="does not fit into the memory of cpu; free some, or choose a smaller model"):
        load(folder, "cpu", "float32")


def test_prompts_are_padded_on_the_left(folder: ModelFolder) -> None:
    tokenizer = load(folder, "cpu", "float32").tokenizer
    padded = tokenizer(["a", "abc"], padding=True)["attention_mask"]
    assert padded == [[0, 0, 1], [1, 1, 1]]


def test_loading_says_nothing(folder: ModelFolder, capfd: pytest.CaptureFixture[str]) -> None:
    load(folder, "cpu", "float32")
    assert capfd.readouterr() == ("", "")


def test_the_default_model_continues_a_text(model_folder: ModelFolder) -> None:
    loaded = load(model_folder, "cpu", "float32")
    ids = torch.tensor([loaded.tokenizer.encode("The capital of France is")])
    logits = loaded.forward([Part(ids, torch.arange(ids.shape[1])[None], None, DynamicCache())])
    assert loaded.tokenizer.decode(logits.argmax(-1)) == " Paris"
    assert loaded.context_length == 8192


def test_auto_takes_the_best_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert choose_device("auto") == "cpu"
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose_device("auto") == "mps"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("auto") == "cuda"


OLD_DRIVER = "The NVIDIA driver on your system is too old (found version 11040)."


@pytest.mark.parametrize(
    ("count", "build", "trouble", "visible", "sentence"),
    [
        (None, "13.0", "", None, "This machine shows no NVIDIA GPU (NVML: NVML Shared Library Not Found)."),
        (0, "13.0", "", None, "This machine has no NVIDIA GPU."),
        (1, None, "", None, f"This torch ({torch.__version__}) is a build without CUDA."),
        (1, "13.0", f"{OLD_DRIVER}\nUpdate it.", None, f"torch cannot use CUDA: {OLD_DRIVER}"),
        (1, "13.0", "", "-1", "CUDA_VISIBLE_DEVICES is '-1', which shows no GPU."),
        (1, "13.0", "", None, "torch sees no GPU."),
    ],
)
def test_that_auto_says_why_it_takes_the_processor(
    count: int | None,
    build: str | None,
    trouble: str,
    visible: str | None,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def init() -> None:
        if trouble:
            raise RuntimeError(trouble)

    monkeypatch.setattr("service.engine.model.load.pynvml", Nvml(count))
    monkeypatch.setattr(torch.version, "cuda", build)
    monkeypatch.setattr(torch.cuda, "init", init)
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert why_no_gpu() == sentence


@pytest.mark.parametrize(
    ("device", "expected"), [("cpu", 0), ("mps", 0), ("cuda", 8_360_000_000), ("cuda:0", 24_000_000_000)]
)
def test_the_memory_of_a_gpu_is_that_of_the_smallest_which_the_name_may_mean(
    device: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = [24_000_000_000, 8_360_000_000]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(sizes))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: SimpleNamespace(total_memory=sizes[number]))
    assert gpu_memory_bytes(device) == expected


def test_a_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert choose_device("cuda:0") == "cuda:0"
    with pytest.raises(ModelError, match="only 1"):
        choose_device("cuda:1")
    with pytest.raises(ModelError, match="no Apple GPU"):
        choose_device("mps")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ModelError, match="no CUDA GPU"):
        choose_device("cuda")


@pytest.mark.parametrize("device", ["", "gpu", "cuda:", "cuda:-1", "cpu:1", "CUDA", "meta", "cuda:9999"])
def test_an_unknown_device_is_refused(device: str) -> None:
    with pytest.raises(ModelError, match=r"no device called|no CUDA GPU|only \d"):
        choose_device(device)


@pytest.mark.parametrize(
    ("flags", "kernels", "dtype"),
    [
        ({"avx512_bf16"}, False, "bfloat16"),
        ({"amx_bf16"}, False, "bfloat16"),
        ({"avx2"}, False, "float32"),
        ({"avx2"}, True, "bfloat16"),
    ],
)
def test_the_processor_decides_the_dtype(
    flags: set[str], kernels: bool, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "_cpu_flags", lambda: frozenset(flags))
    monkeypatch.setattr(loading, "has_kernels", lambda: kernels)
    assert choose_dtype("auto", "cpu") == dtype


@pytest.mark.parametrize(("has_bfloat16", "dtype"), [(True, "bfloat16"), (False, "float16")])
def test_that_a_gpu_without_bfloat16_computes_in_float16(
    has_bfloat16: bool, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: has_bfloat16)
    assert choose_dtype("auto", "cuda:0") == dtype
    assert choose_dtype("auto", "mps") == "float16"


@pytest.mark.parametrize(("factor", "dtype"), [(1.0, torch.float16), (1e5, torch.float32)], ids=["small", "large"])
def test_that_a_model_of_numbers_too_large_for_float16_is_loaded_in_float32(
    folder: ModelFolder, factor: float, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = load_file(folder.path / "model.safetensors")
    weights["model.layers.0.mlp.down_proj.weight"] *= factor
    weights["model.layers.0.mlp.up_proj.weight"] *= factor
    save_file(weights, folder.path / "model.safetensors", metadata={"format": "pt"})
    monkeypatch.setattr(loading, "choose_dtype", lambda wanted, device: "float16")
    assert load(folder, "cpu", "auto").dtype == dtype


def test_a_dtype_asked_for_is_taken_and_an_unknown_one_refused() -> None:
    assert choose_dtype("float16", "cpu") == "float16"
    with pytest.raises(ModelError, match="no dtype called 'int4'"):
        choose_dtype("int4", "cpu")


def test_that_int8_takes_a_processor_with_products_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "takes_int8", lambda: True)
    assert choose_dtype("int8", "cpu") == "int8"
    assert computed_in("int8") == computed_in("bfloat16") == torch.bfloat16
    with pytest.raises(ModelError, match="not cuda; choose auto"):
        choose_dtype("int8", "cuda")
    monkeypatch.setattr(loading, "takes_int8", lambda: False)
    with pytest.raises(ModelError, match=r"in bytes \(VNNI\), under Linux, not cpu; choose auto"):
        choose_dtype("int8", "cpu")


@pytest.mark.skipif(not has_kernels(), reason="there are no kernels for this processor")
@pytest.mark.parametrize("has_bytes", [True, False])
def test_that_products_of_bytes_are_those_that_the_kernels_are_compiled_with(
    has_bytes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.engine.model.vectors.HAS_BYTES", has_bytes)
    assert takes_int8() is has_bytes
    monkeypatch.setattr(loading, "has_kernels", lambda: False)
    assert not takes_int8()


COMPILED = """
from service.engine.model import vectors
from service.engine.model.linear import has_kernels
print(has_kernels(), vectors.LANES, vectors.HAS_BYTES, vectors.HAS_PAIRS)
"""


@pytest.mark.skipif(not has_kernels(), reason="there are no kernels for this processor")
def test_that_kernels_are_compiled_for_a_processor_that_has_avx2_alone(tmp_path: Path) -> None:
    """LLVM ends the process where it is given an instruction that the processor lacks."""
    chosen = {
        "NUMBA_CPU_NAME": "haswell",
        "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+sse4.2,+popcnt",
        "NUMBA_CACHE_DIR": str(tmp_path),
    }
    run = subprocess.run([sys.executable, "-c", COMPILED], env={**os.environ, **chosen}, capture_output=True, text=True)
    assert run.stdout == "True 8 False False\n", run.stderr[-2000:]


def test_missing_weights_are_not_made_up(folder: ModelFolder) -> None:
    weights = load_file(folder.path / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder.path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match="lack 1 of the model's tensors"):
        load(folder, "cpu", "float32")


@pytest.mark.promise("T16")
def test_weights_of_another_size_are_refused(folder: ModelFolder) -> None:
    revise(folder, hidden_size=64)
    with pytest.raises(ModelError, match="its weights have other sizes"):
        load(folder, "cpu", "float32")


@pytest.mark.promise("T16")
def test_a_tokenizer_of_another_model_is_refused(folder: ModelFolder) -> None:
    weights = load_file(folder.path / "model.safetensors")
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        weights[name] = weights[name][:100].clone()
    save_file(weights, folder.path / "model.safetensors", metadata={"format": "pt"})
    revise(folder, vocab_size=100)
    with pytest.raises(ModelError, match="not the model's"):
        load(folder, "cpu", "float32")


@pytest.mark.parametrize("spoil", ["tokenizer.json", "model.safetensors"])
@pytest.mark.promise("T16")
def test_a_file_spoilt_since_it_was_checked_is_told(folder: ModelFolder, spoil: str) -> None:
    (folder.path / spoil).write_bytes(b"{")
    with pytest.raises(ModelError, match="could not be loaded"):
        load(folder, "cpu", "float32")


@pytest.mark.promise("T16")
def test_no_damage_to_the_description_of_weights_does_worse_than_a_refusal(folder: ModelFolder) -> None:
    weights, chance, refused = folder.path / "model.safetensors", random.Random(16), 0
    data = weights.read_bytes()
    description = 8 + int.from_bytes(data[:8], "little")
    for _ in range(300):
        spoilt, at = bytearray(data), chance.randrange(description)
        spoilt[at : at + 8] = chance.choice(
            [b"\xff" * 8, bytes(8), b"9" * 8, chance.randbytes(8), chance.randbytes(1), b""]
        )
        weights.write_bytes(spoilt)
        try:
            load(resolve(str(folder.path)), "cpu", "float32")
        except ModelError:
            refused += 1
    assert refused > 290


@pytest.mark.promise("T16")
def test_a_folder_removed_since_it_was_checked_is_told(folder: ModelFolder) -> None:
    shutil.rmtree(folder.path)
    with pytest.raises(ModelError, match="is gone from"):
        load(folder, "cpu", "float32")


@pytest.mark.promise("T16")
def test_code_in_the_folder_is_never_run(folder: ModelFolder, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    (folder.path / "evil.py").write_text(f"open({str(canary)!r}, 'w')\nclass Evil: pass\n")
    revise(folder, model_type="evil", auto_map={"AutoConfig": "evil.Evil", "AutoModelForCausalLM": "evil.Evil"})
    with pytest.raises(ModelError, match="code of its own"):
        load(folder, "cpu", "float32")
    assert not canary.exists()


def test_a_model_that_does_not_generate_text_is_refused(folder: ModelFolder) -> None:
    revise(folder, model_type="t5", architectures=None)
    with pytest.raises(ModelError, match="not a text-generation model"):
        load(folder, "cpu", "float32")


def revise(folder: ModelFolder, **changes: object) -> None:
    config = json.loads((folder.path / "config.json").read_text())
    (folder.path / "config.json").write_text(json.dumps(config | changes))
