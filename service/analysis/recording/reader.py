"""Opens a recording: its content as a `History`, and a sentence on its damage."""

from __future__ import annotations

import math
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from service.analysis.observed.history import History
from service.analysis.observed.scores import NO_SCORES, PredictionScores
from service.analysis.recording.format import (
    FORMAT_VERSION,
    LONGEST_S,
    MOST_FILE_BYTES,
    Bookmarked,
    ClockJumped,
    Damage,
    Entry,
    PredictionsScored,
    RecordingEnded,
    RecordingError,
    RecordingHeader,
    ServiceEnded,
    ServiceStarted,
    members,
)
from service.analysis.recording.results import entries_of_result
from service.messages.load import ClientRequest, LoadFrame, Pattern
from service.messages.telemetry import BatchRecord, FramesMissed, TelemetryFrame

DECODER: Final = msgspec.json.Decoder(Entry)
SLACK_S: Final = 5.0
LONGEST_WAIT_S: Final = 60.0  # of a frame before it is heard, where a replica or the service starts anew
MOST_BOOKMARKS: Final = 1_000
MOST_SCORES: Final = 2_000  # changes of what is known of predictions
SEGMENT_S: Final = 0.5  # of frames that are fed at once; percentiles allow for samples that come a second late


class Chronology:
    """Admits the entries that can follow each other, so that no forged file keeps its reader busy for hours."""

    def __init__(self, header: RecordingHeader) -> None:
        self._clock = header.clock
        self._latest_s = header.at_s
        self._until_s = header.at_s + LONGEST_S
        self._frame: TelemetryFrame | None = None
        self._least_delay_s = math.inf

    def admits(self, entry: Entry) -> bool:
        """Whether the entry can have come after the entries admitted before it."""
        if not self._latest_s <= entry.at_s <= self._until_s:
            return False
        match entry.event:
            case TelemetryFrame() as frame if not self._can_follow(frame, entry.at_s):
                return False
            case LoadFrame(clock=clock, at_s=at_s) if clock != self._clock or at_s > entry.at_s + SLACK_S:
                return False
            case ClockJumped(jump=jump) if not self._has_come(jump.start_s, jump.end_s):
                return False
            case Bookmarked(start_s=start_s, end_s=end_s) if not self._has_come(start_s, end_s, SLACK_S):
                return False
        self._latest_s = entry.at_s
        return True

    def missed_before(self, entry: Entry) -> FramesMissed | None:
        """The frames missing between this one and the one before it; to be called with every admitted entry."""
        if not isinstance(entry.event, TelemetryFrame):
            return None
        last, frame = self._frame, entry.event
        self._frame, self._least_delay_s = frame, min(self._least_delay_s, entry.at_s - frame.at_s)
        if last is None or frame.number <= last.number + 1:
            return None
        return FramesMissed(first=last.number + 1, last=frame.number - 1)

    def _can_follow(self, frame: TelemetryFrame, heard_s: float) -> bool:
        if not all(_is_of_its_time(batch, frame.at_s) for batch in frame.batches):
            return False
        last = self._frame
        if last is None:
            return True
        return frame.clock == last.clock and frame.at_s >= last.at_s and not self._is_ahead(frame, heard_s)

    def _has_come(self, start_s: float, end_s: float, slack_s: float = 0.0) -> bool:
        """Whether a stretch lies between two frames that were heard; those before it may not be in the recording.

        It may end `slack_s` after the latest one.
        """
        return start_s <= end_s <= (math.inf if self._frame is None else self._frame.at_s + slack_s)

    def _is_ahead(self, frame: TelemetryFrame, heard_s: float) -> bool:
        """Whether the frame is of a time that had not come when it was heard.

        One that was heard late says nothing of the next. How another machine's clock stands to ours follows from the
        frame that was heard soonest, and that may have waited.
        """
        delay_s = heard_s - frame.at_s
        if frame.clock == self._clock:
            return delay_s < -SLACK_S
        return delay_s < self._least_delay_s - LONGEST_WAIT_S


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
        scores: what was known of the last predictions, with each change.
        bookmarks: the latest last.
        duration_s: from the begin to the last event.
        damage: a sentence on the parts that could not be read, if any.
        is_ended: whether it was ended in order.
    """

    path: Path
    header: RecordingHeader
    model: str | None
    history: History
    scores: tuple[PredictionScores, ...]
    bookmarks: tuple[Bookmarked, ...]
    duration_s: float
    damage: str | None
    is_ended: bool

    def scores_at(self, at_s: float) -> PredictionScores:
        """What was known of the last predictions at that moment, on the service's clock."""
        known = (each for each in self.scores if each.at_s <= at_s)
        return max(known, key=lambda each: each.at_s, default=NO_SCORES)


