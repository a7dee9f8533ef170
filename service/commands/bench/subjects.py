"""The engine alone, and transformers' generate, which it is judged by. For worker processes."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Any, Final

import msgspec

from service.commands.bench.report import BenchRun, MeasuredOn, Rates, Weights, prompts_for
from service.engine.compute_thread import prepare_engine_thread
from service.engine.cores import bind_openmp_threads, usable_cores
from service.engine.job import Job, Progress, SamplingParams
from service.engine.loading import load_engine
from service.engine.model.resolve import ModelFolder, resolve
from service.messages.options import ServiceOptions

LIBRARIES: Final = ("torch", "transformers")


class EngineAlone:
    """Decodes batches as a replica would, in formation `continuous` in which no request joins."""

    def __init__(self, options: ServiceOptions) -> None:
        self._engine, self._device, *_ = load_engine(options)
        self._admit = _nobody if options.settings.formation == "continuous" else None

    def run(self, size: int, tokens: int, run_s: float) -> BenchRun:
        import torch

        from service.commands.bench.machine import Stopwatch

        watch = Stopwatch(torch.device(self._device))

        def emit(progress: list[Progress]) -> None:
            if progress:  # nothing: a sign of life while prompts are read
                watch.end_step(is_last=progress[0].finish_reason is not None)

        sampling = SamplingParams(max_tokens=tokens, ignore_eos=True)
        while True:
            jobs = [self._engine.job(str(row), prompt, sampling) for row, prompt in enumerate(prompts_for(size))]
            watch.begin_batch()
            self._engine.generate(jobs, emit, self._admit)
            watch.end_batch()
            if watch.ran_s >= run_s:
                return watch.run("engine", size, tokens)


def _nobody(*_: object) -> tuple[Job, ...]:
    return ()


class Reference:
    """The model as transformers itself loads it, with the threads and the priority that the engine has."""

    def __init__(self, options: ServiceOptions) -> None:
        cores = usable_cores()
        bind_openmp_threads()
        import torch

        from service.engine.model.load import choose_device, choose_dtype, computed_in

        device = choose_device(options.device)
        prepare_engine_thread(device, cores)
        folder = resolve(options.model)
        self._name = folder.name
        self._device = torch.device(device)
        self._dtype_name = choose_dtype(options.dtype, device)
        self._dtype = computed_in(self._dtype_name)
        self._tokenizer = _tokenizer(folder)
        self._model = _model(folder, self._dtype).to(self._device)

    def facts(self) -> tuple[MeasuredOn, Weights]:
        """What was loaded, and where to."""
        from service.commands.bench.machine import hardware, kept_bytes

        on = MeasuredOn(
            model=self._name,
            device=str(self._device),
            dtype=self._dtype_name,
            hardware=hardware(self._device),
            versions={name: version(name) for name in LIBRARIES},
        )
        weights = Weights.of(self._model)
        # As the engine has them; `generate` reads them in the numbers that it computes in.
        kept = kept_bytes(self._model, self._dtype_name) if self._device.type == "cpu" else None
        return on, weights if kept is None else msgspec.structs.replace(weights, bytes=kept)

    def rates(self) -> Rates:
        """Measured anew."""
        from service.commands.bench.machine import measured_rates

        return measured_rates(self._device, self._dtype)

    def run(self, size: int, tokens: int, run_s: float) -> BenchRun:
        from service.commands.bench.machine import Stopwatch

        watch = Stopwatch(self._device)
        prompts = prompts_for(size)
        while True:
            inputs = self._tokenizer(prompts, padding=True, return_tensors="pt", return_token_type_ids=False)
            watch.begin_batch()
            self._generate(inputs, tokens, watch.end_step)
            watch.end_batch()
            if watch.ran_s >= run_s:
                return watch.run("generate", size, tokens)

    def _generate(self, inputs: Any, tokens: int, end_step: Callable[..., None]) -> None:
        steps = 0

        def count_step(ids: Any, _scores: Any, **_: Any) -> Any:
            nonlocal steps
            steps += 1
            end_step(is_last=steps == tokens)
            return ids.new_zeros(ids.shape[0], dtype=bool)  # no row is to stop

        output = self._model.generate(
            **inputs.to(self._device), max_new_tokens=tokens, do_sample=False, stopping_criteria=[count_step]
        )
        output[:, -1].tolist()  # as its user would have it: on this side of the device


def _tokenizer(folder: ModelFolder) -> Any:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(
        folder.path, local_files_only=True, trust_remote_code=False, padding_side="left"
    )
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    return tokenizer


def _model(folder: ModelFolder, dtype: Any) -> Any:
    """Ready to infer, and without an end before the last token."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(
        folder.path, local_files_only=True, trust_remote_code=False, use_safetensors=True, dtype=dtype
    )
    model.generation_config.eos_token_id = None
    return model.eval().requires_grad_(False)
