"""Server-sent events out of bytes that may be cut anywhere."""

from __future__ import annotations

from typing import NamedTuple

MOST_EVENT_BYTES = 32 * 1024 * 1024
ERROR = b"error"
"""The name of the event that says why a stream ends early."""
_BOM = b"\xef\xbb\xbf"


class EventTooLongError(ValueError):
    """The server sends an event without end."""


class ServerEvent(NamedTuple):
    """One event: its name (empty for the usual kind) and its data, lines joined by a line feed."""

    name: bytes
    data: bytes


class EventReader:
    """Takes bytes as they come, gives the events that they complete.

    Lines may end in LF, CR or CRLF. Bytes are cut into lines before anything is decoded, so a character may be split.
    An event without its blank line at the end is none.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._name = b""
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._after_cr = False
        self._is_first_line = True

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        if self._after_cr or b"\r" in chunk:
            chunk = self._with_line_feeds(chunk)
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()
        events: list[ServerEvent] = []
        for line in lines:
            if line:
                self._take_field(line)
                continue
            if self._data:
                events.append(ServerEvent(self._name, b"\n".join(self._data)))
            self._name, self._data, self._data_bytes = b"", [], 0
        if len(self._rest) + self._data_bytes > MOST_EVENT_BYTES:
            raise EventTooLongError(f"An event of the stream is longer than {MOST_EVENT_BYTES // 1024**2} MiB.")
        return events

    def _with_line_feeds(self, chunk: bytes) -> bytes:
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._after_cr = False
        if chunk:
            self._after_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _take_field(self, line: bytes) -> None:
        if self._is_first_line:
            line = line.removeprefix(_BOM)
            self._is_first_line = False
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._data_bytes += len(value)
        elif name == b"event":
            self._name = value
