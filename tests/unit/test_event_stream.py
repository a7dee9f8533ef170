"""Server-sent events, cut anywhere."""

from __future__ import annotations

import random

import pytest

from service.messages.event_stream import MOST_EVENT_BYTES, EventReader, EventTooLongError, ServerEvent

STREAM = (
    "\ufeffdata: after the byte order mark\n\n"
    ": a comment\n\n"
    'data: {"text": "Grüße, 世界 🙂"}\n\n'
    "event: error\ndata:no space\n\n"
    "data: first\ndata: second\n\n"
    "id: 4\nretry: 10\ndata:  two spaces\n\n"
    "data\n\n"
    "event: without data\n\n"
    "data: [DONE]\n\n"
    "data: never completed"
).encode()
EVENTS = [
    ServerEvent(b"", b"after the byte order mark"),
    ServerEvent(b"", '{"text": "Grüße, 世界 🙂"}'.encode()),
    ServerEvent(b"error", b"no space"),
    ServerEvent(b"", b"first\nsecond"),
    ServerEvent(b"", b" two spaces"),
    ServerEvent(b"", b""),
    ServerEvent(b"", b"[DONE]"),
]


def read(chunks: list[bytes]) -> list[ServerEvent]:
    reader = EventReader()
    return [event for chunk in chunks for event in reader.feed(chunk)]


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
class TestCuts:
    def test_that_a_stream_in_one_piece_is_read(self, line_end: bytes) -> None:
        assert read([STREAM.replace(b"\n", line_end)]) == EVENTS

    def test_that_a_stream_byte_by_byte_is_read(self, line_end: bytes) -> None:
        assert read([bytes([byte]) for byte in STREAM.replace(b"\n", line_end)]) == EVENTS

    def test_that_every_cut_in_two_is_read(self, line_end: bytes) -> None:
        stream = STREAM.replace(b"\n", line_end)
        for cut in range(len(stream) + 1):
            assert read([stream[:cut], stream[cut:]]) == EVENTS, cut

    def test_that_random_cuts_are_read(self, line_end: bytes) -> None:
        stream, drawn = STREAM.replace(b"\n", line_end), random.Random(3)
        for _ in range(200):
            cuts = sorted(drawn.sample(range(1, len(stream)), 9))
            chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
            assert read(chunks) == EVENTS, cuts


@pytest.mark.parametrize("line_end", [b"", b"\n"], ids=["a line", "lines"])
def test_that_an_event_without_end_is_not_kept_for_ever(line_end: bytes) -> None:
    reader = EventReader()
    piece = b"data: " + b"x" * (MOST_EVENT_BYTES // 2 + 1) + line_end
    reader.feed(piece)
    with pytest.raises(EventTooLongError):
        reader.feed(piece)
