"""From a service's options to an engine that is ready to generate. Importing this takes torch and transformers."""

from __future__ import annotations

from typing import NamedTuple

from service.engine.engine import TextEngine
from service.engine.threads import prepare_engine_thread
from service.model.load import choose_device, choose_dtype, load
from service.model.resolve import resolve
from service.options import ServiceOptions


class LoadedEngine(NamedTuple):
    """An engine and where it computes, in torch's names."""

    engine: TextEngine
    device: str
    dtype: str


def load_engine(options: ServiceOptions) -> LoadedEngine:
    """To be called in the engine's own thread, whose priority the threads it computes with inherit."""
    device = choose_device(options.device)
    dtype = choose_dtype(options.dtype, device)
    prepare_engine_thread(device, options.replicas)
    return LoadedEngine(TextEngine(load(resolve(options.model), device, dtype)), device, dtype)
