"""The store: what frames become, and that it stays bounded."""

from __future__ import annotations

import math

import msgspec
import pytest

from service.analysis.findings.changed import settings_changed
from service.analysis.findings.facts import Facts
from service.analysis.observed.columns import Columns
from service.analysis.observed.descriptions import describe_load_change
from service.analysis.observed.history import KEPT_S, History
from service.analysis.observed.requests import samples_between
from service.analysis.observed.rolling import STEP_S, Grid, step_of
from service.analysis.observed.statistics import figures, previous_figures
from service.analysis.predict.cost import Executed
from service.messages.load import (
    Burst,
    ClientRequest,
    ClientTotals,
    ClosedLoop,
    ConstantRate,
    GammaArrivals,
    LoadFrame,
    OnOff,
    Pattern,
    Poisson,
    Ramp,
    Steps,
    Trace,
)
from service.messages.settings import Scale, Settings, SettingsChange, VersionedSettings
from service.messages.telemetry import (
    BatchRecord,
    Deployment,
    FramesMissed,
    ReplicaStatus,
    RequestRecord,
    RequestState,
    TelemetryFrame,
)
from tests.synthetic_run import CLOCK, FakeClock, Step, SyntheticRun, early_run, filled_history, picture_run

V1 = VersionedSettings(version=1, settings=Settings(max_batch_size=4))


def frame(number: int, at_s: float, **contents: object) -> TelemetryFrame:
    return TelemetryFrame(**{"number": number, "at_s": at_s, "clock": CLOCK, "in_force": V1, **contents})  # type: ignore[arg-type]


def load(at_s: float, *requests: ClientRequest, pattern: Pattern | None = None) -> LoadFrame:
    return LoadFrame(at_s=at_s, clock=CLOCK, pattern=pattern, totals=ClientTotals(), requests=requests)


def request(name: str, state: RequestState = "waiting", **times: object) -> RequestRecord:
    fields = {"id": name, "replica": "r1", "state": state, "prompt_tokens": 3, "max_tokens": 8, "received_s": 10.0}
    return RequestRecord(**{**fields, **times})  # type: ignore[arg-type]


def batch(number: int, formed_s: float, version: int = 1, **fields: object) -> BatchRecord:
    given = {
        "id": f"r1-{number}",
        "number": number,
        "replica": "r1",
        "settings_version": version,
        "formation": "late",
        "size": 1,
        "cap": 4,
        "release_reason": "timeout",
        "formed_s": formed_s,
    }
    return BatchRecord(**{**given, **fields})  # type: ignore[arg-type]


def status(replica: str, at_s: float) -> ReplicaStatus:
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


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(20.0)


@pytest.fixture
def history(clock: FakeClock) -> History:
    return History(CLOCK, clock, wall_clock=lambda: 1_000_000.0 + clock.now_s)


def sent(name: str, **fields: object) -> ClientRequest:
    given = {"id": name, "source": "fire", "prompt": "Once", "max_tokens": 8, "intended_s": 9.5}
    return ClientRequest(**{**given, **fields})  # type: ignore[arg-type]


def test_that_the_service_s_record_and_the_sender_s_become_one_row(history: History) -> None:
    history.add_load(load(10.0, sent("c1", sent_s=9.6)))
    history.add_telemetry(frame(1, 10.1, requests=(request("q1", client_id="c1"),)))
    (row,) = history.requests.rows()
    assert (row.id, row.client_id, row.source, row.prompt, row.state) == ("q1", "c1", "fire", "Once", "waiting")
    assert (row.intended_s, row.received_s, row.started_at_s) == (9.5, 10.0, 9.5)


def test_that_the_order_in_which_the_two_records_come_does_not_matter(history: History) -> None:
    history.add_telemetry(frame(1, 10.1, requests=(request("q1", client_id="c1"),)))
    history.add_load(load(10.2, sent("c1")))
    assert [(row.id, row.prompt) for row in history.requests.rows()] == [("q1", "Once")]


def test_that_a_later_record_replaces_the_earlier_one_and_texts_add_up(history: History) -> None:
    history.add_load(load(10.0, sent("c1", new_text="there ")))
    history.add_load(load(10.5, sent("c1", new_text="was", tokens=2, finished_s=10.4, outcome="ok")))
    (row,) = history.requests.rows()
    assert (row.text, row.tokens, row.state) == ("there was", 2, "done")
    assert row.latency_s == pytest.approx(0.9)


