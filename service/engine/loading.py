"""From a service's options to an engine that is ready to generate."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from service.options import ServiceOptions

if TYPE_CHECKING:
    from service.engine.engine import TextEngine


class LoadedEngine(NamedTuple):
    """An engine and where it computes, in torch's names."""

    engine: TextEngine
    device: str
    dtype: str


def load_engine(options: ServiceOptions) -> LoadedEngine:
    """To be called in the engine's own thread, before anything has imported torch in this process.

    The threads that torch computes with inherit this one's priority, and OpenMP reads its settings, and binds the
    thread that loads it, when torch is imported.
    """
    if options.replicas == 1:  # every process counts its cores from the first: several replicas would share one
        bind_openmp_threads()
    from service.engine.engine import TextEngine
    from service.engine.threads import prepare_engine_thread
    from service.model.load import choose_device, choose_dtype, load
    from service.model.resolve import resolve

    device = choose_device(options.device)
    dtype = choose_dtype(options.dtype, device)
    prepare_engine_thread(device, options.replicas)
    return LoadedEngine(TextEngine(load(resolve(options.model), device, dtype)), device, dtype)


def bind_openmp_threads() -> None:
    """Give each of torch's threads a core of its own.

    They meet at a barrier several hundred times a step. Nice as they are, Linux does not care to part two of them that
    sit on one core, and then each barrier takes a time slice: on two cores with a busy window, no batch in 10 s
    instead of 120 tokens a second.
    """
    os.environ.setdefault("OMP_PROC_BIND", "true")
