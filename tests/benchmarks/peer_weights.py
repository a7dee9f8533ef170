"""The default model's weights as other servers take them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import gguf
import numpy as np

FLOAT16: Final = 1  # `general.file_type` of a GGUF file whose matrices are in float16
Settings = dict[str, Any]


def endless(model: Path, folder: Path) -> Path:
    """The model in a folder in which no token ends a text."""
    return _changed(model, folder, lambda settings: {**settings, "eos_token_id": None})


def flat(model: Path, folder: Path) -> Path:
    """The model in a folder whose configuration is that of transformers 4, with the rotary settings at its top."""
    return _changed(model, folder, lambda settings: {**settings, **settings.get("rope_parameters", {})})


def _changed(model: Path, folder: Path, change: Callable[[Settings], Settings]) -> Path:
    for file in model.iterdir():
        if file.name in ("config.json", "generation_config.json"):
            (folder / file.name).write_text(json.dumps(change(json.loads(file.read_text()))))
        else:
            (folder / file.name).symlink_to(file)
    return folder


def halves(published: Path, folder: Path) -> Path:
    """The GGUF file with its matrices in float16.

    OpenVINO reads 4-bit matrices too, but rounds where each block of them begins (`Q4_1` has it in float16) to a whole
    step, and then generates other texts.
    """
    target = folder / "float16.gguf"
    reader = gguf.GGUFReader(published)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    for entry in reader.fields.values():
        if not entry.name.startswith("GGUF.") and entry.name != "general.architecture":
            value = FLOAT16 if entry.name == "general.file_type" else entry.contents()
            of_each = entry.types[-1] if entry.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(entry.name, value, entry.types[0], of_each)
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        is_matrix = tensor.tensor_type != gguf.GGMLQuantizationType.F32
        writer.add_tensor(tensor.name, values.astype(np.float16) if is_matrix else values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target