class NotWantedError(Exception):
    """The reading was given up before its end."""


def open_recording(path: Path, is_wanted: Callable[[], bool] = lambda: True) -> Recording:
    """Read a whole recording; raises `RecordingError` for another file or an unreadable one.

    `is_wanted` is asked before each event; where it is not, this raises `NotWantedError`.
    """
    entries = Entries(path)
    replay = Replay(entries.header)
    try:
        for entry in entries:
            if not is_wanted():
                raise NotWantedError
            replay.feed(entry)
        replay.flush()
    except ArithmeticError:  # numbers that fit no column, which only a forged file holds
        entries.note_nonsense()
    return Recording(
        path=path,
        header=entries.header,
        model=replay.model,
        history=replay.stop(),
        scores=tuple(replay.scores),
        bookmarks=tuple(replay.bookmarks),
        duration_s=replay.last_s - entries.header.at_s,
        damage=entries.damage,
        is_ended=entries.is_ended,
    )


class Entries(Iterable[Entry]):
    """Every event of a recording, as it came, in one pass that holds a second of them; unreadable ones are passed over.

    Attributes:
        header: the first line.
    """

    def __init__(self, path: Path) -> None:
        """Raises `RecordingError` for another file or an unreadable one. A load generator's result is read as well."""
        content = _read(path)
        self._flaws = _Flaws()
        result = entries_of_result(path, content)
        if result is not None:
            self.header, self._entries = result
            self._flaws.is_ended = True
        else:
            parts = members(content)
            self.header = _header(path, next(parts, b""))
            self._entries = _entries(parts, self.header, self._flaws)
        self._last_s = self.header.at_s

    def __iter__(self) -> Iterator[Entry]:
        for entry in self._entries:
            self._last_s = entry.at_s
            yield entry

    def note_nonsense(self) -> None:
        """An event that was read holds numbers that cannot be."""
        self._flaws.has_nonsense = True

    @property
    def damage(self) -> str | None:
        """A sentence on the parts that could not be read, if any; known when all has been read."""
        return self._flaws.sentence(self._last_s - self.header.at_s)

    @property
    def is_ended(self) -> bool:
        """Whether the recording was ended in order; known when all has been read."""
        return self._flaws.is_ended


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
            try:
                entry = DECODER.decode(line)
            except (msgspec.MsgspecError, ValueError, RecursionError):
                entry = None
            if entry is None or not chronology.admits(entry):
                flaws.bad_lines += 1
                continue
            flaws.is_ended = isinstance(entry.event, RecordingEnded)
            missed = chronology.missed_before(entry)
            if missed is not None:
                yield Entry(at_s=entry.at_s, event=missed)
            yield entry


