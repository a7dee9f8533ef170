"""What is told of one request: its stages, its batch-mates, and what made it wait."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from gui.series.timeline import Lanes, bar_of, request_at
from gui.series.waits import request_details, wait_sentence
from service.analysis.observed.history import History
from service.analysis.observed.one_batch import members_of
from service.messages.settings import ReleaseReason, Settings, VersionedSettings
from service.messages.telemetry import BatchRecord, RequestRecord, TelemetryFrame
from tests.synthetic_run import FakeClock, early_run, filled_history, picture_run

NOW_S = 20.0


@dataclass(frozen=True)
class Batch:
    formed_s: float
    started_s: float | None
    finished_s: float | None
    reason: ReleaseReason = "timeout"


def told(
    batches: tuple[Batch, ...],
    received_s: float,
    last: Batch | None,
    settings: Settings = Settings(),  # noqa: B008  frozen
) -> History:
    """A request that ends up in batch `last`, or still waits, among these batches of other requests."""
    history = History("clock", clock=FakeClock(NOW_S))
    every = (*batches, last) if last is not None else batches
    records = tuple(
        BatchRecord(
            id=f"r1-{number}",
            number=number,
            replica="r1",
            settings_version=1,
            formation=settings.formation,
            size=4,
            cap=settings.max_batch_size,
            release_reason=batch.reason,
            formed_s=batch.formed_s,
            started_s=batch.started_s,
            finished_s=batch.finished_s,
        )
        for number, batch in enumerate(every, start=1)
    )
    request = RequestRecord(
        id="q1",
        replica="r1",
        state="waiting" if last is None else "done",
        prompt_tokens=4,
        max_tokens=8,
        batch=None if last is None else f"r1-{len(every)}",
        received_s=received_s,
        enqueued_s=received_s,
        formed_s=last and last.formed_s,
        started_s=last and last.started_s,
        finished_s=last and last.finished_s,
    )
    in_force = VersionedSettings(version=1, settings=settings)
    history.add_telemetry(
        TelemetryFrame(number=1, at_s=NOW_S, clock="clock", in_force=in_force, batches=records, requests=(request,))
    )
    return history


EARLY = Settings(formation="early")


@pytest.mark.parametrize(
    ("history", "sentence"),
    [
        (
            told((Batch(1.0, 1.0, 5.42),), 5.0, Batch(5.47, 5.47, 9.0)),
            "Waited 0.42 s for batch r1-1 of 4 to end, then 0.05 s of batch_wait_timeout_s.",
        ),
        (
            told((Batch(1.0, 1.0, 3.0), Batch(3.0, 3.0, 5.0)), 2.0, Batch(5.0, 5.0, 9.0)),
            "Waited 3.00 s for 2 batches to end.",
        ),
        (told((), 5.0, Batch(5.2, 5.2, 9.0, "full")), "Waited 0.20 s until its batch was full."),
        (told((), 5.0, Batch(5.0, 5.0, 9.0, "drained")), "Did not wait: the engine was free."),
        (
            told((Batch(1.0, 1.0, 5.0), Batch(2.0, 5.0, 8.0)), 3.0, Batch(3.05, 8.0, 9.0), EARLY),
            "Waited 0.05 s of batch_wait_timeout_s, then sealed 4.95 s behind 2 batches.",
        ),
        (
            told((), 5.0, Batch(5.5, 5.5, 9.0), Settings(stride_s=0.5)),
            "Waited 0.50 s of batch_wait_timeout_s and for the next tick of stride_s.",
        ),
        (
            told((), 5.0, Batch(5.05, 5.5, 9.0), EARLY.revised({"stride_s": 0.5})),
            "Waited 0.05 s of batch_wait_timeout_s, then sealed 0.45 s until the next tick of stride_s.",
        ),
        (
            told((), 5.0, Batch(15.0, 15.0, 19.0), Settings(allow_small_batch=False)),
            "Waited 10.00 s for its batch to fill.",
        ),
        (
            told((Batch(1.0, 1.0, 5.3), Batch(2.0, 2.0, 5.4)), 5.0, Batch(5.4, 5.4, 9.0)),
            "Waited 0.40 s for 2 batches to end.",
        ),
        (told((Batch(1.0, 1.0, None),), 19.5, None), "Has waited 0.50 s for batch r1-1 of 4 to end."),
        (told((), 20.0, None), "Waits until its batch is formed."),
    ],
)
def test_that_a_sentence_names_what_made_a_request_wait(history: History, sentence: str) -> None:
    assert wait_sentence(history, 0) == sentence


def test_that_the_pace_of_an_answer_is_told_and_is_that_of_the_samples() -> None:
    history, _ = filled_history(picture_run())
    row = next(each for each in history.requests.rows() if each.tpot_s is not None)
    assert row.ttft_s is not None
    assert row.tpot_s is not None
    found = request_details(history, row.key)
    assert found is not None
    assert found.paced == f"First token after {row.ttft_s:.2f} s, then {row.tpot_s * 1000:.1f} ms per token."
    sample = int(history.requests.columns.get(row.key, "sample"))
    assert history.requests.samples.get(sample, "ttft") == pytest.approx(row.ttft_s)
    assert history.requests.samples.get(sample, "tpot") == pytest.approx(row.tpot_s)


def test_that_a_function_has_no_pace() -> None:
    history, _ = filled_history(picture_run())
    row = next(each for each in history.requests.rows() if each.tpot_s is not None)
    history.unit = "sums"
    found = request_details(history, row.key)
    assert found is not None
    assert found.paced == ""


def test_that_batches_of_another_replica_are_not_to_blame() -> None:
    history = told((Batch(1.0, 1.0, 5.42),), 5.0, Batch(5.47, 5.47, 9.0))
    history.batches.columns["slot"][0] = 1
    assert wait_sentence(history, 0) == "Waited 0.47 s of batch_wait_timeout_s."


def test_that_a_member_that_held_the_batch_ahead_is_named() -> None:
    history = told((Batch(1.0, 1.0, 5.42),), 5.0, Batch(5.42, 5.42, 9.0))
    mates = tuple(
        RequestRecord(
            id=f"m{number}",
            replica="r1",
            state="done",
            prompt_tokens=4,
            max_tokens=96,
            completion_tokens=tokens,
            batch="r1-1",
            received_s=0.5,
            finished_s=5.42,
        )
        for number, tokens in enumerate((12, 10, 96, 11))
    )
    in_force = VersionedSettings(version=1, settings=Settings())
    history.add_telemetry(TelemetryFrame(number=2, at_s=NOW_S + 0.05, clock="clock", in_force=in_force, requests=mates))
    assert wait_sentence(history, 0) == "Waited 0.42 s for batch r1-1 of 4 to end, held by a member with 96 tokens."


def test_that_a_late_load_generator_is_named() -> None:
    history = told((), 5.0, Batch(5.0, 5.0, 9.0))
    history.requests.columns.set(0, "intended", 4.5)
    history.requests.columns.set(0, "sent", 4.8)
    assert wait_sentence(history, 0).startswith("The load generator sent it 0.30 s late. ")


def test_that_a_refused_request_never_stood_in_the_queue() -> None:
    history = told((), 5.0, None)
    history.requests.columns.set(0, "queued", float("inf"))
    assert "refused" in wait_sentence(history, 0)


@pytest.fixture(scope="module")
def history() -> History:
    return filled_history(early_run())[0]


def test_that_the_stages_of_every_request_add_up_to_its_latency(history: History) -> None:
    for number in history.requests.columns.numbers():
        details = request_details(history, number)
        assert details is not None
        latency_s = details.request.latency_s
        if latency_s is not None:
            assert details.latency_s == pytest.approx(latency_s, rel=0.01)


def test_that_batch_mates_are_all_other_members_of_its_batch(history: History) -> None:
    batch = history.batches.columns["size"].argmax() + history.batches.columns.first
    rows = members_of(history, int(batch))
    details = request_details(history, rows[1])
    assert details is not None
    assert details.batch is not None
    assert [mate.key for mate in details.mates] == [rows[0], *rows[2:]]
    assert len(rows) == details.batch.size


def test_that_nothing_is_told_of_a_request_that_is_no_longer_kept(history: History) -> None:
    assert request_details(history, 10_000) is None
    assert members_of(history, -1) == []


def test_that_a_request_is_found_where_its_bar_stands(history: History) -> None:
    lanes = Lanes.dealt(history, 400)
    for row in history.requests.columns.numbers():
        bar = bar_of(history, row, lanes)
        assert bar is not None
        at_s = (bar.start_s + min(bar.end_s, history.now_s())) / 2
        assert request_at(history, at_s, bar.lanes[0], lanes) == row


def test_that_where_there_is_no_bar_there_is_no_request(history: History) -> None:
    lanes = Lanes.dealt(history, 400)
    assert request_at(history, history.now_s() + 100, 399, lanes) is None
