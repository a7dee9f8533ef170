"""A model on this machine, and what is known of it before it is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from safetensors import SafetensorError, safe_open

from service.engine.model.report import ModelError

CONFIG: Final = "config.json"
WEIGHTS: Final = "model.safetensors"
WEIGHTS_INDEX: Final = "model.safetensors.index.json"
TOKENIZERS: Final = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")
PICKLES: Final = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")
GENERATING: Final = ("ForCausalLM", "LMHeadModel")  # how text-generation architectures' names end
LAYER_COUNTS: Final = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
MAX_JSON_BYTES: Final = 32 << 20


@dataclass(frozen=True)
class ModelFolder:
    """A model on this machine: safetensors, configuration and tokenizer in `path`; `name` is what clients call it."""

    name: str
    path: Path


def check_folder(folder: Path) -> None:
    """Raise `ModelError` unless the folder holds a whole text-generation model in safetensors; reads no weights."""
    for entry in folder.iterdir():
        if not entry.is_file() and not entry.is_dir():
            raise ModelError(f"{entry} is neither a file nor a folder; give a folder that holds only a model's files.")
    config = _read_object(folder / CONFIG, "so it is not the folder of a model")
    _check_architecture(folder, config)
    tensor_count = sum(_tensor_count(weights) for weights in _weight_files(folder))
    _check_config(folder, config, tensor_count)
    if not any((folder / name).is_file() for name in TOKENIZERS):
        raise ModelError(f"{folder} has no tokenizer ({TOKENIZERS[0]}); add the one that belongs to the model.")


def _read_object(path: Path, consequence: str) -> dict[str, Any]:
    if not path.is_file():
        raise ModelError(f"{path.parent} has no {path.name}, {consequence}; give the folder that has one.")
    if path.stat().st_size > MAX_JSON_BYTES:
        raise ModelError(f"{path} is larger than any such file; give the folder of a model.")
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError):
        raise ModelError(f"{path} is damaged: it is not a JSON object; get the model's files anew.") from None


def _check_architecture(folder: Path, config: dict[str, Any]) -> None:
    names = config.get("architectures")
    if not isinstance(names, list) or not names:  # then loading reports it
        return
    if not any(str(name).endswith(GENERATING) for name in names) or config.get("is_encoder_decoder") is True:
        raise ModelError(
            f"{folder} holds a {names[0]}, which does not generate text from left to right; "
            "give a text-generation model (…ForCausalLM)."
        )


def _weight_files(folder: Path) -> list[Path]:
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if not (folder / WEIGHTS_INDEX).is_file():
        raise ModelError(_no_weights(folder))
    names = _read_object(folder / WEIGHTS_INDEX, "").get("weight_map")
    if not isinstance(names, dict) or not names:
        raise ModelError(f"{folder / WEIGHTS_INDEX} is damaged: it lists no weights; get the model's files anew.")
    files = sorted({str(name) for name in names.values()})
    for name in files:
        if Path(name).name != name or not name.endswith(".safetensors") or not (folder / name).is_file():
            raise ModelError(f"{folder} lacks {name}, a part of its weights; get the model's files anew.")
    return [folder / name for name in files]


def _no_weights(folder: Path) -> str:
    pickle = next((file.name for pattern in PICKLES for file in sorted(folder.glob(pattern))), None)
    if pickle is not None:
        return (
            f"{folder} has its weights only as a pickle ({pickle}), which can run code when it is read; "
            "give the same model as safetensors."
        )
    return f"{folder} has no weights in safetensors ({WEIGHTS}); give a folder that has them, or a GGUF file."


def _tensor_count(weights: Path) -> int:
    """How many tensors the file has; opening it checks its header against its size."""
    try:
        with safe_open(weights, framework="np") as file:
            return len(file.keys())
    except (SafetensorError, OSError, ValueError) as error:
        reason = " ".join(str(error).split()).removeprefix("Error while deserializing header: ")
        raise ModelError(f"{weights} is damaged or cut short ({reason}); get the model's files anew.") from None


def _check_config(folder: Path, config: dict[str, Any], tensor_count: int) -> None:
    for name in LAYER_COUNTS:
        layers = config.get(name)
        if isinstance(layers, int) and not 0 <= layers <= tensor_count:
            raise ModelError(
                f"{folder / CONFIG} promises {layers} layers and the weights have {tensor_count} tensors; "
                "get the model's files anew."
            )
    # transformers would follow it to a pickle.
    if not str(config.get("transformers_weights", WEIGHTS)).endswith(".safetensors"):
        raise ModelError(f"{folder / CONFIG} names weights that are not safetensors; give a model that has them.")
