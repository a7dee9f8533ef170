"""Recordings for tests: of simulated runs, written as the real ones are."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from service.analysis.recording.format import Entry, RecordingHeader
from service.analysis.recording.writer import RecordingWriter
from tests.synthetic_run import CLOCK, SyntheticRun

RECORDED_AT = 1_780_000_000.0


def header(at_s: float = 1000.0, **known: str) -> RecordingHeader:
    return RecordingHeader(at_s=at_s, clock=CLOCK, recorded_at=RECORDED_AT, program_version="1.2.3", **known)


def entries_of(run: SyntheticRun) -> list[Entry]:
    """What a recorder of the run hears, in order."""
    pairs = ((Entry(at_s=t.at_s, event=t), Entry(at_s=load.at_s, event=load)) for t, load in run.frames())
    return [entry for pair in pairs for entry in pair]


def write_recording(path: Path, entries: Iterable[Entry], head: RecordingHeader | None = None) -> Path:
    """A recording of these entries, ended in order."""
    with closing(RecordingWriter(path, head or header())) as writer:
        for entry in entries:
            writer.add(entry.at_s, entry.event)
    return path
