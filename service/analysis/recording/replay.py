"""Fills a history from a recording: the same as when the events came, at a fraction of the cost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from service.analysis.observed.history import History
from service.analysis.recording.format import (
    LONGEST_S,
    Entry,
    RecordingEnded,
    RecordingHeader,
    ServiceEnded,
    ServiceStarted,
)
from service.messages.load import ClientRequest, LoadFrame, Pattern
from service.messages.telemetry import FramesMissed, TelemetryFrame

SEGMENT_S: Final = 0.5  # frames of so long are fed at once; percentiles allow for samples that come a second late


class Replay:
    """Feeds entries in their order to a history; then `finish`, and `stop`."""

    def __init__(self, header: RecordingHeader) -> None:
        self._header = header
        self._now_s = header.at_s
        self._last_s = header.at_s
        self._telemetry: list[TelemetryFrame] = []
        self._load: list[LoadFrame] = []
        self._pattern: Pattern | None = None
        self._segment_since_s = header.at_s
        self._least_delay_s = float("inf")
        self.model = header.model
        self.history = History(header.clock, lambda: self._now_s, self._wall_time, LONGEST_S)

    @property
    def last_s(self) -> float:
        """The time of the last event."""
        return self._last_s

    def feed(self, entry: Entry) -> None:
        if entry.at_s - self._segment_since_s >= SEGMENT_S or not self._continues(entry):
            self._feed_segment()
            self._segment_since_s = entry.at_s
        self._last_s = entry.at_s
        match entry.event:
            case TelemetryFrame() as frame:
                self._add_frame(entry.at_s, frame)
            case LoadFrame() as frame:
                self._add_load(frame)
            case other:
                self._now_s = entry.at_s
                self._feed_single(other)

    def finish(self) -> None:
        """Feed the entries that are left."""
        self._feed_segment()

    def stop(self) -> History:
        """The history, whose clock now stands at the last event."""
        self._now_s = self._last_s
        self.history.kept_s = max(self._last_s - self._header.at_s, 1.0)
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

    def _add_frame(self, at_s: float, frame: TelemetryFrame) -> None:
        self._telemetry.append(frame)
        if self.model is None and frame.replicas:
            self.model = frame.replicas[0].model
        self._least_delay_s = min(self._least_delay_s, at_s - frame.at_s)

    def _add_load(self, frame: LoadFrame) -> None:
        self._load.append(frame)
        if frame.pattern != self._pattern:  # a change of load is marked at the time of its report
            self._pattern = frame.pattern
            self._feed_segment()

    def _feed_segment(self) -> None:
        if self._telemetry:
            # The frame with the shortest delay gives the best offset of the other machine's clock.
            self._now_s = self._telemetry[-1].at_s + self._least_delay_s
            *earlier, last = self._telemetry
            requests = {record.id: record for frame in self._telemetry for record in frame.requests}
            self.history.add_telemetry_segment(earlier, replace(last, requests=tuple(requests.values())))
        if self._load:
            self._now_s = self._last_s
            *before, latest = self._load
            self.history.add_load_segment(before, replace(latest, requests=_joined_requests(self._load)))
        self._telemetry, self._load = [], []
        self._least_delay_s = float("inf")

    def _feed_single(self, event: FramesMissed | ServiceStarted | ServiceEnded | RecordingEnded) -> None:
        match event:
            case FramesMissed():
                self.history.add_missed(event)
            case ServiceStarted(ready=ready):
                self.model = self.model or ready.model
                self.history.service_started()
            case ServiceEnded(reason=str()):
                self.history.mark_failure()
            case ServiceEnded():
                self.history.mark_stop()

    def _wall_time(self) -> float:
        return self._header.recorded_at + self._now_s - self._header.at_s


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