def test_that_latency_counts_from_the_intended_send_time_or_else_from_receipt(history: History) -> None:
    done = {"started_s": 11.0, "formed_s": 11.0, "finished_s": 12.0}
    history.add_load(load(12.1, sent("c1", finished_s=12.05, outcome="ok")))
    known = request("q1", "done", client_id="c1", **done)
    stranger = request("q2", "done", client_id="curl-7", **done)
    history.add_telemetry(frame(1, 12.1, requests=(known, stranger)))
    assert sorted(history.requests.samples["latency"].tolist()) == pytest.approx([2.0, 2.55])
    assert [row.source for row in history.requests.rows()] == ["fire", "other"]


def test_that_times_of_tokens_count_as_latency_does_and_are_blank_where_unknown(history: History) -> None:
    sent = {"source": "fire", "prompt": "Once", "max_tokens": 8, "intended_s": 10.0, "sent_s": 10.1}
    ends = {"first_token_s": 10.5, "finished_s": 12.0, "outcome": "ok"}
    history.add_load(load(12.0, ClientRequest(id="a", tokens=4, **sent, **ends)))  # type: ignore[arg-type]
    history.add_load(load(12.0, ClientRequest(id="b", tokens=1, **sent, **ends)))  # type: ignore[arg-type]
    own = {"first_token_s": 10.25, "finished_s": 11.25, "completion_tokens": 5}
    history.add_telemetry(frame(1, 12.0, requests=(request("c", "done", **own), request("d", "done", finished_s=13.0))))
    samples = history.requests.samples
    assert samples["ttft"].tolist() == pytest.approx([0.5, 0.5, 0.25, math.inf])
    assert samples["tpot"].tolist() == pytest.approx([0.5, math.inf, 0.25, math.inf])
    assert len(samples_between(samples, 0.0, 20.0, "tpot")[1]) == 2


def test_that_changed_rows_are_handed_out_once(history: History) -> None:
    history.add_telemetry(frame(1, 10.1, requests=(request("q1"), request("q2"))))
    assert [row.id for row in history.requests.take_changed()] == ["q1", "q2"]
    history.add_telemetry(frame(2, 10.2, requests=(request("q2", "running", formed_s=10.1, started_s=10.1),)))
    assert [(row.id, row.state) for row in history.requests.take_changed()] == [("q2", "running")]
    assert history.requests.take_changed() == []


@pytest.mark.parametrize(
    ("reason", "detail"), [("", "in force after 3 ms"), ("Hold: rate 4.0 → 9.0", "Hold: rate 4.0 → 9.0")]
)
def test_that_a_change_is_marked_at_the_first_batch_that_obeyed_it(history: History, reason: str, detail: str) -> None:
    new = Settings(max_batch_size=16)
    change = SettingsChange(
        version=2, previous=V1.settings, settings=new, requested_s=11.0, in_force_s=11.003, reason=reason
    )
    history.add_telemetry(frame(1, 10.5, batches=(batch(1, 10.2),)))
    history.add_telemetry(frame(2, 11.1, changes=(change,), in_force=VersionedSettings(version=2, settings=new)))
    assert history.batches.marks() == []
    history.add_telemetry(frame(3, 11.6, batches=(batch(2, 11.3, version=2), batch(3, 11.5, version=2))))
    (mark,) = history.batches.marks()
    assert (mark.at_s, mark.version) == (11.3, 2)
    assert (mark.text, mark.detail) == ("max_batch_size 4 → 16", detail)


def test_that_versions_no_batch_obeyed_are_told_with_the_next_that_one_did(history: History) -> None:
    values = (Settings(max_batch_size=4), Settings(max_batch_size=8), Settings(max_batch_size=16))
    changes = tuple(
        SettingsChange(version=n + 2, previous=values[n], settings=values[n + 1], requested_s=11.0, in_force_s=11.0)
        for n in (0, 1)
    )
    history.add_telemetry(frame(1, 10.5, batches=(batch(1, 10.2),)))
    history.add_telemetry(frame(2, 11.5, changes=changes, batches=(batch(2, 11.2, version=3),)))
    assert [(mark.version, mark.text) for mark in history.batches.marks()] == [(3, "max_batch_size 4 → 16")]


