"""Holds the events of a recording to one course of time, so that no file can make its reader run for hours."""

from __future__ import annotations

from typing import Final

from service.analysis.recording.format import LONGEST_S, Entry, RecordingHeader
from service.messages.load import LoadFrame
from service.messages.telemetry import BatchRecord, FramesMissed, TelemetryFrame

SLACK_S: Final = 5.0


class Order:
    """Asked of every entry in turn."""

    def __init__(self, header: RecordingHeader) -> None:
        self._clock = header.clock
        self._latest_s = header.at_s
        self._until_s = header.at_s + LONGEST_S
        self._frame: TelemetryFrame | None = None
        self._frame_heard_s = header.at_s

    def admits(self, entry: Entry) -> bool:
        """Whether the entry can have come after those that were admitted before it."""
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
        """The frames between this one and the one before it; to be asked of every admitted entry."""
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
    """Whether a frame of that moment can tell of the batch: its tokens are spread over the time that it ran."""
    times_s = (batch.formed_s, batch.started_s, batch.finished_s)
    return all(time_s is None or at_s - LONGEST_S <= time_s <= at_s + SLACK_S for time_s in times_s)
