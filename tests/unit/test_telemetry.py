"""Frames are numbered without gaps, bounded in memory, and a reader that was away is told what it missed."""

from __future__ import annotations

import asyncio
import itertools

import msgspec
import pytest

from service.messages.clock import ClockOffset, monotonic_clock_id
from service.messages.settings import Scale, Settings, VersionedSettings
from service.messages.telemetry import (
    BatchRecord,
    Deployment,
    FramesMissed,
    ReplicaStatus,
    RequestRecord,
    RequestState,
    TelemetryEvent,
    TelemetryFrame,
)
from service.replica.frames import (
    KEEP_ALIVE,
    KEPT_FRAMES,
    SILENCE_S,
    UNWATCHED_INTERVAL_S,
    WATCHED_S,
    FrameLog,
    telemetry_events,
)
from service.replica.recorder import MAX_UNREPORTED, MAX_UNREPORTED_STEPS, REPEATED_S, Recorder, ReplicaReport
from tests.virtual_time import now_s, run_in_virtual_time

IN_FORCE = VersionedSettings(version=1, settings=Settings())
DECODER = msgspec.json.Decoder(TelemetryEvent)
NUMBERS = itertools.count(1)  # of reports


def status(replica: str = "r1", at_s: float = 0.0) -> ReplicaStatus:
    return ReplicaStatus(
        replica=replica,
        pid=1,
        at_s=at_s,
        settings_version=1,
        waiting=0,
        formed=0,
        running=0,
        model="m",
        device="cpu",
        dtype="float32",
        cpu_percent=0.0,
        memory_bytes=0,
    )


def request(id: str, at_s: float = 0.0) -> RequestRecord:
    return RequestRecord(id=id, replica="r1", state="waiting", prompt_tokens=1, max_tokens=1, received_s=at_s)


def batch(number: int) -> BatchRecord:
    return BatchRecord(
        id=f"r1-b{number}",
        number=number,
        replica="r1",
        settings_version=1,
        formation="late",
        size=1,
        cap=1,
        release_reason="full",
        formed_s=0.0,
    )


def report(*requests: RequestRecord, clock: str | None = None, sent_s: float = 0.0) -> ReplicaReport:
    """A later one than all before."""
    return ReplicaReport(
        number=next(NUMBERS),
        clock=clock or monotonic_clock_id(),
        sent_s=sent_s,
        status=status(at_s=sent_s),
        batches=(),
        requests=requests,
    )


def log_of(frames: int) -> FrameLog:
    log = FrameLog(clock=now_s)
    for i in range(frames):
        log.add_report(report(request(f"r1-{i}"), sent_s=float(i)))
        log.close_frame(IN_FORCE)
    return log


def events_after(number: int | None, log: FrameLog) -> tuple[int, list[TelemetryFrame | FramesMissed]]:
    async def read() -> tuple[int, list[bytes]]:
        return await log.after(number, timeout_s=1.0)

    newest, events = run_in_virtual_time(read())
    return newest, [DECODER.decode(event) for event in events]


def frame_of(*reports: ReplicaReport) -> TelemetryFrame:
    """The frame that holds what these reports bring, in the order in which they come."""

    async def close() -> bytes:
        log = FrameLog(clock=now_s)
        for each in reports:
            log.add_report(each)
        log.close_frame(IN_FORCE)
        return (await log.after(0, 1.0))[1][0]

    frame = DECODER.decode(run_in_virtual_time(close()))
    assert isinstance(frame, TelemetryFrame)
    return frame


def made_in_virtual_time(frames: int) -> FrameLog:
    async def make() -> FrameLog:
        return log_of(frames)

    return run_in_virtual_time(make())


def test_that_each_gap_between_tokens_is_reported_once_with_the_request_of_the_longest() -> None:
    recorder = Recorder("r1")
    for id, gap_s, at_s in (("a", 0.02, 10.0), ("b", 0.11, 10.1), ("a", 0.03, 10.2), ("a", 0.02, 10.3)):
        recorder.note_gap(id, gap_s, at_s)
    (first,) = acknowledged(recorder, 10.31).gaps
    assert (first.at_s, first.longest_at_s, first.request) == (10.2, 10.1, "b")
    assert (first.gaps.count, first.gaps.longest_s, first.gaps.total_s) == (3, 0.11, pytest.approx(0.16))
    assert [each.gaps.count for each in acknowledged(recorder, 10.6).gaps] == [1]
    assert recorder.report(status(at_s=11.0)).gaps == ()


