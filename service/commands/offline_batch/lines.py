"""The lines of a file of inputs (JSON Lines), and what each asks for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from service.engine.job import Engine, Job
from service.engine.sequence import SamplingParams


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


class JobMaker:
    """Makes an engine's jobs of lines."""

    def __init__(self, engine: Engine, *, has_prompts: bool, max_tokens: int) -> None:
        """`max_tokens` is for prompts that name no number of their own."""
        self._engine = engine
        self._has_prompts = has_prompts
        self._max_tokens = max_tokens

    def job(self, line: Line) -> Job:
        """Named by the line's number; raises a `ValueError` that says what is wrong with the line."""
        try:
            value = msgspec.json.decode(line.content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"This line is no JSON: {error}.") from error
        input, sampling = self._prompt(value) if self._has_prompts else (value, None)
        return self._engine.job(str(line.number), input, sampling)

    def _prompt(self, value: Any) -> tuple[str, SamplingParams]:
        try:
            line = msgspec.convert({"prompt": value} if isinstance(value, str) else value, PromptLine)
        except msgspec.ValidationError as error:
            raise ValueError(f'A line is a prompt or {{"prompt": …, "max_tokens": …}}: {error}.') from error
        return line.prompt, line.sampling(self._max_tokens)
