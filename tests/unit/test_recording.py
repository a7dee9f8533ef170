from __future__ import annotations

import errno
import gzip
import json
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.analysis.findings.ranking import findings
from service.analysis.observed.annotations import ClockJump
from service.analysis.observed.contention import contentions
from service.analysis.observed.history import History
from service.analysis.observed.scores import PredictionScores, ScoredFigure, ScoredPrediction
from service.analysis.recording.format import (
    ClockJumped,
    Entry,
    PredictionsScored,
    RecordedEvent,
    RecordingEnded,
    RecordingError,
    ServiceEnded,
    ServiceStarted,
)
from service.analysis.recording.reader import Entries, NotWantedError, open_recording
from service.analysis.recording.writer import RecordingBuffer, RecordingWriter
from service.messages.files import NotWrittenError
from service.messages.life import Ready
from service.messages.settings import Settings
from service.messages.telemetry import FramesMissed, TelemetryFrame
from tests.disk import room_for, umask
from tests.recorded import RECORDED_AT, entries_of, header, write_recording
from tests.synthetic_run import CLOCK, Step, SyntheticRun, filled_history

READY = Ready(
    url="http://127.0.0.1:8000",
    instance="i",
    model="tiny",
    device="cpu",
    dtype="float32",
    context_length=64,
    replicas=1,
    started_in_s=1.0,
)


def changing_run(duration_s: float = 20.0) -> SyntheticRun:
    """A run whose load and settings change, part of it from outside."""
    steps = (Step(0.0, 4.0, Settings(max_batch_size=4)), Step(6.0, 8.0), Step(11.0, settings=Settings()))
    return SyntheticRun(duration_s=duration_s, steps=steps, outside_share=0.2)


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[Entry]]:
    """A whole recording of three seconds as bytes, and what it holds."""
    entries = entries_of(changing_run(3.0))
    path = write_recording(tmp_path_factory.mktemp("short") / "short.bsr", entries)
    return path.read_bytes(), [*entries, Entry(at_s=entries[-1].at_s, event=RecordingEnded())]


# What it holds --------------------------------------------------------------------------------------------------------


def test_that_everything_comes_back_in_order(short: tuple[bytes, list[Entry]], tmp_path: Path) -> None:
    path = tmp_path / "a.bsr"
    path.write_bytes(short[0])

    assert list(Entries(path)) == short[1]


def test_that_it_is_json_lines_to_any_program_that_knows_gzip(short: tuple[bytes, list[Entry]]) -> None:
    lines = [json.loads(line) for line in gzip.decompress(short[0]).splitlines()]

    assert lines[0]["format"] == "batchscope-recording"
    assert lines[0]["version"] == 1
    assert {line["event"]["event"] for line in lines[1:]} == {"frame", "load", "end"}


def test_that_the_history_stands_at_the_end_and_knows_the_time_of_day(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "a.bsr", entries_of(changing_run()), header(model="tiny"))

    recording = open_recording(path)

    assert recording.damage is None
    assert recording.model == "tiny"
    assert recording.duration_s == pytest.approx(20.0)
    assert recording.history.now_s() == pytest.approx(1020.0)
    assert recording.history.wall_time(1010.0) == pytest.approx(RECORDED_AT + 10.0)
    assert recording.history.kept_s == pytest.approx(20.0)


def test_that_what_is_drawn_is_the_same_as_when_it_came(tmp_path: Path) -> None:
    run = changing_run()
    recorded = open_recording(write_recording(tmp_path / "a.bsr", entries_of(run))).history
    live, _ = filled_history(run)

    assert_same_requests(recorded, live)
    for name in ("formed", "started", "finished", "size", "cap", "tokens", "reason", "number", "version", "regime"):
        np.testing.assert_array_equal(recorded.batches.columns[name], live.batches.columns[name], name)
    steps = slice(int(1000 / 0.25), int(1020 / 0.25))
    np.testing.assert_allclose(
        recorded.batches.tokens.read(steps.start, steps.stop), live.batches.tokens.read(steps.start, steps.stop)
    )
    for ours, theirs in zip(
        recorded.percentiles_of("latency").grids, live.percentiles_of("latency").grids, strict=True
    ):
        np.testing.assert_allclose(ours.read(steps.start, steps.stop), theirs.read(steps.start, steps.stop))
    assert recorded.batches.marks() == live.batches.marks()
    assert recorded.load_timeline.marks == live.load_timeline.marks
    assert recorded.load_timeline.offered == live.load_timeline.offered
    assert recorded.statuses.patterns == live.statuses.patterns
    np.testing.assert_array_equal(recorded.statuses.load["at"], live.statuses.load["at"])
    np.testing.assert_array_equal(recorded.statuses.replicas["at"], live.statuses.replicas["at"])