def test_that_another_replica_s_earlier_batch_moves_the_mark_back(history: History) -> None:
    history.add_telemetry(frame(1, 10.5, batches=(batch(1, 10.2),)))
    history.add_telemetry(frame(2, 11.5, batches=(batch(2, 11.3, version=2),)))
    other = batch(1, 11.1, version=2, id="r2-1", replica="r2")
    history.add_telemetry(frame(3, 11.6, batches=(other,)))
    assert [mark.at_s for mark in history.batches.marks()] == [11.1]


def test_that_a_new_service_s_ids_are_not_those_of_the_one_before(history: History) -> None:
    done = {"formed_s": 10.0, "started_s": 10.0, "finished_s": 11.0, "state": "done"}
    history.add_telemetry(frame(9, 11.0, requests=(request("q1", **done),), batches=(batch(1, 10.0),)))
    history.mark_failure(12.0)
    history.service_started()
    history.add_telemetry(frame(1, 22.0, requests=(request("q1", received_s=21.0),), batches=(batch(1, 21.5),)))
    assert [row.state for row in history.requests.rows()] == ["done", "waiting"]
    assert len(history.batches.columns) == 2
    assert history.batches.marks() == []


def test_that_a_frame_that_comes_twice_counts_once_and_one_of_a_new_service_is_seen(history: History) -> None:
    first = frame(5, 11.0, requests=(request("q1"),))
    history.add_telemetry(first)
    history.add_telemetry(first)
    assert len(history.requests.rows()) == 1
    history.add_telemetry(frame(1, 12.0, requests=(request("q1", received_s=11.5),)))
    assert [row.state for row in history.requests.rows()] == ["failed", "waiting"]


def test_that_a_failure_ends_what_was_under_way_until_a_service_starts(history: History, clock: FakeClock) -> None:
    history.add_telemetry(frame(1, 11.0, requests=(request("q1"),)))
    history.mark_failure(12.0)
    assert history.depth_at(11.5) == (1, 0, 0)
    assert history.depth_at(12.5) == (0, 0, 0)
    assert history.outages.failed_since_s == 12.0
    assert [(row.state, row.error) for row in history.requests.rows()] == [("failed", "The service stopped.")]
    clock.now_s = 15.0
    history.service_started()
    assert history.outages.failed_since_s is None
    assert [(outage.start_s, outage.end_s) for outage in history.outages] == [(12.0, 15.0)]


def test_that_a_stop_ends_what_was_under_way_then_and_not_when_the_next_service_starts(
    history: History, clock: FakeClock
) -> None:
    history.add_telemetry(frame(1, 11.0, requests=(request("q1"),), batches=(batch(1, 11.0, started_s=11.0),)))
    clock.now_s = 12.0
    history.mark_stop()
    clock.now_s = 20.0
    history.service_started()
    assert history.batches.columns["finished"].tolist() == [12.0]
    assert list(history.outages) == []
    assert (history.depth_at(11.5), history.depth_at(12.5)) == ((1, 0, 0), (0, 0, 0))


def test_that_a_request_answered_before_a_stop_has_not_failed_by_it(history: History, clock: FakeClock) -> None:
    history.add_telemetry(frame(1, 11.0, requests=(request("q1", client_id="c1"),)))
    history.add_load(load(11.5, sent("c1", sent_s=10.0, finished_s=11.4, outcome="ok")))
    clock.now_s = 12.0
    history.mark_stop()
    (row,) = history.requests.rows()
    assert (row.state, row.error) == ("done", None)


def test_that_what_batches_cost_is_not_told_by_those_of_an_earlier_service(history: History, clock: FakeClock) -> None:
    def ran(number: int, start_s: float) -> BatchRecord:
        return batch(number, start_s, started_s=start_s, finished_s=start_s + 0.2, tokens=1)

    history.add_telemetry(frame(1, 11.0, batches=tuple(ran(n, 10.0 + n / 10) for n in range(4))))
    clock.now_s = 12.0
    assert len(Executed.of_history(history)) == 4
    history.mark_stop()
    history.service_started()
    history.add_telemetry(frame(1, 14.0, batches=(ran(1, 13.5),)))
    clock.now_s = 14.0
    assert len(Executed.of_history(history)) == 1
    assert len(Executed.of_history(history, 11.5)) == 4, "which then was the present one"