def test_that_gaps_are_bounded_whatever_the_hub_does() -> None:
    recorder = Recorder("r1")
    for n in range(10_000):
        recorder.note_gap("a", 0.5, 0.5 * n)
    assert len(recorder.report(status(at_s=1e6)).gaps) == MAX_UNREPORTED_STEPS
    recorder.note_gap("a", 0.5, 1e6 + 1.0)
    again = recorder.report(status(at_s=1e6 + 2.0)).gaps
    assert (len(again), again[-1].at_s) == (MAX_UNREPORTED_STEPS, 1e6 + 1.0), "the oldest are forgotten"


def test_that_gaps_reach_the_frame_and_only_their_times_are_put_on_our_clock() -> None:
    log, recorder = FrameLog(clock=lambda: 500.0), Recorder("r1")
    recorder.note_gap("r1-1", 0.25, 99.0)
    gaps = recorder.report(status(at_s=100.0)).gaps
    ended = RequestRecord(
        **{**msgspec.structs.asdict(request("r1-1", 90.0)), "longest_gap_s": 0.25, "longest_gap_at_s": 99.0}
    )
    told = report(ended, clock="another", sent_s=100.0)
    log.add_report(msgspec.structs.replace(told, gaps=gaps))
    log.close_frame(IN_FORCE)
    (frame,) = [event for event in events_after(0, log)[1] if isinstance(event, TelemetryFrame)]
    assert (frame.requests[0].longest_gap_s, frame.requests[0].longest_gap_at_s) == (0.25, 499.0)
    assert (frame.gaps[0].at_s, frame.gaps[0].longest_at_s, frame.gaps[0].gaps.total_s) == (499.0, 499.0, 0.25)


def test_that_a_reader_resumes_where_it_stopped() -> None:
    newest, events = events_after(2, made_in_virtual_time(5))
    assert newest == 5
    assert [event.number for event in events if isinstance(event, TelemetryFrame)] == [3, 4, 5]


def test_that_a_new_reader_starts_with_what_comes_next() -> None:
    async def read() -> list[bytes]:
        log = log_of(3)
        asyncio.get_running_loop().call_later(
            0.1, lambda: (log.add_report(report(sent_s=9.0)), log.close_frame(IN_FORCE))
        )
        return (await log.after(None, timeout_s=1.0))[1]

    (event,) = run_in_virtual_time(read())
    assert DECODER.decode(event).number == 4  # type: ignore[union-attr]


def test_that_a_reader_is_answered_even_when_nothing_happens() -> None:
    assert events_after(3, made_in_virtual_time(3)) == (3, [])


async def test_that_reports_are_wanted_in_time_for_each_frame_as_long_as_somebody_asks_again() -> None:
    now = [100.0]
    log = FrameLog(clock=lambda: now[0], interval_s=0.1)
    assert (log.is_watched, log.report_interval_s) == (False, UNWATCHED_INTERVAL_S)
    await log.after(None, timeout_s=0)
    assert (log.is_watched, log.report_interval_s) == (True, 0.1)
    now[0] += WATCHED_S
    assert not log.is_watched


def test_that_a_reader_that_lags_is_told_what_it_missed_and_memory_stays_bounded() -> None:
    newest, events = events_after(10, made_in_virtual_time(KEPT_FRAMES + 50))
    assert events[0] == FramesMissed(first=11, last=50)
    assert len(events) == 1 + KEPT_FRAMES
    assert newest == KEPT_FRAMES + 50


def test_that_a_log_in_the_place_of_another_goes_on_with_higher_numbers_and_a_reader_of_both_misses_frames() -> None:
    async def filled(frames: int, life: int) -> FrameLog:
        log = FrameLog(clock=now_s, interval_s=0.1, service="s", life=life)
        for _ in range(frames):
            await asyncio.sleep(0.1)
            log.add_report(report(sent_s=now_s()))
            log.close_frame(IN_FORCE)
        return log

    async def read_both() -> list[tuple[int, list[bytes]]]:
        before = await (await filled(20, life=0)).after(0, timeout_s=1.0)
        await asyncio.sleep(1.0)
        return [before, await (await filled(3, life=1)).after(before[0], timeout_s=1.0)]

    (read, first), (newest, second) = run_in_virtual_time(read_both())
    numbers = [event.number for event in map(DECODER.decode, first) if isinstance(event, TelemetryFrame)]
    missed, *frames = map(DECODER.decode, second)
    assert numbers == list(range(1, read + 1))
    assert isinstance(missed, FramesMissed)
    assert missed.first == read + 1
    assert [getattr(frame, "number", None) for frame in frames] == list(range(missed.last + 1, newest + 1))
    assert [getattr(frame, "service", None) for frame in frames] == 3 * ["s"]