def assert_same_requests(recorded: History, live: History) -> None:
    def told(history: History) -> list[str]:
        return sorted(repr(replace(row, key=0)) for row in history.requests.rows())

    assert told(recorded) == told(live)
    ours, theirs = (np.sort(history.requests.samples["latency"]) for history in (recorded, live))
    np.testing.assert_array_equal(ours, theirs)


def test_that_failures_starts_and_gaps_are_shown_again(tmp_path: Path) -> None:
    entries = entries_of(changing_run(4.0))
    events: list[tuple[float, RecordedEvent]] = [
        (1004.0, ServiceEnded(reason="It was killed.")),
        (1005.0, ServiceStarted(ready=READY)),
        (1006.0, RecordingEnded()),
    ]
    path = write_recording(tmp_path / "a.bsr", [*entries, *(Entry(at_s=at_s, event=event) for at_s, event in events)])

    outages = open_recording(path).history.outages

    assert [(o.text, o.start_s, o.end_s) for o in outages] == [("failed", 1004.0, 1005.0)]


def test_that_a_jump_of_the_clock_is_marked_again_and_withholds_what_it_did(tmp_path: Path) -> None:
    entries, jump = entries_of(changing_run()), ClockJump(1014.9, 1015.0, 60.0)
    at = next(number for number, entry in enumerate(entries) if entry.at_s > 1015.0)
    entries.insert(at, Entry(at_s=1015.0, event=ClockJumped(jump=jump)))
    recording = open_recording(write_recording(tmp_path / "a.bsr", entries))
    assert recording.damage is None
    [found] = contentions(recording.history, 1020.0)
    assert (found.text, found.start_s, found.end_s) == ("clock +60 s", 1014.9, 1015.0)
    assert "engine_slowed" in {finding.rule for finding in findings(recording.history, 1020.0)}
    assert contentions(recording.history, 1014.0) == (), "it had not come"


def test_that_the_scores_of_predictions_are_those_of_each_moment(tmp_path: Path) -> None:
    entries = entries_of(changing_run())
    first, both = scores(1005.0, 0.9), scores(1015.0, 0.9, 1.2)
    for known in (first, both):
        at = next(number for number, entry in enumerate(entries) if entry.at_s > known.at_s)
        entries.insert(at, Entry(at_s=known.at_s, event=PredictionsScored(scores=known)))
    recording = open_recording(write_recording(tmp_path / "a.bsr", entries))
    assert recording.damage is None
    assert recording.scores_at(1004.0).words == ""
    assert recording.scores_at(1005.0) == recording.scores_at(1014.0) == first
    assert recording.scores_at(1020.0).words == "Predictions of p95, last 2: median error 15 %, 1 inside their band"


def scores(at_s: float, *values_s: float) -> PredictionScores:
    """Of predictions of these p95, with a band of 0.15 s to either side, where 1 s was measured."""
    figures = [ScoredFigure(value_s, value_s - 0.15, value_s + 0.15, 1.0) for value_s in values_s]
    return PredictionScores(at_s=at_s, predictions=tuple(ScoredPrediction(figures={"p95_s": f}) for f in figures))


@pytest.mark.parametrize("jump", [ClockJump(1002.0, 1001.0, 60.0), ClockJump(1001.0, 1900.0, 60.0)])
def test_that_a_jump_that_cannot_have_come_is_left_out(jump: ClockJump, tmp_path: Path) -> None:
    entries = entries_of(changing_run(4.0))
    recording = open_recording(
        write_recording(tmp_path / "a.bsr", [*entries, Entry(at_s=1004.0, event=ClockJumped(jump=jump))])
    )
    assert recording.damage == "1 of its lines could not be understood and were left out."
    assert list(recording.history.jumps) == []


