"""A file of inputs through one engine in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from service.commands.offline_batch.results import BadLine, Outcome, Outcomes, Result
from service.engine.job import Engine, Job, Progress
from service.engine.loading import load_engine
from service.engine.sequence import SamplingParams
from service.messages.options import ServiceOptions
from service.messages.telemetry import BatchWork
from service.messages.text import UserError
from service.messages.workload import TEXT
from service.workloads.catalog import about


class Line(NamedTuple):
    """A line that is not blank; numbers count from 1, blank ones included."""

    number: int
    content: bytes


class PromptLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a line of prompts may say, in the words of OpenAI's completions; or it is the prompt alone."""

    prompt: str
    max_tokens: int | None = None
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False

    def sampling(self, max_tokens: int) -> SamplingParams:
        """With so many tokens where the line names no number of its own."""
        fields = msgspec.structs.asdict(self)
        del fields["prompt"]
        return SamplingParams(**{**fields, "max_tokens": max_tokens if self.max_tokens is None else self.max_tokens})


def lines_of(path: Path, after: int = 0) -> Iterator[Line]:
    """Those behind line `after`."""
    with path.open("rb") as file:
        for number, content in enumerate(file, start=1):
            if number > after and content.strip():
                yield Line(number, content.strip())


def measure(path: Path) -> tuple[int, int]:
    """How many lines are not blank, and the number of the last of them, 0 without any."""
    count = last = 0
    for line in lines_of(path):
        count, last = count + 1, line.number
    return count, last


@dataclass(frozen=True)
class JobMaker:
    """Makes an engine's jobs of lines; `max_tokens` is for prompts that name no number of their own."""

    engine: Engine
    has_prompts: bool = field(kw_only=True)
    max_tokens: int = field(kw_only=True)

    def job(self, line: Line) -> Job:
        """Named by the line's number; raises a `ValueError` that says what is wrong with the line."""
        try:
            value = msgspec.json.decode(line.content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"This line is no JSON: {error}.") from error
        input, sampling = self._prompt(value) if self.has_prompts else (value, None)
        return self.engine.job(str(line.number), input, sampling)

    def _prompt(self, value: Any) -> tuple[str, SamplingParams]:
        try:
            line = msgspec.convert({"prompt": value} if isinstance(value, str) else value, PromptLine)
        except msgspec.ValidationError as error:
            raise ValueError(f'A line is a prompt or {{"prompt": …, "max_tokens": …}}: {error}.') from error
        return line.prompt, line.sampling(self.max_tokens)


AHEAD_BATCHES: Final = 16
"""So many batches of lines are read beyond the oldest that is not done, however long that takes."""


class RunError(UserError):
    """A run cannot go on; the text is a sentence that says why."""


@dataclass
class FileRun:
    """One run; a line that is done makes room for the next one between two steps.

    Attributes:
        streams: outputs are texts, not JSON.
        on_done: gets the number of each line that has an outcome.
    """

    engine: Engine
    maker: JobMaker
    lines: Iterator[Line]
    outcomes: Outcomes
    batch_size: int
    streams: bool = field(kw_only=True)
    on_done: Callable[[int], None] = field(kw_only=True)
    _running: dict[str, tuple[Line, list[str]]] = field(init=False, default_factory=dict)
    _is_stopped: bool = field(init=False, default=False)

    def stop(self) -> None:
        """Take no further lines; `run` returns when those that run are done."""
        self._is_stopped = True

    def run(self) -> bool:
        """Whether it came to the end of the lines; all that is done is written."""
        while jobs := self._take(self.batch_size):
            self.engine.generate(jobs, self._emit, self._admit)
            for line, _ in list(self._running.values()):  # an engine ends all; this is for one that breaks its word
                self._end(line, "The engine stopped before this line was complete.")
            self.outcomes.write()
        self.outcomes.write()  # bad lines at the end
        return not self._is_stopped

    def _admit(self, _work: BatchWork, can_join: bool) -> list[Job]:
        return self._take(self.batch_size - len(self._running)) if can_join else []

    def _take(self, count: int) -> list[Job]:
        jobs: list[Job] = []
        while len(jobs) < count and not self._is_stopped and self._is_room():
            line = next(self.lines, None)
            if line is None:
                break
            self.outcomes.begin(line.number)
            try:
                job = self.maker.job(line)
            except ValueError as error:
                self._put(line, _bad(line, str(error)))
                continue
            self._running[job.id] = line, []
            jobs.append(job)
        return jobs

    def _is_room(self) -> bool:
        most = AHEAD_BATCHES * self.batch_size
        if self.outcomes.pending >= most:
            self.outcomes.write()
        return self.outcomes.pending < most

    def _emit(self, progress: list[Progress]) -> None:
        for each in progress:
            line, texts = self._running[each.job.id]
            texts.append(each.text)
            if each.finish_reason == "error":
                self._end(line, each.error or "It failed.")
            elif each.finish_reason is not None:
                self._end(line)

    def _end(self, line: Line, error: str | None = None) -> None:
        _, texts = self._running.pop(str(line.number))
        if error is not None:
            self._put(line, _bad(line, error))
            return
        text = "".join(texts)
        self._put(line, Result(line=line.number, output=text if self.streams else json.loads(text)))

    def _put(self, line: Line, outcome: Outcome) -> None:
        self.outcomes.put(outcome)
        self.on_done(line.number)


def _bad(line: Line, error: str) -> BadLine:
    return BadLine(line=line.number, error=error, input=line.content.decode(errors="replace"))


class LinePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What lines are computed with.

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
        workload = about(plan.service.workload)
        self._engine = load_engine(plan.service).engine
        self._maker = JobMaker(self._engine, has_prompts=workload == TEXT, max_tokens=plan.max_tokens)
        self._batch_size = plan.batch_size
        self._streams = workload.streams

    def run_of(self, lines: Iterator[Line], outcomes: Outcomes, on_done: Callable[[int], None]) -> FileRun:
        """The run of these lines, not begun yet."""
        runs_on = (self._engine, self._maker, lines, outcomes, self._batch_size)
        return FileRun(*runs_on, streams=self._streams, on_done=on_done)
