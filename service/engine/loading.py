"""From a service's options to an engine that is ready to compute."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final, NamedTuple

from service.engine.compute_thread import ComputeThread, prepare_engine_thread
from service.engine.cores import FreeCores, bind_openmp_threads, usable_cores
from service.engine.job import Engine, Progress, SamplingParams
from service.engine.model.report import LoadReport, keep_quiet
from service.messages.life import TrialBatch
from service.messages.options import ServiceOptions, is_stub
from service.messages.workload import TEXT
from service.workloads.catalog import find

TRIAL_TOKENS: Final = 8
TRIAL_S: Final = 1.0  # after which a slow engine's trial is cut short
LEAST_TRIAL_STEPS: Final = 4  # that a trial makes however slow the engine is: other programs may hold up one of them
MOST_TRIAL_ROWS: Final = 64


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
    if is_stub(options.model):
        from service.engine.stub import StubEngine, StubTimes

        stub = StubEngine(StubTimes.of(options.model))
        return LoadedEngine(stub, "cpu", context_length=stub.context_length)
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
    loaded = load(resolve(options.model), device, options.dtype, report, options.deterministic, options.replicas)
    engine = TextEngine(loaded, ComputeThread(executor, free), tokens_that_fit(loaded, options.replicas))
    dtype = options.dtype if options.dtype == "int8" else str(loaded.dtype).removeprefix("torch.")
    why_processor = why_no_gpu() if (options.device, device) == ("auto", "cpu") else ""
    return LoadedEngine(engine, device, dtype, engine.context_length, why_processor)


def try_batch(engine: Engine, size: int, clock: Callable[[], float] = time.monotonic) -> TrialBatch | None:
    """Time a batch of up to `size` examples of a text generator, in the engine's own thread.

    Returns ``None`` where not every row got two tokens. It takes about `TRIAL_S` at most, or a few steps, besides the
    first step of all, which is not timed: much is made at the first use alone.
    """
    _tried(engine, size, 1, clock)
    return _tried(engine, size, TRIAL_TOKENS, clock)


def _tried(engine: Engine, size: int, tokens: int, clock: Callable[[], float]) -> TrialBatch | None:
    sampling = SamplingParams(max_tokens=tokens, ignore_eos=True)
    prompts = itertools.islice(itertools.cycle(TEXT.examples), min(size, MOST_TRIAL_ROWS))
    try:
        jobs = [engine.job(f"trial-{number}", prompt, sampling) for number, prompt in enumerate(prompts)]
    except ValueError:  # the model's context is very short
        return None
    if engine.memory_tokens and sum(job.prompt_tokens + job.max_tokens for job in jobs) > engine.memory_tokens:
        return None
    begun_s, ends_s = clock(), list[float]()

    def emit(progress: list[Progress]) -> None:
        if len(progress) == len(jobs) and all(each.finish_reason in (None, "length") for each in progress):
            ends_s.append(clock())
        if len(ends_s) > LEAST_TRIAL_STEPS and ends_s[-1] - begun_s > TRIAL_S:
            for job in jobs:
                job.cancel()

    engine.generate(jobs, emit)
    if len(ends_s) < 2:
        return None
    step_s = statistics.median(later - earlier for earlier, later in itertools.pairwise(ends_s))
    return TrialBatch(size=len(jobs), first_token_s=ends_s[0] - begun_s, step_s=step_s)


def _load_function(options: ServiceOptions) -> LoadedEngine:
    from service.engine.function import FunctionEngine

    workload, device = find(options.workload)(), "cpu"
    if workload.computes_on_device:
        from service.engine.model.load import choose_device

        device = choose_device(options.device)
        prepare_engine_thread(device, max(1, usable_cores() // options.replicas))
    workload.load(device)
    return LoadedEngine(FunctionEngine(workload), device)