def test_that_a_number_of_another_service_is_answered_with_all_there_is() -> None:
    _, events = events_after(999, made_in_virtual_time(3))
    assert [event.number for event in events if isinstance(event, TelemetryFrame)] == [1, 2, 3]


def test_that_a_frame_carries_the_latest_record_of_each_request_once() -> None:
    done = msgspec.structs.replace(request("a"), state="done")
    frame = frame_of(report(request("a")), report(done, sent_s=1.0))
    assert [(r.id, r.state) for r in frame.requests] == [("a", "done")]


def test_that_a_silent_replica_is_not_lost_until_it_is_known_to_have_ended() -> None:
    async def run() -> list[object]:
        log = FrameLog(clock=now_s)
        log.add_report(report())
        log.close_frame(IN_FORCE)
        await asyncio.sleep(SILENCE_S + 0.1)
        silent, has_news = log.silent_replicas(), log.has_news
        log.end("r1", has_left=False)
        log.close_frame(IN_FORCE)
        frame = DECODER.decode((await log.after(1, 1.0))[1][0])
        assert isinstance(frame, TelemetryFrame)
        return [silent, has_news, frame.lost_replicas, log.silent_replicas()]

    assert run_in_virtual_time(run()) == [("r1",), False, ("r1",), ()]


def test_that_a_replica_that_reports_again_is_silent_no_more() -> None:
    async def run() -> tuple[str, ...]:
        log = FrameLog(clock=now_s)
        log.add_report(report())
        await asyncio.sleep(SILENCE_S + 0.1)
        log.add_report(report(sent_s=now_s()))
        return log.silent_replicas()

    assert run_in_virtual_time(run()) == ()


def test_that_a_replica_that_is_expected_and_never_reports_is_silent() -> None:
    async def run() -> list[tuple[str, ...]]:
        log = FrameLog(clock=now_s)
        log.expect("r1")
        silent = [log.silent_replicas()]
        await asyncio.sleep(SILENCE_S + 0.1)
        return [*silent, log.silent_replicas()]

    assert run_in_virtual_time(run()) == [(), ("r1",)]


def test_that_a_report_that_a_later_one_overtook_is_left_out() -> None:
    earlier = report(request("a"), request("b"), sent_s=1.0)
    later = report(msgspec.structs.replace(request("a"), state="done"), sent_s=2.0)

    frame = frame_of(later, earlier)
    assert [(r.id, r.state) for r in frame.requests] == [("a", "done")]
    assert [each.at_s for each in frame.replicas] == [2.0]


def test_that_two_reports_of_one_moment_are_both_taken() -> None:
    one, other = report(request("a"), sent_s=1.0), report(request("b"), sent_s=1.0)
    assert [each.id for each in frame_of(one, other).requests] == ["a", "b"]


def test_that_a_report_that_comes_twice_is_taken_once() -> None:
    recorder = Recorder("r1")
    recorder.note_gap("a", 0.25, 1.0)
    once = recorder.report(status(at_s=2.0))
    assert [each.gaps.count for each in frame_of(once, once).gaps] == [1]


def test_that_a_later_report_of_one_replica_does_not_leave_out_that_of_another() -> None:
    other = msgspec.structs.replace(report(sent_s=1.0), status=status("r2", at_s=1.0))
    assert [each.replica for each in frame_of(report(sent_s=2.0), other).replicas] == ["r1", "r2"]


@pytest.mark.parametrize("has_left", [False, True])
def test_that_a_report_of_a_replica_that_has_gone_comes_too_late(*, has_left: bool) -> None:
    async def run() -> list[object]:
        log = FrameLog(clock=now_s)
        log.add_report(report())
        log.end("r1", has_left=has_left)
        log.close_frame(IN_FORCE)
        log.add_report(report(request("a"), sent_s=5.0))
        await asyncio.sleep(SILENCE_S + 0.1)
        return [log.has_news, log.silent_replicas()]

    assert run_in_virtual_time(run()) == [False, ()]


