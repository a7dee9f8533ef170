"""What it means, and with which evidence."""

from __future__ import annotations

from gui.findings import findings
from service.messages import FramesMissed, Settings
from service.observed.history import History
from tests.synthetic_run import CLOCK, FakeClock, Step, SyntheticRun, early_run, filled_history, picture_run


def titles(history: History) -> list[str]:
    return [finding.title for finding in findings(history)]


def test_that_nothing_is_said_without_data_or_after_a_failure() -> None:
    assert findings(History(CLOCK, FakeClock())) == ()
    history, _ = filled_history(picture_run(), until_s=30.0)
    history.mark_failure()
    assert findings(history) == ()


def test_that_batches_sealed_too_early_come_first_and_name_formation() -> None:
    history, _ = filled_history(early_run())
    first = findings(history)[0]
    assert (first.icon, first.title, first.control) == ("warning", "Batches are sealed too early", "formation")
    _, formed, _ = history.depth_at(history.now_s())
    assert first.evidence.startswith(f"{formed} requests wait in sealed batches that can no longer grow. Mean batch 3.")


def test_that_a_cap_that_limits_is_named_with_its_evidence() -> None:
    history, _ = filled_history(picture_run(), until_s=38.0)
    (finding,) = [
        finding for finding in findings(history) if finding.control == "max_batch_size" and "limits" in finding.title
    ]
    assert finding.title == "max_batch_size limits"
    assert "batches were full, and" in finding.evidence


def test_that_a_cap_that_limits_no_longer_is_told() -> None:
    steps = (
        Step(0.0, 5.0, Settings(max_batch_size=4)),
        Step(30.0, rate_per_s=4.0, settings=Settings(max_batch_size=64)),
    )
    history, _ = filled_history(SyntheticRun(50.0, steps, step_s=0.029, per_request_s=0.003))
    told = [finding for finding in findings(history) if finding.title == "max_batch_size no longer limits"]
    assert [finding.icon for finding in told] == ["check"]
    assert "reached the cap of 64" in told[0].evidence


def test_that_load_is_told_as_a_share_of_what_the_cap_allows() -> None:
    history, _ = filled_history(picture_run())
    (finding,) = [finding for finding in findings(history) if finding.title.startswith("Load is")]
    assert finding.title.endswith("% of capacity")
    assert finding.evidence.startswith("6.4 of ")
    assert finding.evidence.endswith("requests/s at batch 16.")


def test_that_too_much_load_is_a_warning() -> None:
    history, _ = filled_history(picture_run(), until_s=38.0)
    assert "Load exceeds capacity" in titles(history)


def test_that_a_timeout_without_effect_and_one_that_every_batch_waits_are_told_apart() -> None:
    at_the_cap, _ = filled_history(picture_run(), until_s=38.0)
    assert "batch_wait_timeout_s has no effect" in titles(at_the_cap)
    idle = Settings(max_batch_size=64, batch_wait_timeout_s=0.5)
    waiting, _ = filled_history(SyntheticRun(40.0, (Step(0.0, 1.0, idle),), tokens=4))
    assert "Batches wait their whole timeout" in titles(waiting)


def test_that_there_are_at_most_three_even_after_missed_frames() -> None:
    history, _ = filled_history(picture_run(), until_s=38.0)
    history.add_missed(FramesMissed(first=10_000, last=10_010))
    assert len(findings(history)) <= 3
