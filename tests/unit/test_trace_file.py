"""A recording as a trace: what the Trace Event Format asks for holds, and what was recorded is in it."""

from __future__ import annotations

import json
import tracemalloc
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from service.analysis.recording.format import Bookmarked, Entry, ServiceEnded
from service.analysis.recording.reader import open_recording
from service.analysis.recording.trace import trace_events, trace_file
from service.commands import export
from service.messages.settings import Settings, SettingsChange, VersionedSettings
from service.messages.telemetry import BatchRecord, RequestRecord, TelemetryFrame
from tests.recorded import entries_of, header, write_recording
from tests.synthetic_run import CLOCK, Step, SyntheticRun
from tests.unit.test_telemetry import status

ROOT = Path(__file__).parents[2]
LESSON = ROOT / "assets" / "lessons" / "6-newcomers-stall-my-stream.bsr"
FIELDS = {
    "M": {"name", "pid", "tid", "ts", "args"},
    "X": {"name", "cat", "pid", "tid", "ts", "dur", "args"},
    "b": {"name", "cat", "id", "pid", "tid", "ts"},
    "e": {"name", "cat", "id", "pid", "tid", "ts"},
    "C": {"name", "pid", "tid", "ts", "args"},
    "i": {"name", "cat", "s", "pid", "tid", "ts", "args"},
}
"""What an event of each phase that is used here must have, by "Trace Event Format" (Google, 2016)."""

Event = dict[str, Any]


def assert_is_a_trace(trace: Any) -> list[Event]:
    """Hold a trace against the format; returns its events."""
    assert trace["displayTimeUnit"] in ("ms", "ns")
    events: list[Event] = trace["traceEvents"]
    for event in events:
        assert FIELDS[event["ph"]] <= set(event), event
        assert isinstance(event["name"], str)
        assert all(isinstance(event[name], int) and event[name] >= 0 for name in ("pid", "tid", "ts")), event
        assert event.get("dur", 0) >= 0
    assert {event["name"] for event in events if event["ph"] == "M"} <= {"process_name", "thread_name"}
    assert {event["s"] for event in events if event["ph"] == "i"} <= {"g", "p", "t"}
    assert all(isinstance(value, int) for event in events if event["ph"] == "C" for value in event["args"].values())
    assert_slices_nest(events)
    assert_threads_do_one_thing_at_a_time(events)
    return events


def assert_slices_nest(events: list[Event]) -> None:
    """Of each id every end closes the newest begin that is open, and no earlier than that began."""
    open_slices = defaultdict[tuple[Any, ...], list[Event]](list)
    for event in events:
        key = tuple(event.get(name) for name in ("pid", "cat", "id"))
        if event["ph"] == "b":
            begun = open_slices[key]
            assert not begun or begun[-1]["ts"] <= event["ts"]
            begun.append(event)
        elif event["ph"] == "e":
            begin = open_slices[key].pop()
            assert begin["name"] == event["name"]
            assert begin["ts"] <= event["ts"]
    assert not any(open_slices.values())