def test_that_a_replica_that_was_let_go_is_not_missed_and_a_frame_tells_of_it() -> None:
    async def run() -> tuple[tuple[str, ...], bytes]:
        log = FrameLog(clock=now_s)
        log.add_report(report())
        log.close_frame(IN_FORCE)
        log.end("r1", has_left=True)
        assert log.has_news
        log.close_frame(IN_FORCE, Deployment(at_s=1.0, wanted=Scale(replicas=2), running=1, is_settled=False))
        await asyncio.sleep(SILENCE_S + 0.1)
        return log.silent_replicas(), (await log.after(1, 1.0))[1][0]

    silent, event = run_in_virtual_time(run())
    frame = DECODER.decode(event)
    assert silent == ()
    assert isinstance(frame, TelemetryFrame)
    assert (frame.left_replicas, frame.lost_replicas, frame.gone_replicas) == (("r1",), (), ("r1",))
    assert frame.deployment == Deployment(at_s=1.0, wanted=Scale(replicas=2), running=1, is_settled=False)


def test_that_a_stream_ends_where_its_replica_leaves() -> None:
    answers = [(4, [b"{}"]), None]

    async def frames_after(_number: int | None) -> tuple[int, list[bytes]] | None:
        return answers.pop(0)

    async def read() -> list[bytes]:
        return [part async for part in telemetry_events(frames_after, 3)]

    assert run_in_virtual_time(read()) == [KEEP_ALIVE, b"id: 4\ndata: {}\n\n"]


def test_that_times_of_another_machine_are_moved_to_this_clock() -> None:
    async def close() -> bytes:
        log = FrameLog(clock=now_s)
        await asyncio.sleep(100.0)
        log.add_report(report(request("a", at_s=4.0), clock="elsewhere", sent_s=5.0))
        log.close_frame(IN_FORCE)
        return (await log.after(0, 1.0))[1][0]

    frame = DECODER.decode(run_in_virtual_time(close()))
    assert isinstance(frame, TelemetryFrame)
    assert frame.requests[0].received_s == pytest.approx(99.0)


def test_that_the_clock_offset_is_that_of_the_fastest_message() -> None:
    offset = ClockOffset("ours")
    translated = []
    for sent_s, received_s in [(1, 11.5), (2, 12.1), (3, 13.9)]:
        offset.note("theirs", sent_s, received_s)
        translated.append(offset.to_ours(sent_s))
    assert translated == pytest.approx([11.5, 12.1, 13.1], abs=0.001)  # older bounds loosen, as clocks drift
    offset.note("ours", 20.0, 20.3)
    assert offset.to_ours(20.0) == 20.0


class Recordable:
    def __init__(self, id: str) -> None:
        self.id = id
        self.state: RequestState = "waiting"

    def record(self, replica: str) -> RequestRecord:
        return msgspec.structs.replace(request(self.id), state=self.state)


def acknowledged(recorder: Recorder, at_s: float = 0.0) -> ReplicaReport:
    """The next report, which the hub gets."""
    report = recorder.report(status(at_s=at_s))
    recorder.acknowledge(report.number)
    return report


def ids(report: ReplicaReport) -> list[str]:
    """Of the batches and of the requests in it."""
    return [*(batch.id for batch in report.batches), *(request.id for request in report.requests)]


async def test_that_a_report_holds_each_changed_request_once_and_empties_the_recorder() -> None:
    recorder, one = Recorder("r1"), Recordable("one")
    recorder.note_request(one)
    recorder.note_request(one)
    assert [r.id for r in acknowledged(recorder).requests] == ["one"]
    assert not recorder.news.is_set()
    assert recorder.report(status()).requests == ()


async def test_that_a_recorder_nobody_asks_keeps_the_newest() -> None:
    recorder = Recorder("r1")
    for i in range(MAX_UNREPORTED + 5):
        recorder.note_request(Recordable(str(i)))
    requests = recorder.report(status()).requests
    assert len(requests) == MAX_UNREPORTED
    assert requests[-1].id == str(MAX_UNREPORTED + 4)