def test_that_the_unit_of_what_is_computed_is_the_services(history: History) -> None:
    assert history.unit == "tokens"
    houses = msgspec.structs.replace(status("r1", 11.0), unit="houses")
    history.add_telemetry(frame(1, 11.0, replicas=(houses,)))
    assert history.unit == "houses"
    history.mark_failure(12.0)
    assert history.unit == "houses", "what is shown is still of that service"


def test_that_a_lost_replica_s_requests_end_and_the_gap_closes_with_its_successor(history: History) -> None:
    history.add_telemetry(frame(1, 11.0, requests=(request("q1"),), replicas=(status("r1", 11.0),)))
    history.add_telemetry(frame(2, 12.0, lost_replicas=("r1",)))
    assert [(row.state, row.error) for row in history.requests.rows()] == [("failed", "The replica stopped.")]
    assert [(outage.text, outage.end_s) for outage in history.outages] == [("r1 lost", None)]
    history.add_telemetry(frame(3, 14.0, replicas=(status("r2", 13.5),)))
    assert [outage.end_s for outage in history.outages] == [13.5]
    assert history.slots.slot_of("r2") == 0


def test_that_a_lost_replica_is_not_taken_to_have_run_after_it_was_heard_last(history: History) -> None:
    running = request("q1", "running", started_s=10.5)
    ran = batch(1, 10.5, started_s=10.5)
    history.add_telemetry(frame(1, 11.0, requests=(running,), batches=(ran,), replicas=(status("r1", 11.0),)))
    history.add_telemetry(frame(2, 17.0, lost_replicas=("r1",)))
    assert (history.depth_at(10.9), history.depth_at(11.1)) == ((0, 0, 1), (0, 0, 0))
    assert history.batches.columns["finished"].tolist() == [11.0]
    assert [outage.start_s for outage in history.outages] == [11.0]


def test_that_a_late_replica_is_silent_until_it_reports_again_and_its_requests_run_on(
    history: History, clock: FakeClock
) -> None:
    running = request("q1", "running", started_s=10.5)
    both = (status("r1", 11.0), status("r2", 11.0))
    history.add_telemetry(frame(1, 11.0, requests=(running,), replicas=both))
    history.add_telemetry(frame(2, 18.0, replicas=(status("r2", 18.0),)))
    clock.now_s = 18.2
    assert [(s.start_s, s.end_s, s.text, s.hides) for s in history.silences_until(18.2)][-1] == (
        11.0,
        None,
        "r1 silent for 7 s",
        False,
    )
    assert [status.replica for status in history.late_replicas(18.2)] == ["r1"]
    assert history.heard_until_s(18.2) == 18.2, "the other is heard"
    assert [row.state for row in history.requests.rows()] == ["running"]
    history.add_telemetry(frame(3, 19.0, replicas=(status("r1", 19.0),)))
    assert [(s.start_s, s.end_s, s.text) for s in history.silences_until(19.1)][-1:] == [
        (11.0, 19.0, "r1 silent for 8 s")
    ]
    assert history.late_replicas(19.1) == ()
    assert list(history.outages) == []


def test_that_where_nothing_is_heard_nothing_is_known_since(history: History) -> None:
    history.add_telemetry(frame(1, 11.0, replicas=(status("r1", 11.0),)))
    assert (history.heard_until_s(12.9), history.silences_until(12.9)) == (12.9, ())
    (silence,) = history.silences_until(15.0)
    assert (silence.start_s, silence.end_s, silence.text, silence.hides) == (11.0, None, "nothing heard for 4 s", True)
    assert history.heard_until_s(15.0) == 11.0
    history.mark_stop()
    assert history.silences_until(30.0) == (), "nothing is to be heard from a service that ended"


def test_that_missed_frames_are_no_silence_of_a_replica(history: History) -> None:
    history.add_telemetry(frame(1, 11.0, replicas=(status("r1", 11.0), status("r2", 11.0))))
    history.add_missed(FramesMissed(first=2, last=60))
    history.add_telemetry(frame(61, 21.0, replicas=(status("r1", 21.0),)))
    assert history.silences_until(21.1)[:-1] == ()
    history.add_telemetry(frame(62, 24.5, replicas=(status("r1", 24.5),)))
    assert [status.replica for status in history.replicas] == ["r1"], "the other's end may have been missed"