def assert_threads_do_one_thing_at_a_time(events: list[Event]) -> None:
    spans = defaultdict[tuple[int, int], list[tuple[int, int]]](list)
    for event in events:
        if event["ph"] == "X":
            spans[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for of_thread in spans.values():
        assert all(one[1] <= other[0] for one, other in pairwise(sorted(of_thread)))


def traced(entries: list[Entry]) -> list[Event]:
    return assert_is_a_trace(json.loads(b"".join(trace_file(header(), entries))))


def named(events: list[Event], phase: str, category: str) -> list[Event]:
    return [event for event in events if event["ph"] == phase and event.get("cat") == category]


def frame(number: int, at_s: float, **content: Any) -> TelemetryFrame:
    in_force = VersionedSettings(version=1, settings=Settings())
    return TelemetryFrame(number=number, at_s=at_s, clock=CLOCK, in_force=in_force, **content)


def batch(number: int, started_s: float, finished_s: float | None) -> BatchRecord:
    return BatchRecord(
        id=f"r1-b{number}",
        number=number,
        replica="r1",
        settings_version=1,
        formation="late",
        size=2,
        cap=8,
        release_reason="timeout",
        formed_s=started_s,
        started_s=started_s,
        finished_s=finished_s,
        members=("r1-1", "r1-2"),
    )


def test_that_a_recording_of_a_lesson_becomes_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "trace.json"
    assert export.main([str(LESSON), str(out), "--what", "trace"]) == 0
    assert "ui.perfetto.dev" in capsys.readouterr().out

    events = assert_is_a_trace(json.loads(out.read_text()))
    history = open_recording(LESSON).history
    batches = named(events, "X", "batch")
    assert len(batches) == len(history.batches.columns.numbers())
    assert Counter(event["args"]["size"] for event in batches) == Counter(history.batches.columns["size"].tolist())
    requests = [event for event in named(events, "b", "request") if event["name"] == "Request"]
    assert len({event["id"] for event in requests}) == len(requests)
    assert {"Waiting", "Prefill", "Decode"} <= {event["name"] for event in named(events, "b", "request")}
    assert named(events, "b", "client"), "the load generator's own times are there"
    assert any(event["name"] == "Queue depth" for event in events if event["ph"] == "C")
    assert any("→" in event["name"] for event in named(events, "i", "mark"))
    assert "prompt" not in {name for event in events for name in event.get("args", {})}, "no texts"


def test_that_times_are_microseconds_since_the_beginning() -> None:
    request = RequestRecord(
        id="r1-1",
        replica="r1",
        state="done",
        prompt_tokens=1,
        max_tokens=2,
        batch="r1-b1",
        received_s=999.0,  # before the recording
        enqueued_s=1000.25,
        formed_s=1000.5,
        started_s=1000.5,
        first_token_s=1000.75,
        finished_s=1001.0,
    )
    ended = frame(1, 1001.0, requests=(request,), batches=(batch(1, 1000.5, 1001.0),))
    events = traced([Entry(at_s=1001.0, event=ended)])
    (slice_,) = named(events, "X", "batch")
    assert (slice_["ts"], slice_["dur"], slice_["name"]) == (500_000, 500_000, "2 timeout")
    begins = [(event["name"], event["ts"]) for event in named(events, "b", "request")]
    assert begins == [
        ("Request", 0),
        ("Admission", 0),
        ("Waiting", 250_000),
        ("Sealed", 500_000),
        ("Prefill", 500_000),
        ("Decode", 750_000),
    ]


def test_that_batches_that_run_at_a_time_have_threads_of_their_own_and_others_share_one() -> None:
    spans = ((1, 1.0, 2.0), (2, 1.5, 2.5), (3, 2.0, 3.0), (4, 2.5, 3.5))
    entries = [
        Entry(at_s=1000.0 + at_s, event=frame(n, 1000.0 + at_s, batches=(batch(number, 1000 + begun, 1000 + ended),)))
        for n, (number, begun, ended, at_s) in enumerate(((*span, span[2]) for span in spans), 1)
    ]
    slices = named(traced(entries), "X", "batch")
    assert [event["tid"] for event in slices] == [1, 2, 1, 2]


def test_that_what_is_reported_again_is_there_once() -> None:
    again = [frame(n, 1001.0, batches=(batch(1, 1000.5, 1001.0),)) for n in (1, 2)]
    events = traced([Entry(at_s=1001.0 + n, event=each) for n, each in enumerate(again)])
    assert len(named(events, "X", "batch")) == 1


def test_that_what_has_not_ended_lasts_to_the_end_of_its_replica_or_of_the_recording() -> None:
    running = frame(1, 1001.0, batches=(batch(1, 1000.5, None),), replicas=(status(at_s=1001.0),))
    events = traced(
        [
            Entry(at_s=1001.0, event=running),
            Entry(at_s=1002.0, event=frame(2, 1002.0, lost_replicas=("r1",))),
            Entry(at_s=1003.0, event=frame(3, 1003.0, batches=(batch(2, 1002.5, None),))),
            Entry(at_s=1004.0, event=Bookmarked(text="note", start_s=1003.0, end_s=1004.0)),
        ]
    )
    assert [event["ts"] + event["dur"] for event in named(events, "X", "batch")] == [2_000_000, 4_000_000]
    assert [event["name"] for event in named(events, "i", "mark")] == ["r1 was lost", "note"]


def test_that_another_service_has_processes_of_its_own_and_its_ids_begin_anew() -> None:
    entries = []
    for n, service in enumerate(("one", "other"), 1):
        at_s = 1000.0 + n
        event = frame(1, at_s, service=service, batches=(batch(1, at_s - 0.5, at_s),))
        entries.append(Entry(at_s=at_s, event=event))
    entries.insert(1, Entry(at_s=1001.5, event=ServiceEnded(reason="It failed.")))
    events = traced(entries)
    assert len({event["pid"] for event in named(events, "X", "batch")}) == 2
    assert [event["name"] for event in named(events, "i", "mark")] == ["It failed."]


def test_that_a_change_of_settings_is_a_mark_with_its_reason() -> None:
    change = SettingsChange(
        version=2,
        previous=Settings(max_batch_size=8),
        settings=Settings(max_batch_size=16),
        requested_s=1000.5,
        in_force_s=1000.6,
        reason="p95 is above 1 s",
    )
    (mark,) = named(traced([Entry(at_s=1001.0, event=frame(1, 1001.0, changes=(change,)))]), "i", "mark")
    assert (mark["name"], mark["ts"], mark["s"]) == ("max_batch_size 8 → 16", 600_000, "g")
    assert mark["args"]["reason"] == "p95 is above 1 s"


def test_that_of_a_long_recording_no_more_is_held_than_of_a_short_one() -> None:
    """A recording of any length is made as it is read: each of these has the same requests under way at a time."""

    def held_bytes(seconds: int) -> int:
        def entries() -> Iterator[Entry]:
            for n in range(1, 20 * seconds + 1):
                at_s = 1000.0 + n / 20
                one = RequestRecord(
                    id=f"r1-{n}",
                    replica="r1",
                    state="done",
                    prompt_tokens=1,
                    max_tokens=1,
                    received_s=at_s - 0.1,
                    finished_s=at_s,
                )
                yield Entry(at_s=at_s, event=frame(n, at_s, requests=(one,), batches=(batch(n, at_s - 0.04, at_s),)))

        tracemalloc.start()
        for _ in trace_events(header(), entries()):
            pass
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    short, long = held_bytes(20), held_bytes(200)
    ids = 2 * 20 * 180
    assert long - short < 200 * ids, "no more than the ids of what has ended"


def test_that_a_damaged_recording_gives_what_can_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = write_recording(tmp_path / "a.bsr", entries_of(SyntheticRun(10.0, (Step(0.0, 4.0, Settings()),))))
    cut = tmp_path / "cut.bsr"
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    out = tmp_path / "trace.json"
    assert export.main([str(cut), str(out), "--what", "trace"]) == 0
    assert "breaks off" in capsys.readouterr().err
    assert named(assert_is_a_trace(json.loads(out.read_text())), "X", "batch")


def test_that_another_name_than_json_is_refused_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export.main([str(LESSON), str(tmp_path / "trace.csv"), "--what", "trace"]) == 2
    assert capsys.readouterr().err == "The name of a trace's file must end in .json, not in .csv.\n"
    assert export.main([str(tmp_path / "a.bsr"), str(tmp_path / "trace.json")]) == 2
    assert capsys.readouterr().err == "A file whose name ends in .json is a trace: add --what trace.\n"
    assert list(tmp_path.iterdir()) == []
