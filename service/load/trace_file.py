"""Reads traces: JSON Lines, an arrival a line.

    {"offset_s": 0.25, "prompt": "Once upon a time", "max_tokens": 24}
    {"offset_s": 0.75, "prompt_words": 120, "max_tokens": 64}

`offset_s` counts from the start of the load. A line without a prompt takes one of the load's, cut or continued to
`prompt_words` where it has them; one without `max_tokens` asks for as many as the load says. The traces of Mooncake
(https://github.com/kvcache-ai/Mooncake: `timestamp` in ms, `input_length`, `output_length`) are read as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from service.messages.load import Count
from service.messages.text import UserError

MOST_TRACE_BYTES: Final = 64 * 1024**2


class TraceError(UserError, ValueError):
    """A trace cannot be replayed; the text is a sentence that says why."""


class TraceEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An arrival of a trace; what is ``None`` is up to the load."""

    offset_s: float
    prompt: str | None = None
    prompt_words: int | None = None
    max_tokens: int | None = None


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    offset_s: float | None = None
    prompt: str | None = None
    prompt_words: Count | None = None
    max_tokens: Count | None = None
    timestamp: float | None = None
    input_length: Count | None = None
    output_length: Count | None = None

    def entry(self) -> TraceEntry:
        offset_s = self.offset_s
        if offset_s is None and self.timestamp is not None:
            offset_s = self.timestamp / 1e3
        if offset_s is None:
            raise ValueError("it has neither `offset_s` (in seconds) nor `timestamp` (in milliseconds)")
        if offset_s < 0:
            raise ValueError("its time is before the start")
        return TraceEntry(
            offset_s=offset_s,
            prompt=self.prompt,
            prompt_words=self.prompt_words or self.input_length,
            max_tokens=self.max_tokens or self.output_length,
        )


_decode = msgspec.json.Decoder(_Line).decode


def read_trace(path: str) -> tuple[TraceEntry, ...]:
    """The arrivals in the file, in their order; raises `TraceError`, which names the line that is wrong."""
    entries = tuple(_entries(_content(path), Path(path).name))
    if not entries:
        raise TraceError(f"The trace {path} holds no arrival.")
    return entries


def _content(path: str) -> bytes:
    file = Path(path)
    if file.exists() and not file.is_file():
        raise TraceError(f"The trace {path} is not a file.")
    try:
        with file.open("rb") as opened:
            content = opened.read(MOST_TRACE_BYTES + 1)
    except (OSError, ValueError) as e:
        reason = e.strerror if isinstance(e, OSError) and e.strerror else str(e)
        raise TraceError(f"The trace {path} cannot be read: {reason}.") from e
    if len(content) > MOST_TRACE_BYTES:
        raise TraceError(f"The trace {path} is larger than {MOST_TRACE_BYTES // 1024**2} MiB.")
    return content


def _entries(content: bytes, name: str) -> Iterator[TraceEntry]:
    latest_s = 0.0
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            entry = _decode(line).entry()
        except (ValueError, RecursionError) as e:  # msgspec's errors are of these
            raise TraceError(f"Line {number} of {name} is not an arrival: {e}.") from e
        if entry.offset_s < latest_s:
            raise TraceError(f"Line {number} of {name} is before the line above it: sort the trace by time.")
        latest_s = entry.offset_s
        yield entry
