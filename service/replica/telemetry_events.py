"""`GET /telemetry`: the hub's frames as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

FramesAfter = Callable[[int | None], Awaitable[tuple[int, list[bytes]] | None]]

KEEP_ALIVE = b": nothing new\n\n"


async def telemetry_events(frames_after: FramesAfter, after: int | None) -> AsyncIterator[bytes]:
    """One event a frame, its number as the event's id, for as long as the reader stays and there are more."""
    yield KEEP_ALIVE  # the reader's headers, before the first frame
    number = after
    while (answer := await frames_after(number)) is not None:
        number, events = answer
        first = number - len(events) + 1
        yield b"".join(b"id: %d\ndata: %b\n\n" % (first + i, event) for i, event in enumerate(events)) or KEEP_ALIVE
