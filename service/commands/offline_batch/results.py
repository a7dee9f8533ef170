"""The two files that a run writes: results in the order of the input, and the lines that were bad.

They can be gone on with after any end, also by `kill -9`: errors are safely on the disk before the results that follow
them, so all that stands before the last result is complete, and what stands behind it is done again.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from service.messages.text import UserError

WRITE_EVERY_S: Final = 1.0
"""What came since then is computed again after a kill."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What a line of the input came to."""

    line: int
    output: Any


class BadLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line that came to nothing, and why."""

    line: int
    error: str
    input: str


Outcome: TypeAlias = Result | BadLine


def errors_path(out: Path) -> Path:
    """Where the bad lines of a run go."""
    return out.with_name(f"{out.stem}.errors.jsonl")


class Outcomes(ABC):
    """Takes outcomes in any order of those begun, and hands them on in the order in which they were begun."""

    def __init__(self) -> None:
        self._begun: dict[int, Outcome | None] = {}

    @property
    def pending(self) -> int:
        """Begun and not handed on yet."""
        return len(self._begun)

    def begin(self, line: int) -> None:
        """An outcome for this line, which comes after all that were begun, will be `put`."""
        assert line > next(reversed(self._begun), 0), "lines are begun in the order of the input"
        self._begun[line] = None

    def put(self, outcome: Outcome) -> None:
        """Take the outcome of a line that was begun."""
        assert outcome.line in self._begun
        self._begun[outcome.line] = outcome

    @abstractmethod
    def write(self) -> None:
        """Hand on what is complete up to the first line that is not."""

    def _complete(self) -> Iterator[Outcome]:
        while self._begun:
            line, outcome = next(iter(self._begun.items()))
            if outcome is None:
                break
            del self._begun[line]
            yield outcome


class OutcomeList(Outcomes):
    """Keeps them in `done`."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[Outcome] = []

    def write(self) -> None:
        self.done.extend(self._complete())


class ResultFiles(Outcomes):
    """Writes them into the two files.

    Attributes:
        last_line: the input's line of the last result that was there before.
        good, bad: outcomes in the files, those from before included.
    """

    def __init__(self, out: Path, *, resumes: bool) -> None:
        """Go on with the files, or begin them; raises `UserError`."""
        super().__init__()
        if not resumes and out.exists() and out.stat().st_size:
            raise UserError(f"{out} holds results. Go on with --resume, or name another file.")
        try:
            self._out, self._errors = (path.open("ab+") for path in (out, errors_path(out)))
        except OSError as error:
            raise UserError(f"{error.filename} can't be written: {error.strerror}.") from error
        try:
            self.good, self.last_line = _keep(self._out, Result, lambda _: True, out)
            self.bad, _ = _keep(self._errors, BadLine, lambda line: resumes and line < self.last_line, errors_path(out))
        except UserError:
            self.close()
            raise
        self._written_s = time.monotonic()

    def put(self, outcome: Outcome) -> None:
        super().put(outcome)
        if time.monotonic() - self._written_s >= WRITE_EVERY_S:
            self.write()

    def write(self) -> None:
        results, bad = bytearray(), bytearray()
        for outcome in self._complete():
            is_result = isinstance(outcome, Result)
            target = results if is_result else bad
            target += msgspec.json.encode(outcome) + b"\n"
            self.good += is_result
            self.bad += not is_result
        for file, content in ((self._errors, bad), (self._out, results)):
            if content:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        self._written_s = time.monotonic()

    def close(self) -> None:
        """Without writing: what was interrupted in the midst of it must not go on behind it."""
        self._out.close()
        self._errors.close()


def _keep(file: Any, kind: type[Any], is_kept: Callable[[int], bool], path: Path) -> tuple[int, int]:
    """Cut off what a kill left half-written, and from the first line on that is not kept; how many, and the last."""
    file.seek(0)
    kept = last = end = 0
    for content in file:
        if not content.endswith(b"\n"):
            break
        try:
            line = msgspec.json.decode(content, type=kind).line
        except msgspec.DecodeError as error:
            raise UserError(f"{path} holds something else than results ({error}); name another file.") from error
        if not is_kept(line):
            break
        kept, last, end = kept + 1, line, end + len(content)
    file.truncate(end)
    file.seek(end)
    return kept, last
