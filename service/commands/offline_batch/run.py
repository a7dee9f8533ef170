"""A file of inputs through one engine, which always has a full batch as long as there are lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Final

from service.commands.offline_batch.lines import JobMaker, Line
from service.commands.offline_batch.results import BadLine, Outcome, Outcomes, Result
from service.engine.job import Engine, Job, Progress
from service.messages.telemetry import BatchWork

AHEAD_BATCHES: Final = 16
"""So many batches of lines are read beyond the oldest that is not done, however long that takes."""


class RunError(Exception):
    """A run cannot go on; the text is a sentence that says why."""


class FileRun:
    """Whoever is done makes room for the next line, between two steps."""

    def __init__(
        self,
        engine: Engine,
        maker: JobMaker,
        lines: Iterator[Line],
        outcomes: Outcomes,
        batch_size: int,
        *,
        streams: bool,
        on_done: Callable[[int], None],
    ) -> None:
        """`streams` tells texts from JSON; `on_done` is told the number of each line that has an outcome."""
        self._engine = engine
        self._maker = maker
        self._lines = lines
        self._outcomes = outcomes
        self._batch_size = batch_size
        self._streams = streams
        self._on_done = on_done
        self._running: dict[str, tuple[Line, list[str]]] = {}
        self._is_stopped = False

    def stop(self) -> None:
        """Take no further lines; `run` returns when those that run are done."""
        self._is_stopped = True

    def run(self) -> bool:
        """Whether it came to the end of the lines; all that is done is written."""
        while jobs := self._take(self._batch_size):
            self._engine.generate(jobs, self._emit, self._admit)
            for line, _ in list(self._running.values()):  # an engine ends all; this is for one that breaks its word
                self._end(line, "The engine stopped before this line was complete.")
            self._outcomes.write()
        self._outcomes.write()  # bad lines at the end
        return not self._is_stopped

    def _admit(self, _work: BatchWork, can_join: bool) -> list[Job]:
        return self._take(self._batch_size - len(self._running)) if can_join else []

    def _take(self, count: int) -> list[Job]:
        jobs: list[Job] = []
        while len(jobs) < count and not self._is_stopped and self._is_room():
            line = next(self._lines, None)
            if line is None:
                break
            self._outcomes.begin(line.number)
            try:
                job = self._maker.job(line)
            except ValueError as error:
                self._put(line, _bad(line, str(error)))
                continue
            self._running[job.id] = line, []
            jobs.append(job)
        return jobs

    def _is_room(self) -> bool:
        most = AHEAD_BATCHES * self._batch_size
        if self._outcomes.pending >= most:
            self._outcomes.write()
        return self._outcomes.pending < most

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
        self._put(line, Result(line=line.number, output=text if self._streams else json.loads(text)))

    def _put(self, line: Line, outcome: Outcome) -> None:
        self._outcomes.put(outcome)
        self._on_done(line.number)


def _bad(line: Line, error: str) -> BadLine:
    return BadLine(line=line.number, error=error, input=line.content.decode(errors="replace"))
