"""From a service's options to an engine that is ready to generate."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from service.engine.cores import bind_openmp_threads, usable_cores
from service.model.report import LoadReport, keep_quiet
from service.options import ServiceOptions

if TYPE_CHECKING:
    from service.engine.engine import TextEngine


class LoadedEngine(NamedTuple):
    """An engine and where it computes, in torch's names."""

    engine: TextEngine
    device: str
    dtype: str


def load_engine(options: ServiceOptions, report: LoadReport = keep_quiet) -> LoadedEngine:
    """To be called in the engine's own thread, before anything has imported torch in this process.

    The threads that torch computes with inherit this one's priority, and OpenMP reads its settings, and binds the
    thread that loads it, when torch is imported.
    """
    cores = max(1, usable_cores() // options.replicas)
    if options.replicas == 1:  # every process counts its cores from the first: several replicas would share one
        bind_openmp_threads()
    from service.engine.engine import TextEngine
    from service.engine.threads import prepare_engine_thread
    from service.model.load import choose_device, choose_dtype, load
    from service.model.resolve import resolve

    device = choose_device(options.device)
    dtype = choose_dtype(options.dtype, device)
    prepare_engine_thread(device, cores)
    return LoadedEngine(TextEngine(load(resolve(options.model), device, dtype, report)), device, dtype)
