"""The two files that a run writes: results in the order of the input, and the lines that were bad.

They can be gone on with after any end, also by `kill -9`: errors are safely on the disk before the results that follow
them, so all that stands before the last result is complete, and what stands behind it is done again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

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


class ResultsError(Exception):
    """The files cannot be used; the text is a sentence that says what to do."""


def errors_path(out: Path) -> Path:
    """Where the bad lines of a run go."""
    return out.with_name(f"{out.stem}.errors.jsonl")


class ResultFiles:
    """Takes outcomes in any order of those begun, and writes them in the order in which they were begun.

    Attributes:
        last_line: the input's line of the last result that was there before.
        good, bad: outcomes in the files, those from before included.
        pending: begun and not written yet.
    """

    def __init__(self, out: Path, *, resumes: bool) -> None:
        """Go on with the files, or begin them; raises `ResultsError`."""
        if not resumes and out.exists() and out.stat().st_size:
            raise ResultsError(f"{out} holds results. Go on with --resume, or name another file.")
        try:
            self._out, self._errors = (path.open("ab+") for path in (out, errors_path(out)))
        except OSError as error:
            raise ResultsError(f"{error.filename} can't be written: {error.strerror}.") from error
        try:
            self.good, self.last_line = _keep(self._out, Result, lambda _: True, out)
            self.bad, _ = _keep(self._errors, BadLine, lambda line: resumes and line < self.last_line, errors_path(out))
        except ResultsError:
            self.close()
            raise
        self._begun: dict[int, Outcome | None] = {}
        self._written_s = time.monotonic()

    @property
    def pending(self) -> int:
        return len(self._begun)

    def begin(self, line: int) -> None:
        """An outcome for this line, which comes after all that were begun, will be `put`."""
        self._begun[line] = None

    def put(self, outcome: Outcome) -> None:
        self._begun[outcome.line] = outcome
        if time.monotonic() - self._written_s >= WRITE_EVERY_S:
            self.write()

    def write(self) -> None:
        """Write what is complete up to the first line that is not."""
        results, bad = bytearray(), bytearray()
        while self._begun:
            line, outcome = next(iter(self._begun.items()))
            if outcome is None:
                break
            del self._begun[line]
            target = results if isinstance(outcome, Result) else bad
            target += msgspec.json.encode(outcome) + b"\n"
            self.good += isinstance(outcome, Result)
            self.bad += isinstance(outcome, BadLine)
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
            raise ResultsError(f"{path} holds something else than results ({error}); name another file.") from error
        if not is_kept(line):
            break
        kept, last, end = kept + 1, line, end + len(content)
    file.truncate(end)
    file.seek(end)
    return kept, last