# What can be wrong with it --------------------------------------------------------------------------------------------


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0.0, 1.0, exclude_max=True))
@pytest.mark.promise("T15")
def test_that_a_recording_cut_anywhere_is_read_up_to_there(
    short: tuple[bytes, list[Entry]], tmp_path: Path, share: float
) -> None:
    whole, entries = short
    path = tmp_path / "cut.bsr"
    path.write_bytes(whole[: int(share * len(whole))])

    try:
        read = list(Entries(path))
    except RecordingError:
        assert share * len(whole) < 300  # not even its header is whole
        return

    assert read == entries[: len(read)]
    damage = open_recording(path).damage
    assert damage is not None
    assert "breaks off" in damage


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0.0, 1.0, exclude_max=True), bit=st.integers(0, 7))
@pytest.mark.promise("T15")
def test_that_a_flipped_bit_costs_a_second_and_changes_nothing_else(
    short: tuple[bytes, list[Entry]], tmp_path: Path, place: float, bit: int
) -> None:
    whole, entries = short
    flipped = bytearray(whole)
    flipped[int(place * len(whole))] ^= 1 << bit
    path = tmp_path / "flipped.bsr"
    path.write_bytes(flipped)

    try:
        read = [entry for entry in Entries(path) if not isinstance(entry.event, FramesMissed)]
    except RecordingError:
        assert place * len(whole) < 300
        return

    assert all(entry in entries for entry in read)
    assert len(read) >= len(entries) * 0.6
    assert len(read) == len(entries) or open_recording(path).damage is not None


def test_that_a_damaged_second_is_shown_as_a_gap(short: tuple[bytes, list[Entry]], tmp_path: Path) -> None:
    whole, _ = short
    damaged = bytearray(whole)
    middle = len(whole) // 2
    damaged[middle : middle + 8] = bytes(8)
    path = tmp_path / "a.bsr"
    path.write_bytes(damaged)

    recording = open_recording(path)

    assert recording.damage is not None
    assert "bytes of the recording are damaged" in recording.damage
    assert [outage.text for outage in recording.history.outages] == ["gap"]


@pytest.mark.promise("T15")
def test_that_lines_that_make_no_sense_are_counted_and_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.bsr"
    entry = entries_of(changing_run(1.0))[0]
    bad = [
        b"{",
        b"[" * 100_000,
        b'{"at_s": "now", "event": {}}',
        b'{"at_s": 1001.0, "event": {"event": "import os"}}',
        b'{"at_s": 1e300, "event": {"event": "end"}}',
        b'{"at_s": 0.0, "event": {"event": "end"}}',
        b"\xff\xfe",
    ]
    lines = [msgspec.json.encode(header()), msgspec.json.encode(entry), *bad, msgspec.json.encode(entry)]
    path.write_bytes(gzip.compress(lines[0]) + gzip.compress(b"\n".join(lines[1:])))

    recording = open_recording(path)

    assert recording.damage is not None
    assert f"{len(bad)} of its lines" in recording.damage
    assert recording.history.last_s == entry.at_s


def test_that_a_frame_from_another_time_is_not_believed(tmp_path: Path) -> None:
    first, *rest = entries_of(changing_run(1.0))
    far = msgspec.structs.replace(rest[1].event, at_s=1e12, number=2)
    path = write_recording(tmp_path / "a.bsr", [first, Entry(at_s=first.at_s, event=far)])

    recording = open_recording(path)

    assert recording.history.last_s == first.at_s
    assert recording.damage is not None