def test_that_a_report_that_waited_for_a_new_hub_is_no_silence_of_its_replica(history: History) -> None:
    history.add_telemetry(frame(1, 11.0, replicas=(status("r1", 11.0),)))
    history.add_missed(FramesMissed(first=2, last=10**9))
    history.add_telemetry(frame(10**9 + 1, 15.0, replicas=(status("r1", 11.3),)))
    history.add_telemetry(frame(10**9 + 2, 15.2, replicas=(status("r1", 15.1),)))
    assert [silence.text for silence in history.silences_until(15.3)] == []
    history.add_telemetry(frame(10**9 + 3, 22.2, replicas=(status("r1", 22.1),)))
    assert [silence.text for silence in history.silences_until(22.3)] == ["r1 silent for 7 s"]


def test_that_every_replica_counts_whatever_a_frame_tells_of(history: History) -> None:
    history.add_telemetry(frame(1, 11.0, replicas=(status("r1", 11.0), status("r2", 11.0))))
    history.add_telemetry(frame(2, 11.2, replicas=(status("r2", 11.2),)))
    assert [(status.replica, status.at_s) for status in history.replicas] == [("r1", 11.0), ("r2", 11.2)]


def test_that_a_replica_that_left_as_it_should_makes_room_and_no_gap(history: History) -> None:
    both = (status("r1", 11.0), status("r2", 11.0))
    done = msgspec.structs.replace(request("q1"), state="done", finished_s=11.9)
    history.add_telemetry(frame(1, 11.0, requests=(request("q1"),), replicas=both))
    history.add_telemetry(frame(2, 12.0, requests=(done,), replicas=both, left_replicas=("r1",)))
    assert [(row.state, row.error) for row in history.requests.rows()] == [("done", None)]
    assert [replica.replica for replica in history.replicas] == ["r2"]
    assert list(history.outages) == []
    history.add_telemetry(frame(3, 14.0, replicas=(status("r3", 13.5),)))
    assert (history.slots.slot_of("r3"), history.slots.slot_of("r2")) == (0, 1)


def test_that_a_redeployment_is_marked_and_another_service_is_none(history: History) -> None:
    def deployed(number: int, at_s: float, **scale: int) -> TelemetryFrame:
        told = Deployment(at_s=at_s, wanted=Scale(**scale), running=1, is_settled=True)
        return frame(number, at_s, deployment=told)

    history.add_telemetry(deployed(1, 11.0))
    history.add_telemetry(deployed(2, 12.0, replicas=2))
    history.add_telemetry(deployed(3, 13.0, replicas=2, max_ongoing_requests=5))
    history.service_started()
    history.add_telemetry(deployed(1, 15.0))
    assert [(mark.at_s, mark.text) for mark in history.outer_marks()] == [
        (12.0, "replicas 1 → 2"),
        (13.0, "max_ongoing_requests 100000 → 5"),
    ]


def test_that_how_many_replicas_there_were_and_what_they_might_hold_is_known_afterwards(history: History) -> None:
    def said(replica: str, at_s: float, limit: int | None) -> ReplicaStatus:
        return msgspec.structs.replace(status(replica, at_s), max_ongoing_requests=limit)

    for number, at_s in enumerate((11.0, 12.0, 13.0), start=1):
        history.add_telemetry(frame(number, at_s, replicas=(said("r1", at_s, 100), said("r2", at_s, 100))))
    history.add_telemetry(frame(4, 14.0, left_replicas=("r2",)))
    for number, at_s in enumerate((16.0, 17.0), start=5):
        history.add_telemetry(frame(number, at_s, replicas=(said("r1", at_s, 5),)))
    assert history.statuses.scale_at(13.5) == Scale(replicas=2, max_ongoing_requests=100)
    assert history.statuses.scale_at(17.0) == Scale(replicas=1, max_ongoing_requests=5)
    assert history.statuses.scale_at(5.0) is None


def test_that_missed_frames_leave_a_gap_and_nothing_that_waits_for_ever(history: History) -> None:
    history.add_telemetry(frame(1, 11.0, requests=(request("q1"), request("q2"))))
    history.add_missed(FramesMissed(first=2, last=20))
    assert [(outage.text, outage.end_s) for outage in history.outages] == [("gap", None)]
    history.add_telemetry(frame(21, 12.0, requests=(request("q2"),)))
    assert [outage.end_s for outage in history.outages] == [12.0]
    history.add_telemetry(frame(22, 15.0))
    assert [row.state for row in history.requests.rows()] == ["failed", "waiting"]


