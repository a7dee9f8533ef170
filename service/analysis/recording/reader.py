"""Opens a recording: its content as a `History`, and a sentence on its damage."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from service.analysis.observed.history import History
from service.analysis.recording.format import (
    FORMAT_VERSION,
    LONGEST_S,
    MOST_FILE_BYTES,
    Damage,
    Entry,
    RecordingEnded,
    RecordingError,
    RecordingHeader,
    members,
)
from service.analysis.recording.replay import Replay
from service.messages.load import LoadFrame
from service.messages.telemetry import BatchRecord, FramesMissed, TelemetryFrame

SLACK_S: Final = 5.0


class Chronology:
    """Admits the entries that can follow each other, so that no forged file keeps its reader busy for hours."""

    def __init__(self, header: RecordingHeader) -> None:
        self._clock = header.clock
        self._latest_s = header.at_s
        self._until_s = header.at_s + LONGEST_S
        self._frame: TelemetryFrame | None = None
        self._frame_heard_s = header.at_s

    def admits(self, entry: Entry) -> bool:
        """Whether the entry can have come after the entries admitted before it."""
        if not self._latest_s <= entry.at_s <= self._until_s:
            return False
        match entry.event:
            case TelemetryFrame() as frame if not self._can_follow(frame, entry.at_s):
                return False
            case LoadFrame(clock=clock, at_s=at_s) if clock != self._clock or at_s > entry.at_s + SLACK_S:
                return False
        self._latest_s = entry.at_s
        return True

    def missed_before(self, entry: Entry) -> FramesMissed | None:
        """The frames missing between this one and the one before it; to be called with every admitted entry."""
        if not isinstance(entry.event, TelemetryFrame):
            return None
        last, frame = self._frame, entry.event
        self._frame, self._frame_heard_s = frame, entry.at_s
        if last is None or frame.number <= last.number + 1:
            return None
        return FramesMissed(first=last.number + 1, last=frame.number - 1)

    def _can_follow(self, frame: TelemetryFrame, heard_s: float) -> bool:
        if not all(_is_of_its_time(batch, frame.at_s) for batch in frame.batches):
            return False
        last = self._frame
        if last is None:
            return True
        passed_s = heard_s - self._frame_heard_s
        return frame.clock == last.clock and 0 <= frame.at_s - last.at_s <= passed_s + SLACK_S


def _is_of_its_time(batch: BatchRecord, at_s: float) -> bool:
    """Whether a frame of that moment can report the batch, over whose run its tokens are spread."""
    times_s = (batch.formed_s, batch.started_s, batch.finished_s)
    return all(time_s is None or at_s - LONGEST_S <= time_s <= at_s + SLACK_S for time_s in times_s)


@dataclass(frozen=True)
class Recording:
    """A recording that was read.

    Attributes:
        model: of the service; ``None`` if no service was recorded.
        history: its clock stands at the end.
        began_s, ended_s: on the recorder's clock.
        damage: a sentence on the parts that could not be read, if any.
    """

    path: Path
    header: RecordingHeader
    model: str | None
    history: History
    began_s: float
    ended_s: float
    damage: str | None

    @property
    def duration_s(self) -> float:
        return self.ended_s - self.began_s


def open_recording(path: Path) -> Recording:
    """Read a whole recording; raises `RecordingError` for another file or an unreadable one."""
    content = members(_read(path))
    header = _header(path, next(content, b""))
    replay = Replay(header)
    flaws = _Flaws()
    try:
        for entry in _entries(content, header, flaws):
            replay.feed(entry)
        replay.finish()
    except ArithmeticError:  # numbers that fit no column, which only a forged file holds
        flaws.has_nonsense = True
    return Recording(
        path=path,
        header=header,
        model=replay.model,
        history=replay.stop(),
        began_s=header.at_s,
        ended_s=replay.last_s,
        damage=flaws.sentence(replay.last_s - header.at_s),
    )


def read_entries(path: Path) -> Iterator[Entry]:
    """Every event of a recording, as it came; unreadable ones are passed over."""
    content = members(_read(path))
    return _entries(content, _header(path, next(content, b"")), _Flaws())


@dataclass
class _Flaws:
    """The damage found so far."""

    lost_bytes: int = 0
    bad_lines: int = 0
    has_nonsense: bool = False
    is_ended: bool = False

    def sentence(self, duration_s: float) -> str | None:
        sentences = []
        if self.lost_bytes:
            sentences.append(f"{self.lost_bytes:,} bytes of the recording are damaged and were left out.")
        if self.bad_lines:
            sentences.append(f"{self.bad_lines:,} of its lines could not be understood and were left out.")
        if self.has_nonsense:
            sentences.append("It holds numbers that cannot be; what follows them was left out.")
        if not self.is_ended:
            sentences.append(
                f"The recording breaks off after {duration_s:.0f} s: it was not ended in order, or still goes on."
            )
        return " ".join(sentences) or None


def _read(path: Path) -> bytes:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise RecordingError(f"{path} is not a file.")
        if status.st_size > MOST_FILE_BYTES:
            raise RecordingError(f"{path} is too long: recordings of up to {MOST_FILE_BYTES // 2**20} MiB are opened.")
        with open(path, "rb") as file:
            return file.read(MOST_FILE_BYTES)
    except OSError as error:
        raise RecordingError(f"Could not open {path}: {error.strerror or error}.") from error


class _AnyHeader(msgspec.Struct):
    format: str
    version: int


def _header(path: Path, first: bytes | Damage) -> RecordingHeader:
    foreign = RecordingError(f"{path} is not a recording of Batchscope, or its beginning is damaged.")
    if isinstance(first, Damage):
        raise foreign
    try:
        basics = msgspec.json.decode(first, type=_AnyHeader)
        if basics.format != RecordingHeader.__struct_config__.tag:
            raise foreign
        if basics.version != FORMAT_VERSION:
            raise RecordingError(
                f"{path} has version {basics.version} of the format; this release reads {FORMAT_VERSION}. "
                "Open it with a newer release of Batchscope."
            )
        return msgspec.json.decode(first, type=RecordingHeader)
    except msgspec.MsgspecError as error:
        raise foreign from error


def _entries(content: Iterator[bytes | Damage], header: RecordingHeader, flaws: _Flaws) -> Iterator[Entry]:
    """The events of all whole members, and a `FramesMissed` where frames are missing."""
    chronology = Chronology(header)
    for member in content:
        if isinstance(member, Damage):
            flaws.lost_bytes += member.end - member.start
            continue
        for line in member.splitlines():
            entry = _entry(line)
            if entry is None or not chronology.admits(entry):
                flaws.bad_lines += 1
                continue
            flaws.is_ended = isinstance(entry.event, RecordingEnded)
            missed = chronology.missed_before(entry)
            if missed is not None:
                yield Entry(at_s=entry.at_s, event=missed)
            yield entry


_decoder = msgspec.json.Decoder(Entry)


def _entry(line: bytes) -> Entry | None:
    try:
        return _decoder.decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
