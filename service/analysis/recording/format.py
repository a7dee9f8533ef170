"""The format of a recording: gzip-compressed JSON Lines, a header first, then every event as it came.

The file is a chain of gzip members, each whole in itself: one for the header, then one for at most a second of events.
The content of a member counts only if its checksum is right, so a file that was cut off or damaged can be read up to
there and on behind it. Any program that knows gzip and JSON can read it: ``zcat recording.bsr | jq .``
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Annotated, Final, NamedTuple, TypeAlias

import msgspec

from service.analysis.observed.annotations import ClockJump
from service.analysis.observed.scores import PredictionScores
from service.messages.life import Ready
from service.messages.load import LoadFrame
from service.messages.telemetry import FramesMissed, TelemetryFrame
from service.messages.text import UserError

SUFFIX: Final = ".bsr"
OPENED: Final = (SUFFIX, ".json", ".jsonl")
"""Recordings, and results of other load generators."""
FORMAT_VERSION: Final = 1
MOST_MEMBER_BYTES: Final = 64 * 2**20  # decompressed; the longest event of the service is half of that
MOST_FILE_BYTES: Final = 256 * 2**20
MOST_BYTES: Final = 4 * 2**30  # decompressed, in all
LONGEST_S: Final = 24 * 3600.0
MEMBER_S: Final = 1.0
MEMBER_BYTES: Final = 2**20  # before compression
COMPRESSION: Final = 6
GZIP: Final = 16 + zlib.MAX_WBITS
MAGIC: Final = b"\x1f\x8b\x08"
PIECE: Final = 64 * 1024
MOST_FAILURES: Final = 10_000


class RecordingError(UserError):
    """A recording that cannot be written or read at all; the text is a sentence with the cause and a remedy."""


class RecordingHeader(msgspec.Struct, frozen=True, kw_only=True, tag_field="format", tag="batchscope-recording"):
    """The first line.

    Attributes:
        at_s: begin on the recorder's monotonic clock, and `clock` its id, as in `TelemetryFrame`.
        recorded_at: seconds since 1970 at that moment.
        url, model, device, dtype: of the service, as far as they were known then.
    """

    version: int = FORMAT_VERSION
    at_s: float
    clock: str
    recorded_at: float
    program_version: str
    url: str | None = None
    model: str | None = None
    device: str | None = None
    dtype: str | None = None


class ServiceStarted(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="started"):
    """A service began to answer while the recording ran."""

    ready: Ready


class ServiceEnded(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="ended"):
    """The service stopped, or failed, for which `reason` is the sentence that was shown.

    Or it `is_left` running by a window that had attached to it.
    """

    reason: str | None = None
    is_left: bool = False


class ClockJumped(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="clock"):
    """The time of day jumped on the recorder's machine; the times of `jump` are on the service's clock."""

    jump: ClockJump


class PredictionsScored(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="scores"):
    """What the recorder knew of the last predictions, from a change of it on."""

    scores: PredictionScores


LONGEST_NOTE: Final = 200  # characters


class Bookmarked(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="bookmark"):
    """A stretch that has a name, on the service's clock."""

    text: Annotated[str, msgspec.Meta(max_length=LONGEST_NOTE)]
    start_s: float
    end_s: float


class RecordingEnded(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="end"):
    """The last line of a recording that was ended in order."""


RecordedEvent: TypeAlias = (
    TelemetryFrame
    | FramesMissed
    | LoadFrame
    | ServiceStarted
    | ServiceEnded
    | ClockJumped
    | PredictionsScored
    | Bookmarked
    | RecordingEnded
)


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """Any line but the first: an event, and when it was heard on the recorder's clock."""

    at_s: float
    event: RecordedEvent


class Packer:
    """Packs events into members, each of about a second."""

    def __init__(self) -> None:
        self._encode = msgspec.json.Encoder().encode
        self._lines: list[bytes] = []
        self._bytes = 0
        self._since_s = 0.0

    def add(self, at_s: float, event: RecordedEvent) -> bytes | None:
        """Add an event that was heard at `at_s`; returns a member when this event completes it."""
        if not self._lines:
            self._since_s = at_s
        line = self._encode(Entry(at_s=at_s, event=event))
        self._lines.append(line)
        self._bytes += len(line)
        return self.take() if at_s - self._since_s >= MEMBER_S or self._bytes >= MEMBER_BYTES else None

    def take(self) -> bytes | None:
        """A member of the events so far; ``None`` if there are none."""
        if not self._lines:
            return None
        content = b"\n".join([*self._lines, b""])
        self._lines.clear()
        self._bytes = 0
        return _packed(content)


def packed_header(header: RecordingHeader) -> bytes:
    """The first member of a recording."""
    return _packed(msgspec.json.encode(header) + b"\n")


def _packed(content: bytes) -> bytes:
    return zlib.compress(content, COMPRESSION, wbits=GZIP)


class Damage(NamedTuple):
    """Bytes of a file that are no whole member, or exceed the size that is read."""

    start: int
    end: int


def members(data: bytes) -> Iterator[bytes | Damage]:
    """The content of each member, in order; behind a damaged one, reading goes on with the next whole one.

    The size of each, that of all, and the number of failures have limits.
    """
    position = whole_until = 0
    left, failures_left = MOST_BYTES, MOST_FAILURES
    while position < len(data) and left > 0 and failures_left > 0:
        content, end = _inflated(memoryview(data), position, min(MOST_MEMBER_BYTES, left))
        left -= len(content)
        if end is None:
            failures_left -= 1
            following = data.find(MAGIC, position + 1)
            position = following if following >= 0 else len(data)
            continue
        if position > whole_until:
            yield Damage(whole_until, position)
        position = whole_until = end
        yield content
    if whole_until < len(data):
        yield Damage(whole_until, len(data))


def _inflated(data: memoryview, position: int, most: int) -> tuple[bytes, int | None]:
    """The content of the member at `position`, and its end; ``None`` if it is not whole or longer than `most`."""
    inflater = zlib.decompressobj(GZIP)
    content = bytearray()
    try:
        while not inflater.eof:
            piece: bytes | memoryview = inflater.unconsumed_tail
            if not piece:
                piece = data[position : position + PIECE]
                position += len(piece)
            if not piece or len(content) >= most:
                return bytes(content), None
            content += inflater.decompress(piece, most - len(content))
    except zlib.error:
        return bytes(content), None
    return bytes(content), position - len(inflater.unused_data)
