"""Folder → model and tokenizer on a device, ready to generate."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import torch

from service.model.errors import ModelError
from service.model.resolve import ModelFolder

DTYPES: Final = ("bfloat16", "float32", "float16")
FALLBACK_CONTEXT: Final = 2048
_CONTEXT_NAMES: Final = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length")
_FAST_BF16_FLAGS: Final = frozenset({"avx512_bf16", "amx_bf16", "avx10_2", "bf16", "svebf16"})


@dataclass(frozen=True)
class LoadedModel:
    """A model that only infers: in evaluation mode and without gradients.

    Attributes:
        tokenizer: pads on the left, and always has a padding token.
        context_length: how many tokens prompt and completion may have together.
    """

    name: str
    model: Any
    tokenizer: Any
    device: torch.device
    dtype: torch.dtype
    context_length: int


def choose_device(wanted: str) -> str:
    """The device for `wanted`: `auto` takes CUDA, then Apple's MPS, then the CPU; one that is not there is refused."""
    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "mps" if _has_mps() else "cpu"
    match = re.fullmatch(r"(cpu|mps|cuda)(?::(\d{1,3}))?", wanted)
    if match is None or (match[2] and match[1] != "cuda"):
        raise ModelError(f"There is no device called {wanted!r}; the devices are auto, cpu, mps, cuda and cuda:N.")
    if match[1] == "cuda":
        _require_cuda(wanted, int(match[2] or 0))
    if match[1] == "mps" and not _has_mps():
        raise ModelError("This machine has no Apple GPU that torch can use (mps); choose auto or cpu.")
    return wanted


def choose_dtype(wanted: str, device: str) -> str:
    """The dtype for `wanted`: `auto` takes bfloat16 where the device computes in it fast, else float32."""
    if wanted == "auto":
        return "bfloat16" if _has_fast_bfloat16(torch.device(device)) else "float32"
    if wanted not in DTYPES:
        raise ModelError(f"There is no dtype called {wanted!r}; the dtypes are auto, {', '.join(DTYPES)}.")
    return wanted


def load(folder: ModelFolder, device: str, dtype: str) -> LoadedModel:
    """Load the model of `folder`; `device` and `dtype` may be `auto`."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    place = torch.device(choose_device(device))
    number = getattr(torch, choose_dtype(dtype, str(place)))
    tokenizer = AutoTokenizer.from_pretrained(
        folder.path, local_files_only=True, trust_remote_code=False, padding_side="left"
    )
    model = AutoModelForCausalLM.from_pretrained(
        folder.path,
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
        dtype=number,
        attn_implementation="sdpa",
    )
    model = model.to(place).eval().requires_grad_(False)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return LoadedModel(folder.name, model, tokenizer, place, number, model.config.max_position_embeddings)


def _require_cuda(wanted: str, index: int) -> None:
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if index >= count:
        have = f"only {count} of them" if count else "no CUDA GPU that torch can use"
        raise ModelError(f"This machine has {have}, so not {wanted}; choose auto or cpu.")


def _has_mps() -> bool:
    return torch.backends.mps.is_available()


def _has_fast_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    # MPS: Apple's first GPUs emulate it, and nothing tells which one this is.
    return device.type == "cpu" and bool(_FAST_BF16_FLAGS & _cpu_flags())


def _cpu_flags() -> frozenset[str]:
    """The processor's feature names as Linux lists them; empty elsewhere."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            return frozenset(
                flag
                for line in lines
                if line.startswith(("flags", "Features"))
                for flag in line.partition(":")[2].split()
            )
    except OSError:
        return frozenset()
