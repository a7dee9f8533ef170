"""An engine made ready for the lines of a file, in whichever process it is to compute them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from service.commands.offline_batch.lines import JobMaker, Line
from service.commands.offline_batch.results import Outcomes
from service.commands.offline_batch.run import FileRun
from service.engine.loading import load_engine
from service.messages.options import ServiceOptions
from service.messages.workload import TEXT
from service.workloads.catalog import about


class LinePlan(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        service: which workload or model, and on what.
        batch_size: lines computed at a time.
        max_tokens: for prompts that name no number of their own.
    """

    service: ServiceOptions
    batch_size: int
    max_tokens: int


class LineEngine:
    """Loaded once, for many runs."""

    def __init__(self, plan: LinePlan) -> None:
        told = about(plan.service.workload)
        self._engine = load_engine(plan.service).engine
        self._maker = JobMaker(self._engine, has_prompts=told == TEXT, max_tokens=plan.max_tokens)
        self._batch_size = plan.batch_size
        self._streams = told.streams

    def run_of(self, lines: Iterator[Line], outcomes: Outcomes, on_done: Callable[[int], None]) -> FileRun:
        return FileRun(
            self._engine,
            self._maker,
            lines,
            outcomes,
            self._batch_size,
            streams=self._streams,
            on_done=on_done,
        )