class Replay:
    """Feeds entries in order to a history, as when the events came but at a fraction of the cost; then `flush`, `stop`.

    Attributes:
        last_s: time of the last event.
        scores: what was known of predictions, with each change.
        bookmarks: stretches with a name.
    """

    def __init__(self, header: RecordingHeader) -> None:
        self._header = header
        self._now_s = header.at_s
        self.last_s = header.at_s
        self._telemetry: list[TelemetryFrame] = []
        self._load: list[LoadFrame] = []
        self._pattern: Pattern | None = None
        self._segment_since_s = header.at_s
        self._least_delay_s = float("inf")
        self.model = header.model
        self.scores: deque[PredictionScores] = deque(maxlen=MOST_SCORES)
        self.bookmarks: deque[Bookmarked] = deque(maxlen=MOST_BOOKMARKS)
        self.history = History(
            header.clock, lambda: self._now_s, lambda: header.recorded_at + self._now_s - header.at_s, LONGEST_S
        )

    def feed(self, entry: Entry) -> None:
        if entry.at_s - self._segment_since_s >= SEGMENT_S or not self._continues(entry):
            self.flush()
            self._segment_since_s = entry.at_s
        self.last_s = self._now_s = entry.at_s
        match entry.event:
            case TelemetryFrame() as frame:
                self._telemetry.append(frame)
                if self.model is None and frame.replicas:
                    self.model = frame.replicas[0].model
                self._least_delay_s = min(self._least_delay_s, entry.at_s - frame.at_s)
            case LoadFrame() as frame:
                self._load.append(frame)
                if frame.pattern != self._pattern:  # a change of load is marked at the time of its report
                    self._pattern = frame.pattern
                    self.flush()
            case FramesMissed() as missed:
                self.history.add_missed(missed)
            case ServiceStarted(ready=ready):
                self.model = self.model or ready.model
                self.history.service_started(ready)
            case ServiceEnded(reason=str()):
                self.history.mark_failure()
            case ServiceEnded(is_left=True):
                self.history.mark_left()
            case ServiceEnded():
                self.history.mark_stop()
            case ClockJumped(jump=jump):
                self.history.jumps.add(jump)
            case PredictionsScored(scores=scores):
                self.scores.append(scores)
            case Bookmarked() as bookmark:
                self.bookmarks.append(bookmark)
                self.history.notes.add(bookmark.start_s, bookmark.text)

    def flush(self) -> None:
        """Feed the frames that are left."""
        if self._telemetry:
            # The frame with the shortest delay gives the best offset of the other machine's clock.
            self._now_s = self._telemetry[-1].at_s + self._least_delay_s
            *earlier, last = self._telemetry
            requests = {record.id: record for frame in self._telemetry for record in frame.requests}
            self.history.add_telemetry_segment(earlier, replace(last, requests=tuple(requests.values())))
        if self._load:
            self._now_s = self.last_s
            *before, latest = self._load
            self.history.add_load_segment(before, replace(latest, requests=_joined_requests(self._load)))
        self._telemetry, self._load = [], []
        self._least_delay_s = float("inf")

    def stop(self) -> History:
        """The history, whose clock now stands at the last event."""
        self._now_s = self.last_s
        self.history.kept_s = max(self.last_s - self._header.at_s, 1.0)
        return self.history

    def _continues(self, entry: Entry) -> bool:
        """Whether the event can be fed together with those before it."""
        match entry.event:
            case TelemetryFrame(number=number) if self._telemetry:
                last = self._telemetry[-1]
                return number == last.number + 1 and not last.gone_replicas
            case LoadFrame(pattern=pattern):
                return pattern == self._pattern
            case TelemetryFrame():
                return True
        return False


def _joined_requests(frames: Iterable[LoadFrame]) -> tuple[ClientRequest, ...]:
    """The last record of each request with all its new text, in order of their ends; open ones come last."""
    requests: dict[str, ClientRequest] = {}
    texts: dict[str, list[str]] = {}
    for frame in frames:
        for request in frame.requests:
            requests[request.id] = request
            texts.setdefault(request.id, []).append(request.new_text)
    joined = (
        request if len(texts[request.id]) == 1 else replace(request, new_text="".join(texts[request.id]))
        for request in requests.values()
    )
    return tuple(sorted(joined, key=_end_s))


def _end_s(request: ClientRequest) -> float:
    return float("inf") if request.finished_s is None else request.finished_s
