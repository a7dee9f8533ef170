"""What is said when things are worst: long queues behind few and slow batches, lost replicas, undeclared loads."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import numpy as np
import pytest

from service.analysis.findings.facts import Facts, Finding
from service.analysis.findings.ranking import findings, nothing_found
from service.analysis.findings.recent import trend
from service.analysis.findings.rules import formation, queueing
from service.analysis.observed.history import History
from service.messages.load import LoadFrame
from service.messages.settings import Settings
from service.messages.telemetry import TelemetryFrame
from tests.synthetic_run import Step, SyntheticRun, early_run, filled_history
from tests.unit.test_findings import changed, found, steady, told

SMALL = Settings(max_batch_size=4)


def undeclared(frame: LoadFrame) -> LoadFrame:
    return changed(frame, pattern=None)


# ---------------------------------------------------------------------------------------------- few and slow batches


def test_that_two_slow_batches_are_enough_to_judge_by_and_the_one_that_runs_counts() -> None:
    """Batches of 15 s: in half a minute two have been formed, of which one runs."""
    run = SyntheticRun(24.0, (Step(0.0, 2.0, SMALL),), step_s=0.6)
    history, _ = filled_history(run)
    facts = Facts.at(history, history.now_s())
    assert facts is not None
    assert (len(facts.batches), facts.has_batches) == (2, True)
    assert findings(history)[0].severity == "warning"


def test_that_requests_that_wait_behind_a_batch_that_never_ends_are_not_passed_over_in_silence() -> None:
    run = SyntheticRun(14.0, (Step(0.0, 1.5, Settings()),), step_s=2.0)
    waits = told(run)["requests_wait"]
    assert waits.severity == "warning"
    assert waits.title == "Requests wait, and why cannot be judged yet"
    assert re.match(r"At \d\d:\d\d:\d\d \d+ requests waited, the oldest for ", waits.evidence), "it stands for a second"
    assert "1 batch of the 5 that a judgement takes so far; 1 batch had run for 1" in waits.evidence
    assert waits.advice
    assert "requests_wait" not in told(steady(4.0))
    assert "requests_wait" not in told(SyntheticRun(4.0, (Step(0.0, 1.5, Settings()),), step_s=2.0)), "it just began"


def test_that_a_wait_that_another_finding_explains_is_told_once() -> None:
    run = SyntheticRun(60.0, (Step(0.0, 4.0, SMALL),), step_s=0.25)
    said = told(run)
    assert "saturated" in said
    assert "requests_wait" not in said


def test_that_a_budget_of_tokens_that_keeps_batches_small_can_be_lifted() -> None:
    def with_budget(frame: TelemetryFrame) -> TelemetryFrame:
        in_force = changed(frame.in_force, settings=Settings(max_batch_tokens=100))
        batches = tuple(changed(b, cap=16, release_reason="drained") for b in frame.batches)
        return changed(frame, in_force=in_force, batches=batches)

    waits = told(steady(8.0, duration_s=40.0, max_batch_size=3), telemetry=with_budget, load=undeclared)
    by_rule = waits.get("requests_wait")
    assert by_rule is None or by_rule.change == {"max_batch_tokens": 0}


# ----------------------------------------------------------------------------------------------------- trend and rate


def test_that_a_trend_is_that_of_most_moments_and_no_single_burst_makes_one() -> None:
    at_s = np.arange(60.0)
    flat = np.where(at_s > 50, 40.0, 2.0)
    assert trend(at_s, flat) == 0.0
    assert trend(at_s, 3.0 * at_s + np.where(at_s == 59.0, -150.0, 0.0)) == pytest.approx(3.0)


def test_that_a_burst_at_the_end_is_no_queue_that_grows() -> None:
    steps = (Step(0.0, 3.0, Settings()), Step(27.5, 60.0), Step(28.2, 3.0))
    for until_s in (28.3, 28.6, 29.0, 30.0):
        assert found(queueing.queue_grows, SyntheticRun(30.0, steps), until_s) is None, until_s


@pytest.mark.parametrize("until_s", [20.0, 45.0, 75.0])
def test_that_saturation_stays_named_where_nobody_declares_the_rate(until_s: float) -> None:
    """As with traces, steps, ramps and clients of others: also once the queue stands at its limit."""
    settings = Settings(max_batch_size=4, max_queued_requests=60)

    def refusing(frame: TelemetryFrame) -> TelemetryFrame:  # as a service with that limit
        kept, waiting = [], 0
        for record in frame.requests:
            waiting += record.state == "waiting"
            is_beyond = record.state == "waiting" and waiting > 60
            kept.append(changed(record, state="refused") if is_beyond else record)
        return changed(frame, requests=tuple(kept))

    run = SyntheticRun(75.0, (Step(0.0, 8.0, settings),), outside_share=1.0)
    said = told(run, until_s, telemetry=refusing, load=undeclared)
    assert "saturated" in said
    assert said["saturated"].data["offered_per_s"] == pytest.approx(8.0, rel=0.25)


@pytest.mark.parametrize("seed", range(4))
def test_that_chance_in_counted_arrivals_is_no_saturation(seed: int) -> None:
    run = SyntheticRun(60.0, (Step(0.0, 3.6, SMALL),), seed=seed, outside_share=1.0)
    assert "saturated" not in told(run, load=undeclared)


def test_that_a_rate_that_fell_is_not_counted_with_what_came_before() -> None:
    run = SyntheticRun(50.0, (Step(0.0, 12.0, SMALL), Step(35.0, 2.0)), outside_share=1.0)
    history, _ = filled_history(run)
    history.statuses.patterns.clear()
    facts = Facts.at(history, history.now_s())
    assert facts is not None
    assert facts.declared_per_s is None
    assert facts.offered_per_s is not None
    assert facts.offered_per_s < 4.0


# ---------------------------------------------------------------------------------------------------- waits and prompts


def test_that_batches_that_still_wait_count_with_their_age() -> None:
    sealed = told(early_run())["sealed_early"]
    assert "waited at least " in sealed.evidence
    early = [
        finding
        for at_s in range(50, 62)
        if (finding := found(formation.sealed_early, early_run(), float(at_s))) is not None
    ]
    waits_s = [finding.data["sealed_wait_p50_s"] for finding in early]
    assert waits_s[-1] > waits_s[0], "the queue grows, and so does the wait"


def prefilled(share: float) -> Callable[[TelemetryFrame], TelemetryFrame]:
    """As if that share of each batch's time were spent on prompts."""

    def change(frame: TelemetryFrame) -> TelemetryFrame:
        return changed(
            frame,
            batches=tuple(
                b
                if b.finished_s is None or b.started_s is None
                else changed(b, work=changed(b.work, prefill_s=share * (b.finished_s - b.started_s)))
                for b in frame.batches
            ),
        )

    return change