def test_that_changes_of_load_are_marked_and_a_dragged_slider_makes_one_mark(history: History) -> None:
    for at_s, pattern in (
        (10.0, Poisson(rate_per_s=2.6)),
        (20.0, Poisson(rate_per_s=3)),
        (20.4, Poisson(rate_per_s=6.4)),
    ):
        history.add_load(load(at_s, pattern=pattern))
    assert [(mark.at_s, mark.text) for mark in history.load_timeline.marks] == [
        (10.0, "load 2.6 req/s"),
        (20.0, "load 2.6 → 6.4 req/s"),
    ]
    assert history.load_timeline.offered == [(10.0, 2.6), (20.0, 3), (20.4, 6.4)]


@pytest.mark.parametrize(
    ("previous", "pattern", "text"),
    [
        (None, ClosedLoop(users=16), "load 16 users"),
        (ClosedLoop(users=16), ClosedLoop(users=32), "load 16 → 32 users"),
        (Poisson(rate_per_s=4), ClosedLoop(users=32), "load 4.0 req/s → 32 users"),
        (None, Burst(count=64), "load burst of 64"),
        (Poisson(rate_per_s=4), None, "load stopped"),
        (None, ConstantRate(rate_per_s=4), "load 4.0 req/s, constant"),
        (None, GammaArrivals(rate_per_s=4, shape=0.5), "load 4.0 req/s, shape 0.5"),
        (None, OnOff(rate_per_s=4, on_s=5, off_s=2.5), "load 4.0 req/s, 5 s on, 2.5 s off"),
        (None, Ramp(rate_per_s=1, rate_to_per_s=120, over_s=60), "load 1.0 to 120 req/s within 60 s"),
        (None, Steps(rates_per_s=(2, 4, 8), step_s=10), "load 2.0, 4.0, 8.0 req/s, 10 s each"),
        (None, Trace(path="/somewhere/day.jsonl"), "load trace day.jsonl"),
        (None, ClosedLoop(users=4, think_s=2), "load 4 users, thinking 2 s"),
    ],
)
def test_that_a_change_of_load_is_described(previous: Pattern | None, pattern: Pattern | None, text: str) -> None:
    assert describe_load_change(previous, pattern) == text


def test_that_the_sender_s_times_are_brought_to_a_far_service_s_clock(clock: FakeClock) -> None:
    history = History("here", clock)
    clock.now_s = 20.0
    history.add_telemetry(TelemetryFrame(number=1, at_s=520.0, clock="there", in_force=V1))
    assert history.now_s() == 520.0
    asked = sent("c1", intended_s=19.0, finished_s=19.5, outcome="ok")
    history.add_load(LoadFrame(at_s=20.0, clock="here", pattern=None, totals=ClientTotals(), requests=(asked,)))
    (row,) = history.requests.rows()
    assert (row.intended_s, row.finished_s, row.latency_s) == (519.0, 519.5, 0.5)


def test_that_ten_minutes_are_kept_and_no_more(history: History) -> None:
    for number in range(1, 1001):
        at_s = number * 2.0
        done = request(
            f"q{number}", "done", received_s=at_s - 1, formed_s=at_s - 0.9, started_s=at_s - 0.9, finished_s=at_s
        )
        history.add_telemetry(frame(number, at_s, requests=(done,), batches=(batch(number, at_s - 0.9),)))
    oldest = min(row.started_at_s for row in history.requests.rows())
    assert 2000 - history.span_s <= oldest <= 2000 - KEPT_S
    assert len(history.batches.columns) < history.span_s
    known = [number for number in range(1, 1001) if any(history.requests.row_of(n, f"q{number}") >= 0 for n in (0, 1))]
    assert len(known) == len(history.requests.rows())
    assert len(history.requests.samples) <= len(history.requests.rows()) + 1


