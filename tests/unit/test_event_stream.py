from __future__ import annotations

import pytest

from gui import event_stream
from gui.event_stream import Event, EventStream, EventTooLargeError

STREAM = (
    b"id: 1\ndata: a\n\n: comment\n\nid: 2\r\ndata: \xc3\xa9\r\ndata: c\r\n\r\nevent: x\n\ndata:d\n\ndata: unfinished"
)
EVENTS = [Event("1", b"a"), Event("2", b"\xc3\xa9\nc"), Event(None, b"d")]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_that_events_are_whole_however_the_stream_is_cut(size: int) -> None:
    stream = EventStream()
    pieces = [STREAM[i : i + size] for i in range(0, len(STREAM), size)]

    assert [event for piece in pieces for event in stream.feed(piece)] == EVENTS


def test_that_an_event_without_end_is_not_collected_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "LARGEST_EVENT_BYTES", 1000)
    lines = b"data: " + b"x" * 50 + b"\n"

    with pytest.raises(EventTooLargeError):
        EventStream().feed(100 * lines)
    with pytest.raises(EventTooLargeError):
        EventStream().feed(b"x" * 1001)