async def test_that_what_is_not_acknowledged_comes_again_as_it_is_by_then_until_it_is() -> None:
    recorder, one = Recorder("r1"), Recordable("one")
    recorder.note_request(one)
    recorder.note_batch(batch(1))
    recorder.note_batch(batch(2))
    recorder.note_gap("one", 0.02, 1.0)
    first = recorder.report(status(at_s=2.0))
    one.state = "running"
    recorder.note_request(Recordable("two"))
    recorder.note_batch(msgspec.structs.replace(batch(2), started_s=2.0))
    recorder.note_gap("one", 0.03, 2.1)

    second = acknowledged(recorder, at_s=3.0)
    assert ids(first) == ["r1-b1", "r1-b2", "one"]
    assert ids(second) == ["r1-b1", "r1-b2", "one", "two"]
    assert [each.started_s for each in second.batches] == [None, 2.0]
    assert [each.state for each in second.requests] == ["running", "waiting"]
    assert [each.at_s for each in second.gaps] == [1.0, 2.1]
    third = recorder.report(status(at_s=4.0))
    assert (ids(third), third.gaps) == ([], ())


async def test_that_an_acknowledgement_is_that_of_a_report_and_not_of_what_is_new_since() -> None:
    recorder = Recorder("r1")
    recorder.note_batch(batch(1))
    sent = recorder.report(status())
    recorder.note_batch(batch(2))
    recorder.acknowledge(sent.number)
    assert ids(recorder.report(status())) == ["r1-b2"]


async def test_that_a_late_acknowledgement_is_not_that_of_the_report_after() -> None:
    recorder = Recorder("r1")
    recorder.note_batch(batch(1))
    sent = recorder.report(status())
    recorder.note_batch(batch(2))
    recorder.report(status())  # which is lost
    recorder.acknowledge(sent.number)
    assert ids(recorder.report(status())) == ["r1-b1", "r1-b2"]


async def test_that_what_was_acknowledged_of_late_is_repeated_when_that_is_asked_for_and_what_is_older_is_not() -> None:
    recorder = Recorder("r1")
    for number, at_s in ((1, 0.0), (2, 1.0), (3, REPEATED_S + 0.5)):
        recorder.note_batch(batch(number))
        acknowledged(recorder, at_s)
    recorder.repeat()
    recorder.note_batch(batch(4))
    assert ids(acknowledged(recorder, at_s=REPEATED_S + 1.0)) == ["r1-b2", "r1-b3", "r1-b4"]
    assert ids(recorder.report(status(at_s=REPEATED_S + 2.0))) == [], "once"


async def test_that_what_is_repeated_is_not_acknowledged_with_a_report_that_was_under_way_before() -> None:
    recorder = Recorder("r1")
    recorder.note_batch(batch(1))
    acknowledged(recorder, at_s=1.0)
    under_way = recorder.report(status(at_s=2.0))
    recorder.repeat()
    recorder.acknowledge(under_way.number)
    assert ids(recorder.report(status(at_s=3.0))) == ["r1-b1"]


async def test_that_what_is_repeated_does_not_take_the_place_of_what_is_newer() -> None:
    recorder = Recorder("r1")
    recorder.note_batch(batch(1))
    acknowledged(recorder, at_s=1.0)
    recorder.note_batch(msgspec.structs.replace(batch(1), finished_s=2.0))
    recorder.report(status(at_s=2.0))  # which is never acknowledged
    recorder.repeat()
    assert [each.finished_s for each in recorder.report(status(at_s=3.0)).batches] == [2.0]


async def test_that_each_repetition_holds_a_gap_once() -> None:
    recorder = Recorder("r1")
    recorder.note_gap("a", 0.02, 1.0)
    acknowledged(recorder, at_s=2.0)
    counts = []
    for at_s in (3.0, 4.0):
        recorder.repeat()
        counts.append([each.gaps.count for each in acknowledged(recorder, at_s).gaps])
    assert counts == [[1], [1]]


async def test_that_a_report_says_whether_it_is_the_last() -> None:
    recorder = Recorder("r1")
    assert [recorder.report(status(), is_last=last).is_last for last in (False, True)] == [False, True]


async def test_that_what_a_hub_does_not_acknowledge_is_bounded_and_the_newest_is_kept() -> None:
    recorder = Recorder("r1")
    for i in range(MAX_UNREPORTED + 5):
        recorder.note_batch(batch(i))
        recorder.note_request(Recordable(str(i)))
        if i == MAX_UNREPORTED // 2:
            recorder.report(status())
    last = recorder.report(status())
    newest = MAX_UNREPORTED + 4
    assert (len(last.batches), len(last.requests)) == (MAX_UNREPORTED, MAX_UNREPORTED)
    assert (last.batches[-1].id, last.requests[-1].id) == (f"r1-b{newest}", str(newest))
