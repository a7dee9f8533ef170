"""The last minutes of what was heard, packed, for the user who wants to keep what has just been seen."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Final

import msgspec

from service.analysis.recording.format import RecordedEvent, RecordingEnded, RecordingHeader
from service.analysis.recording.packer import Packer, packed_header
from service.messages.files import write_whole

KEPT_S: Final = 600.0
MOST_BYTES: Final = 64 * 2**20  # packed


class Tape:
    """Holds `kept_s` of packed events, less where they take more than `MOST_BYTES`."""

    def __init__(self, kept_s: float = KEPT_S, most_bytes: int = MOST_BYTES) -> None:
        self._kept_s = kept_s
        self._most_bytes = most_bytes
        self._packer = Packer()
        self._members: deque[tuple[float, bytes]] = deque()
        self._bytes = 0
        self._since_s: float | None = None
        self._last_s = 0.0

    @property
    def began_s(self) -> float | None:
        """When the oldest event that is held was heard; ``None`` if there is none."""
        return self._members[0][0] if self._members else self._since_s

    def add(self, at_s: float, event: RecordedEvent) -> bytes | None:
        """Take an event; the member that it completes, for whoever writes it elsewhere too."""
        self._since_s = at_s if self._since_s is None else self._since_s
        self._last_s = at_s
        return self._keep(self._packer.add(at_s, event))

    def flush(self) -> bytes | None:
        """The member of what has gathered, complete or not."""
        return self._keep(self._packer.take())

    def save(self, path: Path, header: RecordingHeader) -> None:
        """Write all that is held as a recording, whole or not at all; `header` tells of any moment.

        Raises `NotWrittenError`.
        """
        self.flush()
        began_s = header.at_s if self.began_s is None else self.began_s
        recorded_at = header.recorded_at - (header.at_s - began_s)
        header = msgspec.structs.replace(header, at_s=began_s, recorded_at=recorded_at)
        end = Packer()
        end.add(max(self._last_s, began_s), RecordingEnded())
        members = [packed_header(header), *(member for _, member in self._members), end.take() or b""]
        write_whole(path, b"".join(members))

    def _keep(self, member: bytes | None) -> bytes | None:
        if member is not None and self._since_s is not None:
            self._members.append((self._since_s, member))
            self._bytes += len(member)
            self._since_s = None
            while self._is_too_much():
                self._bytes -= len(self._members.popleft()[1])
        return member

    def _is_too_much(self) -> bool:
        if len(self._members) < 2:
            return False
        return self._bytes > self._most_bytes or self._members[1][0] < self._last_s - self._kept_s
