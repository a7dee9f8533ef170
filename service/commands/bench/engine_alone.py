"""The engine without queue, HTTP and Ray. For a worker process."""

from __future__ import annotations

from service.commands.bench.figures import Run
from service.commands.bench.plan import prompts_for
from service.engine.job import Job, Progress
from service.engine.loading import load_engine
from service.engine.sequence import SamplingParams
from service.messages.options import ServiceOptions


class EngineAlone:
    """Decodes batches as a replica would, in formation `continuous` with nobody who joins."""

    def __init__(self, options: ServiceOptions) -> None:
        self._engine, self._device, *_ = load_engine(options)
        self._admit = _nobody if options.settings.formation == "continuous" else None

    def run(self, size: int, tokens: int, batches: int) -> Run:
        import torch

        from service.commands.bench.stopwatch import Stopwatch

        watch = Stopwatch(torch.device(self._device))

        def emit(progress: list[Progress]) -> None:
            if progress:  # nothing: a sign of life while prompts are read
                watch.end_step(is_last=progress[0].finish_reason is not None)

        for _ in range(batches):
            jobs = self._jobs(size, tokens)
            watch.begin_batch()
            self._engine.generate(jobs, emit, self._admit)
            watch.end_batch()
        return watch.run("engine", size, tokens)

    def _jobs(self, size: int, tokens: int) -> list[Job]:
        sampling = SamplingParams(max_tokens=tokens, ignore_eos=True)
        return [self._engine.job(str(number), prompt, sampling) for number, prompt in enumerate(prompts_for(size))]


def _nobody(*_: object) -> tuple[Job, ...]:
    return ()
