"""Packs events into the gzip members that recordings are made of."""

from __future__ import annotations

import zlib
from typing import Final

import msgspec

from service.analysis.recording.format import Entry, RecordedEvent, RecordingHeader

MEMBER_S: Final = 1.0
MEMBER_BYTES: Final = 2**20  # before compression
COMPRESSION: Final = 6
GZIP: Final = 16 + zlib.MAX_WBITS


class Packer:
    """Gathers the events of about a second."""

    def __init__(self) -> None:
        self._encode = msgspec.json.Encoder().encode
        self._lines: list[bytes] = []
        self._bytes = 0
        self._since_s = 0.0

    def add(self, at_s: float, event: RecordedEvent) -> bytes | None:
        """Take an event that was heard at `at_s`; a member, when this one completes it."""
        if not self._lines:
            self._since_s = at_s
        line = self._encode(Entry(at_s=at_s, event=event))
        self._lines.append(line)
        self._bytes += len(line)
        return self.take() if at_s - self._since_s >= MEMBER_S or self._bytes >= MEMBER_BYTES else None

    def take(self) -> bytes | None:
        """A member of what has gathered; ``None`` if that is nothing."""
        if not self._lines:
            return None
        content = b"\n".join([*self._lines, b""])
        self._lines.clear()
        self._bytes = 0
        return _packed(content)


def packed_header(header: RecordingHeader) -> bytes:
    """The member that a recording begins with."""
    return _packed(msgspec.json.encode(header) + b"\n")


def _packed(content: bytes) -> bytes:
    return zlib.compress(content, COMPRESSION, wbits=GZIP)
