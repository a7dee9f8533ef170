"""A file of inputs through one engine in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from service.commands.offline_batch.results import BadLine, Outcome, Outcomes, Result
from service.engine.job import Engine, Job, Progress, SamplingParams
from service.messages.options import ServiceOptions
from service.messages.telemetry import BatchWork
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
        """The sampling of the line; with `max_tokens` where the line names no number of its own."""
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
    """Computes lines as planned; loaded once, for many runs."""

    def __init__(self, plan: LinePlan, engine: Engine) -> None:
        workload = about(plan.service.workload)
        self.engine = engine
        self.batch_size = plan.batch_size
        self.streams = workload.streams
        self._has_prompts = workload == TEXT
        self._max_tokens = plan.max_tokens

    def job(self, line: Line) -> Job:
        """Named by the line's number; raises a `ValueError` that says what is wrong with the line."""
        try:
            value = msgspec.json.decode(line.content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"This line is no JSON: {error}.") from error
        input, sampling = self._prompt(value) if self._has_prompts else (value, None)
        return self.engine.job(str(line.number), input, sampling)

    def _prompt(self, value: Any) -> tuple[str, SamplingParams]:
        try:
            line = msgspec.convert({"prompt": value} if isinstance(value, str) else value, PromptLine)
        except msgspec.ValidationError as error:
            raise ValueError(f'A line is a prompt or {{"prompt": …, "max_tokens": …}}: {error}.') from error
        return line.prompt, line.sampling(self._max_tokens)


AHEAD_BATCHES: Final = 16
"""So many batches of lines are read beyond the oldest that is not done, however long that takes."""


@dataclass
class FileRun:
    """One run, in which a line that is done makes room for the next one; `on_done` is called for each."""

    line_engine: LineEngine
    lines: Iterator[Line]
    outcomes: Outcomes
    on_done: Callable[[], None]
    _running: dict[str, tuple[Line, list[str]]] = field(init=False, default_factory=dict)
    _is_stopped: bool = field(init=False, default=False)

    def stop(self) -> None:
        """Take no further lines; `run` returns when those that run are done."""
        self._is_stopped = True

    def run(self) -> bool:
        """Whether it came to the end of the lines; all that is done is written."""
        while jobs := self._take(self.line_engine.batch_size):
            self.line_engine.engine.generate(jobs, self._emit, self._admit)
            for line, _ in list(self._running.values()):  # an engine ends all; this is for one that breaks its word
                self._end(line, "The engine stopped before this line was complete.")
            self.outcomes.write()
        self.outcomes.write()  # bad lines at the end
        return not self._is_stopped

    def _admit(self, _work: BatchWork, can_join: bool) -> list[Job]:
        return self._take(self.line_engine.batch_size - len(self._running)) if can_join else []

    def _take(self, count: int) -> list[Job]:
        jobs: list[Job] = []
        while len(jobs) < count and not self._is_stopped and self._is_room():
            line = next(self.lines, None)
            if line is None:
                break
            self.outcomes.begin(line.number)
            try:
                job = self.line_engine.job(line)
            except ValueError as error:
                self._put(line, _bad(line, str(error)))
                continue
            self._running[job.id] = line, []
            jobs.append(job)
        return jobs

    def _is_room(self) -> bool:
        most = AHEAD_BATCHES * self.line_engine.batch_size
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
        self._put(line, Result(line=line.number, output=text if self.line_engine.streams else json.loads(text)))

    def _put(self, line: Line, outcome: Outcome) -> None:
        self.outcomes.put(outcome)
        self.on_done()


def _bad(line: Line, error: str) -> BadLine:
    return BadLine(line=line.number, error=error, input=line.content.decode(errors="replace"))
