"""From a service's options to an engine that is ready to compute."""

from __future__ import annotations

from concurrent.futures import Executor
from typing import NamedTuple

from service.engine.compute_thread import ComputeThread, prepare_engine_thread
from service.engine.cores import FreeCores, bind_openmp_threads, usable_cores
from service.engine.job import Engine
from service.engine.model.report import LoadReport, keep_quiet
from service.messages.options import ServiceOptions
from service.messages.workload import TEXT
from service.workloads.catalog import find


class LoadedEngine(NamedTuple):
    """An engine and where it computes, in torch's names."""

    engine: Engine
    device: str
    dtype: str = ""  # a function's own affair
    context_length: int | None = None  # of a text generator, in tokens
    why_processor: str = ""  # a sentence, where `auto` took it


def load_engine(
    options: ServiceOptions, report: LoadReport = keep_quiet, executor: Executor | None = None
) -> LoadedEngine:
    """To be called in the engine's own thread, before anything has imported torch in this process.

    With its `executor` batches may run in other threads beside it.

    The threads that torch computes with inherit this one's priority, and OpenMP reads its settings, and binds the
    thread that loads it, when torch is imported.
    """
    if options.workload != TEXT.name:
        return _load_function(options)
    cores = max(1, usable_cores() // options.replicas)
    if options.replicas == 1:  # every process counts its cores from the first: several replicas would share one
        bind_openmp_threads()
    from service.engine.engine import TextEngine
    from service.engine.model.load import choose_device, load, why_no_gpu
    from service.engine.model.resolve import resolve
    from service.engine.out_of_memory import tokens_that_fit

    device = choose_device(options.device)
    prepare_engine_thread(device, cores)
    free = FreeCores(cores) if device == "cpu" else None
    loaded = load(resolve(options.model), device, options.dtype, report, options.deterministic)
    engine = TextEngine(loaded, ComputeThread(executor, free), tokens_that_fit(loaded, options.replicas))
    dtype = options.dtype if options.dtype == "int8" else str(loaded.dtype).removeprefix("torch.")
    why_processor = why_no_gpu() if (options.device, device) == ("auto", "cpu") else ""
    return LoadedEngine(engine, device, dtype, engine.context_length, why_processor)


def _load_function(options: ServiceOptions) -> LoadedEngine:
    from service.engine.function import FunctionEngine

    workload, device = find(options.workload)(), "cpu"
    if workload.computes_on_device:
        from service.engine.model.load import choose_device

        device = choose_device(options.device)
        prepare_engine_thread(device, max(1, usable_cores() // options.replicas))
    workload.load(device)
    return LoadedEngine(FunctionEngine(workload), device)