def test_that_prompts_that_take_much_of_the_time_are_named_with_their_share() -> None:
    prompts = told(steady(4.0), telemetry=prefilled(0.41))["prompts_dominate"]
    assert prompts.evidence.startswith("Reading prompts took 41 % of the time in which the engine ran: ")
    assert "of a request's prompt, beside 24 of its answer." in prompts.evidence
    assert "prompts_dominate" not in told(steady(4.0), telemetry=prefilled(0.2))
    assert "prompts_dominate" not in told(steady(0.3, 60.0), telemetry=prefilled(0.41)), "the engine has time"


# ------------------------------------------------------------------------------------------------------ lost and idle


def lost_history(until_s: float, replaced: bool = False) -> History:
    run = steady(4.0, duration_s=until_s)
    history, _ = filled_history(run)
    history.outages.open(history.now_s() - 4.0, "r1 lost")
    if replaced:
        history.outages.close_one_loss(history.now_s() - 1.0)
    return history


def test_that_a_lost_replica_is_named_first_while_requests_hang() -> None:
    first = findings(lost_history(25.0))[0]
    assert (first.rule, first.severity) == ("replica_lost", "warning")
    assert first.evidence.startswith("r1 ended 4.0 s ago. ")
    assert "under way." in first.evidence
    assert all(finding.rule != "replica_lost" for finding in findings(lost_history(25.0, replaced=True)))


def test_that_nothing_is_said_about_a_load_that_nobody_sends() -> None:
    run = SyntheticRun(40.0, (Step(0.0, 4.0, Settings()), Step(20.0, 0.0)))
    assert told(run, 20.0)
    history, _ = filled_history(run, 32.0)
    facts = Facts.at(history, history.now_s())
    assert facts is not None
    assert facts.is_idle
    assert findings(history) == ()
    assert "no batch in the last 10 s" in nothing_found(facts)


def test_that_notes_never_stand_above_faults() -> None:
    for run, until_s in ((early_run(), None), (steady(12.0, max_batch_size=4), None), (steady(4.0), None)):
        order = [finding.severity for finding in told(run, until_s).values()]
        assert order == sorted(order, key=("warning", "check", "info").index)


def test_that_every_number_of_the_evidence_is_finite() -> None:
    said: list[Finding] = [*told(early_run()).values(), *told(steady(12.0, max_batch_size=4)).values()]
    assert all(math.isfinite(value) for finding in said for value in finding.data.values())
