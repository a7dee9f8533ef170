"""The format of a recording: gzip-compressed JSON Lines, a header first, then everything as it came.

The file is a chain of gzip members, each whole in itself: one for the header, then one for at most a second of events.
What a member says is taken only if its checksum is right, so a file that was cut off or damaged can be read up to
there and on behind it. Any program that knows gzip and JSON can read it: ``zcat recording.bsr | jq .``
"""

from __future__ import annotations

from importlib import metadata
from typing import Final, TypeAlias

import msgspec

from service.messages.life import Ready
from service.messages.load import LoadFrame
from service.messages.telemetry import FramesMissed, TelemetryFrame

SUFFIX: Final = ".bsr"
FORMAT_VERSION: Final = 1
MOST_MEMBER_BYTES: Final = 64 * 2**20  # decompressed; the longest event of the service is half of that
MOST_FILE_BYTES: Final = 256 * 2**20
MOST_BYTES: Final = 4 * 2**30  # decompressed, in all
LONGEST_S: Final = 24 * 3600.0


class RecordingError(Exception):
    """A recording cannot be written or read at all; the text is a sentence that says why and what to do."""


class RecordingHeader(msgspec.Struct, frozen=True, kw_only=True, tag_field="format", tag="batchscope-recording"):
    """The first line.

    Attributes:
        at_s: the recorder's monotonic clock when it began, and `clock` its id, as in `TelemetryFrame`.
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
    """The service stopped, or failed, for which `reason` is the sentence that the user was shown."""

    reason: str | None = None


class RecordingEnded(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="end"):
    """The last line of a recording that was ended in order."""


RecordedEvent: TypeAlias = TelemetryFrame | FramesMissed | LoadFrame | ServiceStarted | ServiceEnded | RecordingEnded


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """Any line but the first: an event, and when it was heard on the recorder's clock."""

    at_s: float
    event: RecordedEvent


def program_version() -> str:
    """The release that runs, or "unknown" in a checkout that was never installed."""
    try:
        return metadata.version("batchscope")
    except metadata.PackageNotFoundError:
        return "unknown"
