"""Takes server-sent events out of the bytes of a stream, however they are cut."""

from __future__ import annotations

from typing import Final, NamedTuple

LARGEST_EVENT_BYTES: Final = 32 * 1024 * 1024


class Event(NamedTuple):
    """One event: its `id:` if it had one, and its `data:` lines joined."""

    id: str | None
    data: bytes


class EventTooLargeError(ValueError):
    """The stream sent more than `LARGEST_EVENT_BYTES` without ending an event."""


class EventStream:
    r"""Feed it bytes, take whole events.

    >>> stream = EventStream()
    >>> stream.feed(b"id: 7\ndata: {\"a\"")
    []
    >>> stream.feed(b": 1}\r\n\r\n: still here\n\n")
    [Event(id='7', data=b'{"a": 1}')]
    """

    def __init__(self) -> None:
        self._rest = bytearray()
        self._id: str | None = None
        self._data: list[bytes] = []
        self._held_bytes = 0

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that `chunk` completes. Raises `EventTooLargeError`; the stream is then of no more use."""
        self._rest += chunk
        events: list[Event] = []
        if b"\n" in chunk:
            *lines, self._rest = self._rest.split(b"\n")
            taken = (self._take(bytes(line).removesuffix(b"\r")) for line in lines)
            events = [event for event in taken if event is not None]
        if len(self._rest) + self._held_bytes > LARGEST_EVENT_BYTES:
            raise EventTooLargeError(f"an event of more than {LARGEST_EVENT_BYTES} bytes")
        return events

    def _take(self, line: bytes) -> Event | None:
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
            self._held_bytes += len(value)
        elif field == b"id":
            self._id = value.decode("utf-8", "replace")
        return None

    def _dispatch(self) -> Event | None:
        event = Event(self._id, b"\n".join(self._data)) if self._data else None
        self._id, self._data, self._held_bytes = None, [], 0
        return event
