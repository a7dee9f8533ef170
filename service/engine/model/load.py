"""Folder → model and tokenizer on a device, ready to generate.

`python -m service.engine.model.load DEVICE` prints the bytes of memory of that GPU, or 0 for another device, and ends
with 0 if it is there, or else with `REFUSED` after a line that is a sentence for the user: for a caller that does not
import torch.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pynvml
import torch

from service.engine.job import is_out_of_memory
from service.engine.model.child import REFUSED
from service.engine.model.folder import ModelFolder
from service.engine.model.linear import has_kernels
from service.engine.model.passes import ForwardPass, Part
from service.engine.model.report import LoadReport, ModelError, keep_quiet

logger = logging.getLogger(__name__)

DTYPES: Final = ("bfloat16", "float32", "float16", "int8")
FALLBACK_CONTEXT: Final = 2048
_CONTEXT_NAMES: Final = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length")
# What some errors of transformers mean to the user.
_MEANINGS: Final = {
    "ignore_mismatched_sizes": "its weights have other sizes than its configuration says",
    "custom code": "it needs code of its own to be run, which is never done here",
    "for this kind of AutoModel": "it is not a text-generation model",
    "does not recognize this architecture": "its architecture is not known to the transformers library installed here",
}
_FAST_BF16_FLAGS: Final = frozenset({"avx512_bf16", "amx_bf16", "avx10_2", "bf16", "svebf16"})


@dataclass(frozen=True)
class LoadedModel:
    """A model that only infers: in evaluation mode and without gradients."""

    name: str
    forward: ForwardPass
    tokenizer: Any  # pads on the left, and always has a padding token
    device: torch.device
    dtype: torch.dtype
    context_length: int  # tokens that prompt and completion may have together
    vocabulary: int  # the number of different tokens that it knows
    end_tokens: frozenset[int]  # those that end a text
    layers: int = 1  # whose keys and values are kept
    is_deterministic: bool = False  # see `service.engine.model.optimize.deterministic`


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


def gpu_memory_bytes(device: str) -> int:
    """The memory of the CUDA GPU that `device` names, or of the smallest where any may be given; 0 for no such GPU.

    Of a slice of a GPU (MIG), which torch takes for a GPU, it is the slice's.
    """
    place = torch.device(device)
    if place.type != "cuda":
        return 0
    numbers = range(torch.cuda.device_count()) if place.index is None else [place.index]
    return min(int(torch.cuda.get_device_properties(number).total_memory) for number in numbers)


def why_no_gpu() -> str:
    """Why `auto` finds no CUDA GPU, as a sentence that holds the words of NVIDIA's library or of torch."""
    try:
        pynvml.nvmlInit()
        if not pynvml.nvmlDeviceGetCount():
            return "This machine has no NVIDIA GPU."
    except pynvml.NVMLError as error:
        return f"This machine shows no NVIDIA GPU (NVML: {error})."
    if torch.version.cuda is None:
        return f"This torch ({torch.__version__}) is a build without CUDA."
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        return f"torch cannot use CUDA: {str(error).splitlines()[0]}"
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return "torch sees no GPU." if visible is None else f"CUDA_VISIBLE_DEVICES is {visible!r}, which shows no GPU."


def choose_dtype(wanted: str, device: str) -> str:
    """The dtype for `wanted`: `auto` takes bfloat16 where the device computes in it fast, else float16 on a GPU.

    A processor does so by instructions for it, or by our own kernels; others take float32.
    """
    if wanted == "auto":
        has_bfloat16 = _has_fast_bfloat16(torch.device(device))
        return "bfloat16" if has_bfloat16 else "float32" if device == "cpu" else "float16"
    if wanted not in DTYPES:
        raise ModelError(f"There is no dtype called {wanted!r}; the dtypes are auto, {', '.join(DTYPES)}.")
    if wanted == "int8" and not (device == "cpu" and takes_int8()):
        raise ModelError(
            f"Weights in int8 take a processor that computes in bytes (VNNI), under Linux, not {device}; choose auto."
        )
    return wanted


def computed_in(dtype: str) -> torch.dtype:
    """The numbers that a model of that dtype, which is not `auto`, is loaded in."""
    number: torch.dtype = torch.bfloat16 if dtype == "int8" else getattr(torch, dtype)
    return number


def load(
    folder: ModelFolder,
    device: str,
    dtype: str,
    report: LoadReport = keep_quiet,
    is_deterministic: bool = False,
    replicas: int = 1,
) -> LoadedModel:
    """Load the model of `folder`; `device` and `dtype` may be `auto`. Whatever goes wrong is a `ModelError`.

    `replicas` load it at the same time, each for itself.
    Where `auto` would take float16, whose largest number is 65,504, a model that exceeds it is loaded in float32.
    """
    place = torch.device(choose_device(device))
    chosen = choose_dtype(dtype, str(place))
    if is_deterministic and place.type != "cpu":
        raise ModelError(f"Only a processor computes deterministically, not {place}; choose the device cpu.")
    loaded = _load(folder, place, chosen, report, is_deterministic, replicas)
    if dtype == "auto" and chosen == "float16" and not is_finite(loaded):
        logger.warning("The model %s exceeds the numbers of float16, so it computes in float32", folder.name)
        return _load(folder, place, "float32", report)
    return loaded


def is_finite(loaded: LoadedModel) -> bool:
    """Whether the logits of a few tokens are numbers."""
    from service.engine.model.batch_cache import BatchCache

    with torch.inference_mode():
        ids = torch.arange(8, device=loaded.device)[None] % loaded.vocabulary
        logits = loaded.forward([Part(ids, torch.arange(8, device=loaded.device)[None], None, BatchCache(1))])
    return bool(logits.isfinite().all())


