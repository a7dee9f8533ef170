"""The gzip members of a recording, each checked before a byte of it is believed."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from service.analysis.recording.format import MOST_BYTES, MOST_MEMBER_BYTES

MAGIC: Final = b"\x1f\x8b\x08"
GZIP: Final = 16 + zlib.MAX_WBITS
PIECE: Final = 64 * 1024
MOST_FAILURES: Final = 10_000


class Damage(NamedTuple):
    """Bytes of a file that are no whole member, or more than is read of one file."""

    start: int
    end: int


def members(data: bytes) -> Iterator[bytes | Damage]:
    """What each member holds, in order; where one is damaged, reading goes on with the next that is whole."""
    inflater = _Inflater(data)
    position = whole_until = 0
    while position < len(data) and inflater.may_go_on:
        found = inflater.member_at(position)
        if found is None:
            following = data.find(MAGIC, position + 1)
            position = following if following >= 0 else len(data)
            continue
        if position > whole_until:
            yield Damage(whole_until, position)
        content, position = found
        whole_until = position
        yield content
    if whole_until < len(data):
        yield Damage(whole_until, len(data))


class _Inflater:
    """Decompresses members, at most so much of each and of all, and at most so many that turn out to be none."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self._left = MOST_BYTES
        self._failures_left = MOST_FAILURES

    @property
    def may_go_on(self) -> bool:
        return self._left > 0 and self._failures_left > 0

    def member_at(self, start: int) -> tuple[bytes, int] | None:
        """The content of the member that begins there and where it ends; ``None`` if it is not whole, or too long."""
        pieces: list[bytes] = []
        try:
            end = self._inflate(start, pieces)
        except zlib.error:
            end = None
        self._left -= sum(map(len, pieces))
        if end is None:
            self._failures_left -= 1
            return None
        return b"".join(pieces), end

    def _inflate(self, position: int, pieces: list[bytes]) -> int | None:
        inflater = zlib.decompressobj(GZIP)
        room = min(MOST_MEMBER_BYTES, self._left)
        while not inflater.eof:
            piece: bytes | memoryview = inflater.unconsumed_tail
            if not piece:
                piece = self._data[position : position + PIECE]
                position += len(piece)
            if not piece or room <= 0:
                return None
            pieces.append(inflater.decompress(piece, room))
            room -= len(pieces[-1])
        return position - len(inflater.unused_data)