def test_that_columns_keep_their_rows_while_they_move_in_memory() -> None:
    table = Columns(floats=("value",), integers=(), max_rows=5000)
    for number in range(20_000):
        table.append({"value": number})
        table.drop_before(number - 700)
    assert table["value"].tolist() == list(range(19_299, 20_000))
    assert table.get(19_500, "value") == 19_500
    with pytest.raises(IndexError):
        table.get(19_000, "value")


@pytest.mark.parametrize("rows", [180_000, pytest.param(10_000_000, marks=pytest.mark.long)])
@pytest.mark.promise("T22")
def test_that_columns_take_no_more_memory_however_many_rows_go_through_them(rows: int) -> None:
    """Of an hour at 50 requests/s, of which eleven minutes are kept; a page of memory counts once it is written to."""
    table = Columns(floats=(), integers=("size",), max_rows=120_000)
    kept, places = 33_000, 0
    for row in range(rows):
        table.append({"size": row})
        table.drop_before(row + 1 - kept)
        places = max(places, len(table["size"].base))
    assert table["size"].tolist() == list(range(rows - kept, rows))
    assert places < 2 * kept


def test_that_a_grid_spreads_amounts_and_forgets_what_is_old() -> None:
    grid = Grid(span_s=10.0, blank=0.0)
    grid.add_over(1.1, 2.1, 40.0)
    assert grid.read(0, 20).sum() == pytest.approx(40.0)
    assert grid.read(step_of(1.5), step_of(1.5))[0] == pytest.approx(40.0 * STEP_S)
    grid.add_over(100.0, 100.1, 3.0)
    assert grid.read(step_of(1.1), step_of(2.1)).sum() == 0.0


@pytest.mark.parametrize("run", [picture_run(), early_run(), SyntheticRun(20.0, outside_share=0.5)])
def test_that_a_whole_run_is_joined_without_loss(run: SyntheticRun) -> None:
    history, _ = filled_history(run)
    rows = history.requests.rows()
    assert len(rows) == len(run.requests)
    assert {row.source for row in rows if row.client_id is None} <= {"other"}
    waiting, formed, running = history.depth_at(history.now_s())
    assert waiting + formed + running == sum(row.state in ("waiting", "formed", "running") for row in rows)
    ended = [row for row in rows if row.state == "done"]
    assert len(history.requests.samples) == len(ended)


def test_that_a_synthetic_run_is_the_same_for_the_same_seed() -> None:
    steps = (Step(0.0, 8.0, Settings()),)
    first, second = (list(SyntheticRun(3.0, steps, seed=5).frames()) for _ in range(2))
    assert first == second


# A drag of a slider ---------------------------------------------------------------------------------------------------


def dragged(*caps: int, every_s: float = 0.8) -> SyntheticRun:
    """From a cap of 2 through these, each of which some batch obeys."""
    moves = (Step(10.0 + n * every_s, settings=Settings(max_batch_size=cap)) for n, cap in enumerate(caps))
    return SyntheticRun(20.0, (Step(0.0, 8.0, Settings(max_batch_size=2)), *moves), tokens=4)


def test_that_a_drag_of_a_slider_is_one_flag_at_its_last_version() -> None:
    history, _ = filled_history(dragged(3, 5, 8))
    assert len(history.batches.regimes) == 4, "batches obeyed each version"
    [mark] = history.batches.marks()
    assert (mark.version, mark.text) == (4, "max_batch_size 2 → 8")
    assert mark.at_s == history.batches.regimes[-1].start_s


def test_that_changes_that_come_apart_are_flags_of_their_own() -> None:
    history, _ = filled_history(dragged(3, 8, every_s=3.0))
    assert [mark.text for mark in history.batches.marks()] == ["max_batch_size 2 → 3", "max_batch_size 3 → 8"]


def test_that_before_a_drag_means_before_its_begin() -> None:
    history, _ = filled_history(dragged(3, 5, 8))
    before = previous_figures(history)
    assert before is not None
    assert before[0] == 1
    alone, _ = filled_history(dragged(), until_s=10.5)
    assert before[1].mean_batch == pytest.approx(figures(alone).mean_batch, rel=0.1)


def test_that_a_drag_is_taken_back_as_a_whole() -> None:
    history, _ = filled_history(dragged(3, 5, 8))
    facts = Facts.at(history, history.now_s())
    assert facts is not None
    change = settings_changed(facts)
    assert change is not None
    assert change.change == {"max_batch_size": 2}
    assert change.action == "Undo v4"
