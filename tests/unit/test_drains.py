"""How long older settings go on after a change, and that no figure counts what they still do."""

from __future__ import annotations

import pytest
from msgspec.structs import replace as changed

from service.analysis.observed.history import History
from service.analysis.observed.statistics import figures
from service.messages.settings import Settings, SettingsChange, VersionedSettings
from service.messages.telemetry import BatchRecord, TelemetryFrame
from tests.synthetic_run import CLOCK, FakeClock, Step, SyntheticRun, filled_history

BEFORE, AFTER = Settings(max_batch_size=4), Settings(max_batch_size=16)
IN_FORCE_S = 10.0


def batch(number: int, version: int, formed_s: float, finished_s: float | None) -> BatchRecord:
    return BatchRecord(
        id=f"r1-{number}",
        number=number,
        replica="r1",
        settings_version=version,
        formation="early",
        size=2,
        cap=4,
        release_reason="timeout",
        formed_s=formed_s,
        started_s=formed_s,
        finished_s=finished_s,
        tokens=8,
    )


def told(*batches: BatchRecord, at_s: float = 30.0) -> History:
    """One change of settings and these batches around it."""
    clock = FakeClock(at_s)
    history = History("clock", clock=clock)
    change = SettingsChange(
        version=2, previous=BEFORE, settings=AFTER, requested_s=IN_FORCE_S - 0.003, in_force_s=IN_FORCE_S
    )
    history.add_telemetry(
        TelemetryFrame(
            number=1,
            at_s=at_s,
            clock="clock",
            in_force=VersionedSettings(version=2, settings=AFTER),
            changes=(change,),
            batches=batches,
        )
    )
    return history


def drained(history: History) -> str:
    (mark,) = history.batches.marks()
    return mark.drained


def test_that_the_drain_ends_with_the_last_batch_of_the_older_settings() -> None:
    history = told(batch(1, 1, 8.0, 10.5), batch(2, 1, 9.9, 11.8), batch(3, 2, 10.1, 12.5), batch(4, 2, 20.0, 21.0))
    assert drained(history) == "old settings drained after 1.8 s"


def test_that_a_drain_is_open_while_such_a_batch_is_left() -> None:
    assert drained(told(batch(1, 1, 8.0, None), batch(2, 2, 10.1, 12.5))) == "old settings still drain"


def test_that_nothing_drains_where_nothing_was_left() -> None:
    assert drained(told(batch(1, 1, 8.0, 9.0), batch(2, 2, 10.1, 12.5), batch(3, 2, 20.0, 21.0))) == ""


def test_that_a_drain_is_remembered_when_its_batches_are_no_longer_kept() -> None:
    history = told(batch(1, 1, 8.0, 11.8), batch(2, 2, 10.1, 12.5), batch(3, 2, 20.0, 21.0))
    known = drained(history)
    history.batches.drop_before(10.0)
    assert drained(history) == known == "old settings drained after 1.8 s"


def test_that_a_batch_told_of_late_counts_for_its_own_settings() -> None:
    history = told(batch(1, 1, 8.0, 9.0), batch(3, 3, 10.1, 12.5), at_s=13.0)
    history.add_telemetry(
        TelemetryFrame(
            number=2,
            at_s=14.0,
            clock="clock",
            in_force=VersionedSettings(version=3, settings=AFTER),
            batches=(batch(2, 2, 9.8, 13.5),),
        )
    )
    late = history.batches.row_of(1, "r1-2")
    assert history.batches.regime_of(late) == history.batches.regimes[0].number


def test_that_settings_without_a_batch_of_their_own_wait_for_those_formed_before() -> None:
    history = told(batch(1, 1, 8.0, 12.0), batch(2, 1, 9.0, None), batch(3, 1, 9.5, None), at_s=13.0)
    pending = history.batches.formed_before(2, 13.0)
    assert pending is not None
    assert (pending.requests, pending.left_s) == (4, pytest.approx(0.0 + 0.5))
    assert told(batch(1, 1, 8.0, 12.0), batch(2, 2, 10.1, None)).batches.formed_before(2, 13.0) is None


def test_that_nothing_is_said_of_the_time_once_a_batch_takes_longer_than_others() -> None:
    history = told(batch(1, 1, 8.0, 12.0), batch(2, 1, 8.9, None), batch(3, 1, 9.5, None))
    pending = history.batches.formed_before(2, 13.0)
    assert pending is not None
    assert (pending.requests, pending.left_s) == (4, None)


def test_that_nothing_is_said_of_the_time_before_a_batch_has_ended() -> None:
    pending = told(batch(1, 1, 9.5, None)).batches.formed_before(2, 13.0)
    assert pending is not None
    assert pending.left_s is None


SEALED = Settings(formation="early", max_batch_size=2)


@pytest.fixture(scope="module")
def backlog() -> SyntheticRun:
    """Sealed batches of 2 pile up for ten seconds; then batches may hold 16, but those come first."""
    return SyntheticRun(40.0, (Step(0.0, 4.0, SEALED), Step(10.0, settings=SEALED.revised({"max_batch_size": 16}))))


def test_that_no_rate_is_known_while_older_settings_drain(backlog: SyntheticRun) -> None:
    history, _ = filled_history(backlog, until_s=14.0)
    assert drained(history) == "old settings still drain"
    found = figures(history)
    assert (found.requests_per_s, found.tokens_per_s, found.p50_s, found.mean_batch) == (None, None, None, None)


def test_that_rates_count_from_the_end_of_the_drain(backlog: SyntheticRun) -> None:
    history, clock = filled_history(backlog)
    drain = history.batches.drain(history.batches.regimes[-1])
    assert drain is not None
    assert drain.end_s is not None
    at_s = drain.end_s + 5.0
    assert at_s < clock.now_s
    samples = history.requests.samples
    answered = (samples["finished"] > drain.end_s) & (samples["finished"] <= at_s)
    assert set(samples["regime"][answered]) == {history.batches.regime}
    assert figures(history, at_s).requests_per_s == pytest.approx(answered.sum() / 5.0)


def test_that_answers_of_older_settings_that_arrive_after_the_drain_are_in_no_rate() -> None:
    """A batch of 16 ends the drain, and its answers are a moment on their way."""
    settings = Settings(max_batch_size=16)
    run = SyntheticRun(30.0, (Step(0.0, 12.0, settings), Step(10.0, settings=settings.revised({"max_batch_size": 1}))))
    history = History(CLOCK, clock := FakeClock(run.start_s))
    for telemetry, load in run.frames(30.0):
        clock.now_s = telemetry.at_s
        history.add_telemetry(telemetry)
        late = [
            request if request.finished_s is None else changed(request, finished_s=request.finished_s + 0.05)
            for request in load.requests
        ]
        history.add_load(changed(load, requests=tuple(late)))
    drain = history.batches.drain(history.batches.regimes[-1])
    assert drain is not None
    assert drain.end_s is not None
    found = figures(history, drain.end_s + 2.0)
    assert found.requests_per_s is not None
    assert found.requests_per_s < 2.0, "one at a time"