def _load(
    folder: ModelFolder,
    place: torch.device,
    chosen: str,
    report: LoadReport,
    is_deterministic: bool = False,
    replicas: int = 1,
) -> LoadedModel:
    if not folder.path.is_dir():
        raise ModelError(f"The model {folder.name} is gone from {folder.path}; start again.")
    try:
        _hush()
        tokenizer = _load_tokenizer(folder)
        from service.engine.model.optimize import count_layers, deterministic, optimized  # imports transformers

        model = _load_model(folder, computed_in(chosen)).to(place)
        if is_deterministic:
            forward = deterministic(model, chosen == "int8", report)
        else:
            forward = optimized(model, place, eight_bit=chosen == "int8", report=report, replicas=replicas)
        if place.type == "cpu":
            _hold_in_memory(forward)
    except ModelError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise ModelError(
                f"The model {folder.name} does not fit into the memory of {place}; free some, or choose a smaller "
                "model."
            ) from error
        raise ModelError(
            f"The model {folder.name} in {folder.path} could not be loaded ({_reason(error)}); "
            "get its files anew, or choose another model."
        ) from error
    weights = model.get_input_embeddings().weight  # `forward` may have taken over the layers
    if tokenizer.vocab_size > len(weights):
        raise ModelError(f"The tokenizer in {folder.path} is not the model's: it has more tokens; get the files anew.")
    return LoadedModel(
        name=folder.name,
        forward=forward,
        tokenizer=tokenizer,
        device=weights.device,
        dtype=weights.dtype,
        context_length=_context_length(model, tokenizer),
        vocabulary=len(weights),
        end_tokens=_end_tokens(model, tokenizer),
        layers=count_layers(model),
        is_deterministic=is_deterministic,
    )


def _hold_in_memory(forward: torch.nn.Module) -> None:
    """Copy the weights out of the mapped file.

    Mapped, they are the system's to evict: a step then waits for the disk, for seconds where memory is reclaimed
    eagerly. And a file that is cut short would kill the process.
    """
    for parameter in forward.parameters():
        parameter.data = parameter.data.clone()


def _reason(error: Exception) -> str:
    """What an error says, short enough for a sentence."""
    text = " ".join(str(error).split())
    for sign, meaning in _MEANINGS.items():
        if sign in text:
            return meaning
    first_sentence = text.partition(". ")[0].rstrip(".:; ")
    return f"{type(error).__name__}: {first_sentence}"[:200]


def _load_tokenizer(folder: ModelFolder) -> Any:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(
        folder.path, local_files_only=True, trust_remote_code=False, padding_side="left"
    )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.convert_ids_to_tokens(0)
    return tokenizer


def _load_model(folder: ModelFolder, dtype: torch.dtype) -> Any:
    from transformers import AutoModelForCausalLM

    model, loading = AutoModelForCausalLM.from_pretrained(
        folder.path,
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
        dtype=dtype,
        output_loading_info=True,
    )
    if missing := sorted(loading["missing_keys"]):  # transformers would go on with random numbers
        raise ModelError(
            f"The weights in {folder.path} lack {len(missing)} of the model's tensors, such as {missing[0]}; "
            "get the model's files anew."
        )
    return model.eval().requires_grad_(False)


def _hush() -> None:
    """Keep transformers' progress bars and advice out of the log; what matters comes as an exception."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def _context_length(model: Any, tokenizer: Any) -> int:
    config = model.config.get_text_config()
    lengths = (getattr(config, name, None) for name in _CONTEXT_NAMES)
    said = next((length for length in lengths if isinstance(length, int) and length > 0), None)
    if said is not None:
        return said
    length: int = tokenizer.model_max_length  # an absurdly large number if it is unknown
    return length if length < 1 << 20 else FALLBACK_CONTEXT


def _end_tokens(model: Any, tokenizer: Any) -> frozenset[int]:
    """What the model's generation settings and its tokenizer name."""
    settings = getattr(model, "generation_config", None)
    named = [getattr(settings, "eos_token_id", None), getattr(tokenizer, "eos_token_id", None)]
    tokens = (token for each in named for token in (each if isinstance(each, list | tuple) else [each]))
    return frozenset(token for token in tokens if token is not None)


def _require_cuda(wanted: str, index: int) -> None:
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if index >= count:
        have = f"only {count} of them" if count else "no CUDA GPU that torch can use"
        raise ModelError(f"This machine has {have}, so not {wanted}; choose auto or cpu.")


def _has_mps() -> bool:
    return bool(torch.backends.mps.is_available())


def _has_fast_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    # MPS: Apple's first GPUs emulate it, and no call reports which one this is.
    return device.type == "cpu" and (bool(_FAST_BF16_FLAGS & _cpu_flags()) or has_kernels())


def takes_int8() -> bool:
    """Whether this processor computes with weights in 8 bits."""
    if not has_kernels():
        return False
    from service.engine.model.vectors import HAS_BYTES

    return HAS_BYTES


def _cpu_flags() -> frozenset[str]:
    """The words that Linux describes the processor with, its feature names among them; empty elsewhere."""
    try:
        return frozenset(Path("/proc/cpuinfo").read_text("utf-8", "replace").split())
    except OSError:
        return frozenset()


def main(device: str) -> int:
    try:
        print(gpu_memory_bytes(choose_device(device)))
    except ModelError as error:
        print(error)
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