@pytest.mark.parametrize("clock", [CLOCK, "of another machine"])
@pytest.mark.parametrize("late_s", [10.0, 20.0], ids=["the first", "a later one"])
def test_that_a_frame_that_was_heard_late_does_not_spoil_those_after_it(
    tmp_path: Path, late_s: float, clock: str
) -> None:
    """While a replica starts anew a frame can wait for ten seconds; the next is heard at once."""
    heard_s = header().at_s + late_s
    entries = [
        Entry(at_s=each.at_s, event=msgspec.structs.replace(each.event, clock=clock))
        for each in entries_of(changing_run(30.0))
        if isinstance(each.event, TelemetryFrame)
    ]
    waited = [n for n, entry in enumerate(entries) if heard_s - 10.0 <= entry.at_s < heard_s]
    entries[waited[0]] = Entry(at_s=heard_s, event=entries[waited[0]].event)
    entries = [entry for n, entry in enumerate(entries) if n not in waited[1:]]

    recording = open_recording(write_recording(tmp_path / "a.bsr", entries))

    assert recording.damage is None
    assert recording.duration_s == pytest.approx(30.0, abs=0.2)


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("batches", "finished_s", 1e300),
        ("batches", "formed_s", -1e18),
        ("batches", "tokens", 10**30),
    ],
)
@pytest.mark.promise("T12")
def test_that_numbers_that_cannot_be_are_left_out(tmp_path: Path, kind: str, field: str, value: float) -> None:
    entries = entries_of(changing_run(4.0))
    place = next(n for n, entry in enumerate(entries) if n > len(entries) // 2 and getattr(entry.event, kind, ()))
    frame = entries[place].event
    forged = msgspec.structs.replace(getattr(frame, kind)[0], **{field: value})
    entries[place] = Entry(at_s=entries[place].at_s, event=msgspec.structs.replace(frame, **{kind: (forged,)}))

    recording = open_recording(write_recording(tmp_path / "a.bsr", entries))

    assert recording.damage is not None
    assert recording.history.last_s is not None
    assert recording.history.last_s >= 1001.5


@pytest.mark.promise("T15")
def test_that_a_bomb_is_not_inflated(tmp_path: Path) -> None:
    path = tmp_path / "bomb.bsr"
    head = gzip.compress(msgspec.json.encode(header()))
    path.write_bytes(head + gzip.compress(bytes(80 * 2**20)))

    damage = open_recording(path).damage

    assert damage is not None
    assert "damaged" in damage


def test_that_reading_is_given_up_where_it_is_not_wanted_any_more(
    short: tuple[bytes, list[Entry]], tmp_path: Path
) -> None:
    path = tmp_path / "left.bsr"
    path.write_bytes(short[0])
    asked: list[None] = []

    def is_wanted() -> bool:
        asked.append(None)
        return len(asked) < 4

    with pytest.raises(NotWantedError):
        open_recording(path, is_wanted)
    assert len(asked) == 4


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04zip", b"{}", gzip.compress(b"hello", mtime=0), gzip.compress(b"{}", mtime=0)]
)
@pytest.mark.promise("T15")
def test_that_a_foreign_file_is_named_as_such(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "foreign.bsr"
    path.write_bytes(content)

    with pytest.raises(RecordingError, match="is not a recording of Batchscope"):
        open_recording(path)


def test_that_a_newer_format_asks_for_a_newer_release(tmp_path: Path) -> None:
    path = tmp_path / "new.bsr"
    path.write_bytes(gzip.compress(b'{"format": "batchscope-recording", "version": 2, "shape": "unknown"}'))

    with pytest.raises(RecordingError, match=r"version 2 of the format.*newer release"):
        open_recording(path)


def test_that_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.bsr")
    for name, words in (("fifo.bsr", "not a file"), ("missing.bsr", "No such file"), (".", "not a file")):
        with pytest.raises(RecordingError, match=words):
            open_recording(tmp_path / name)


# Writing it -----------------------------------------------------------------------------------------------------------


def test_that_an_event_reaches_the_disk_within_a_second_of_events(tmp_path: Path) -> None:
    entries = entries_of(changing_run(3.0))
    writer = RecordingWriter(tmp_path / "a.bsr", header())

    for entry in entries:
        writer.add(entry.at_s, entry.event)
        told = list(Entries(tmp_path / "a.bsr"))
        heard_s = told[-1].at_s if told else 1000.0
        assert entry.at_s - heard_s <= 1.1
    writer.close()


WRITES_UNTIL_KILLED = """
import sys, time
from pathlib import Path
from service.analysis.recording.writer import RecordingWriter
from tests.recorded import entries_of, header
from tests.synthetic_run import SyntheticRun

writer = RecordingWriter(Path(sys.argv[1]), header())
for entry in entries_of(SyntheticRun(10.0)):
    writer.add(entry.at_s, entry.event)
print("written", flush=True)
time.sleep(100)
"""


@pytest.mark.promise("T15")
def test_that_a_killed_recorder_leaves_all_but_its_last_second(tmp_path: Path) -> None:
    path = tmp_path / "a.bsr"
    with subprocess.Popen([sys.executable, "-c", WRITES_UNTIL_KILLED, str(path)], stdout=subprocess.PIPE) as recorder:
        assert recorder.stdout is not None
        recorder.stdout.readline()
        recorder.kill()

    recording = open_recording(path)

    assert recording.history.last_s is not None
    assert recording.history.last_s >= 1009.0
    assert recording.damage is not None
    assert "was not ended in order" in recording.damage


def test_that_a_tape_keeps_the_last_minutes_only(tmp_path: Path) -> None:
    entries = entries_of(changing_run(20.0))
    buffer = RecordingBuffer(kept_s=5.0)
    for entry in entries:
        buffer.add(entry.at_s, entry.event)
    buffer.save(tmp_path / "a.bsr", header(at_s=1100.0))

    recording = open_recording(tmp_path / "a.bsr")
    kept = list(Entries(tmp_path / "a.bsr"))[:-1]
    assert recording.damage is None
    assert kept == entries[-len(kept) :]
    assert 5.0 <= recording.duration_s <= 6.2
    assert recording.history.wall_time(1020.0) == pytest.approx(RECORDED_AT - 80.0)


def test_that_a_tape_holds_no_more_bytes_than_it_may(tmp_path: Path) -> None:
    buffer = RecordingBuffer(most_bytes=4000)
    for entry in entries_of(changing_run(20.0)):
        buffer.add(entry.at_s, entry.event)
    buffer.save(tmp_path / "a.bsr", header(at_s=1100.0))

    around_it = 2000  # header, end, and the second that is not over
    assert (tmp_path / "a.bsr").stat().st_size < 4000 + around_it


def test_that_an_earlier_recording_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.bsr"
    path.write_bytes(b"precious")

    with pytest.raises(RecordingError, match="is there already"):
        RecordingWriter(path, header())
    assert path.read_bytes() == b"precious"

    RecordingWriter(path, header(), overwrite=True).close()
    assert open_recording(path).damage is None


def test_that_an_earlier_recording_stays_until_the_new_one_has_begun(tmp_path: Path) -> None:
    path = tmp_path / "a.bsr"
    path.write_bytes(b"precious")

    with room_for(50), pytest.raises(RecordingError, match=r"Nothing was overwritten\. Choose another place"):
        RecordingWriter(path, header(), overwrite=True)

    assert path.read_bytes() == b"precious"
    assert os.listdir(tmp_path) == ["a.bsr"]


@pytest.mark.promise("T18")
def test_that_a_tape_that_cannot_be_saved_whole_leaves_the_earlier_recording(tmp_path: Path) -> None:
    path = tmp_path / "a.bsr"
    path.write_bytes(b"precious")
    buffer = RecordingBuffer()
    for entry in entries_of(changing_run(20.0)):
        buffer.add(entry.at_s, entry.event)

    for room in range(0, 5000, 250):
        with room_for(room), pytest.raises(NotWrittenError, match=r"Nothing was overwritten\. Choose another place"):
            buffer.save(path, header(at_s=1100.0))
        assert path.read_bytes() == b"precious"
        assert os.listdir(tmp_path) == ["a.bsr"]


@pytest.mark.parametrize("mask", [0o000, 0o777])
def test_that_recordings_are_for_their_owner_alone(tmp_path: Path, mask: int) -> None:
    with umask(mask):
        RecordingWriter(tmp_path / "new.bsr", header()).close()
        RecordingWriter(tmp_path / "over.bsr", header(), overwrite=True).close()
        RecordingBuffer().save(tmp_path / "buffer.bsr", header())

    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


@pytest.mark.parametrize(("place", "words"), [("missing/a.bsr", "folder does not exist"), (".", "is there already")])
def test_that_a_place_that_cannot_be_written_is_named(tmp_path: Path, place: str, words: str) -> None:
    with pytest.raises(RecordingError, match=words):
        RecordingWriter(tmp_path / place, header())


class FullDisk:
    """A file on a disk that has room for so many bytes more."""

    def __init__(self, file: object, room: int) -> None:
        self._file = file
        self._room = room

    def write(self, data: memoryview) -> int:
        if not self._room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written: int = self._file.write(data[: self._room])  # type: ignore[attr-defined]
        self._room -= written
        return written

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)


@pytest.mark.parametrize("room", [1, *range(0, 3001, 150)])
@pytest.mark.promise("T18")
def test_that_a_full_disk_ends_the_recording_with_what_is_needed(tmp_path: Path, room: int) -> None:
    path = tmp_path / "a.bsr"
    writer = RecordingWriter(path, header())
    writer._file = FullDisk(writer._file, room)  # type: ignore[assignment]

    with pytest.raises(RecordingError, match=r"the disk is full and [\d,]+ bytes more are needed"):  # noqa: PT012
        for entry in entries_of(changing_run(4.0)):
            writer.add(entry.at_s, entry.event)
        writer.close()

    recording = open_recording(path)
    assert "damaged" not in (recording.damage or "")
    assert path.stat().st_size == writer.bytes_written
