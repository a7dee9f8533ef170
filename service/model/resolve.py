"""From what the user calls a model to a local folder that can be loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from service.messages import StageName
from service.model import fetch
from service.model.cache import Source, cache_folder, is_intact, locked
from service.model.convert import convert
from service.model.errors import ModelError
from service.model.fetch import DEFAULT_MODEL
from service.model.report import Report, ignore


@dataclass(frozen=True)
class ModelFolder:
    """A model on this machine: safetensors, configuration and tokenizer in `path`; `name` is what clients call it."""

    name: str
    path: Path


def pending_stages(spec: str) -> tuple[StageName, ...]:
    if is_intact(_default_folder()):
        return ()
    return ("convert",) if fetch.is_fetched(_default_gguf()) else ("fetch", "convert")


def resolve(spec: str, report: Report = ignore) -> ModelFolder:
    if spec != DEFAULT_MODEL:
        raise ModelError("not yet")
    folder, gguf = _default_folder(), _default_gguf()
    with locked(DEFAULT_MODEL, lambda: report("fetch", 0.0, None)):
        if not is_intact(folder):
            if not fetch.is_fetched(gguf):
                fetch.fetch_default(gguf, report)
            status = gguf.stat()
            origin = Source(str(gguf), status.st_size, status.st_mtime_ns, fetch.GGUF_SHA256)
            convert(gguf, origin, folder, report)
    return ModelFolder(DEFAULT_MODEL, folder)


def _default_folder() -> Path:
    return cache_folder() / "models" / DEFAULT_MODEL


def _default_gguf() -> Path:
    return cache_folder() / "downloads" / "SmolLM2-135M-Instruct.Q4_1.gguf"
