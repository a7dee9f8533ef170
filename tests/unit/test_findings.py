"""What it means, and with which evidence: every rule on a run that shows it and on one that does not."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable
from itertools import pairwise

import msgspec
import pytest

from service.analysis.findings import rules
from service.analysis.findings.facts import LEAST_BATCHES, Facts, Finding
from service.analysis.findings.ranking import RULES, SUPPRESSES, findings, nothing_found
from service.analysis.findings.rules import queueing, sizes
from service.analysis.observed.history import History
from service.messages.load import ClientRequest, ClientTotals, LoadFrame, Poisson
from service.messages.settings import Settings
from service.messages.telemetry import BatchWork, FramesMissed, TelemetryFrame
from tests.synthetic_run import CLOCK, FakeClock, Step, SyntheticRun, early_run, filled_history, picture_run

changed = msgspec.structs.replace
CALM = SyntheticRun(20.0, (Step(0.0, 4.0, Settings()),))


def told(
    run: SyntheticRun,
    until_s: float | None = None,
    telemetry: Callable[[TelemetryFrame], TelemetryFrame] = lambda frame: frame,
    load: Callable[[LoadFrame], LoadFrame] = lambda frame: frame,
) -> dict[str, Finding]:
    """The findings at the end of a run whose frames were changed on their way, by rule."""
    history = History(CLOCK, clock := FakeClock())
    for telemetry_frame, load_frame in run.frames(until_s):
        clock.now_s = telemetry_frame.at_s
        history.add_telemetry(telemetry(telemetry_frame))
        history.add_load(load(load_frame))
    return {finding.rule: finding for finding in findings(history)}


def steady(rate_per_s: float, duration_s: float = 25.0, tokens: int = 24, **settings: object) -> SyntheticRun:
    return SyntheticRun(duration_s, (Step(0.0, rate_per_s, Settings().revised(settings)),), tokens=tokens)


def found(rule: Callable[[Facts], Finding | None], run: SyntheticRun, until_s: float | None = None) -> Finding | None:
    """What one rule finds, also where a finding of the same cause stands for it."""
    history, _ = filled_history(run, until_s)
    facts = Facts.at(history, history.now_s())
    assert facts is not None
    return rule(facts)


def with_status(**values: object) -> Callable[[TelemetryFrame], TelemetryFrame]:
    return lambda frame: changed(frame, replicas=tuple(changed(status, **values) for status in frame.replicas))


# ------------------------------------------------------------------------------------------------------------- at all


def test_that_nothing_is_said_without_data_or_after_a_failure() -> None:
    assert findings(History(CLOCK, FakeClock())) == ()
    history, _ = filled_history(picture_run(), until_s=30.0)
    assert findings(history)
    history.mark_failure()
    assert findings(history) == ()


@pytest.mark.parametrize(
    ("run", "told"),
    [
        (SyntheticRun(40.0, (Step(0.0, 4.0, Settings()), Step(20.0, 0.0))), "no batch in the last 10 s"),
        (SyntheticRun(1.5, (Step(0.0, 4.0, Settings()),)), "of the 5 it takes under these settings"),
        (SyntheticRun(30.0, (Step(0.0, 4.0, Settings()),)), "All is well, judged by "),
    ],
    ids=["no batch", "few batches", "enough"],
)
def test_that_where_nothing_is_found_it_is_told_on_what_that_rests(run: SyntheticRun, told: str) -> None:
    history, _ = filled_history(run)
    facts = Facts.at(history, history.now_s())
    assert facts is not None
    assert told in nothing_found(facts)


def test_that_the_past_is_told_as_it_was_then() -> None:
    history, _ = filled_history(picture_run())
    then, _ = filled_history(picture_run(), until_s=38.0)
    at_s = then.now_s()
    said = [(finding.rule, finding.evidence) for finding in findings(then, at_s)]
    assert [(finding.rule, finding.evidence) for finding in findings(history, at_s)] == said
    assert "saturated" in dict(said)


def test_that_warnings_come_first_and_nothing_is_said_twice() -> None:
    history, _ = filled_history(picture_run(), until_s=38.0)
    history.add_missed(FramesMissed(first=10_000, last=10_010))
    said = findings(history)
    assert [finding.severity for finding in said] == sorted((f.severity for f in said), reverse=True)
    rules = [finding.rule for finding in said]
    assert len(set(rules)) == len(rules)


def test_that_every_public_function_of_the_rules_is_asked_once() -> None:
    names = [f"{rules.__name__}.{module.name}" for module in pkgutil.iter_modules(rules.__path__)]
    functions = {
        function
        for name in names
        for _, function in inspect.getmembers(importlib.import_module(name), inspect.isfunction)
        if function.__module__ == name and not function.__name__.startswith("_")
    }
    assert set(RULES) == functions
    assert len(RULES) == len(functions)


@pytest.mark.parametrize("rule", SUPPRESSES)
def test_that_what_a_finding_suppresses_is_not_said_beside_it(rule: str) -> None:
    assert rule not in SUPPRESSES[rule]
    assert not any(rule in SUPPRESSES.get(other, ()) for other in SUPPRESSES[rule]), "each would silence the other"


def test_that_every_finding_has_evidence_with_numbers_and_every_warning_an_advice() -> None:
    for run, until_s in ((early_run(), None), (picture_run(), 38.0), (picture_run(), None), (CALM, None)):
        for finding in told(run, until_s).values():
            assert finding.data, finding.rule
            assert any(character.isdigit() for character in finding.evidence) or finding.severity == "info"
            assert finding.advice or finding.severity != "warning"


# ------------------------------------------------------------------------------------------------- forming of batches


def test_that_early_sealing_is_named_with_what_it_costs_and_late_runs_never_show_it() -> None:
    said = told(early_run())
    first = next(iter(said.values()))
    assert (first.rule, first.severity, first.control) == ("sealed_early", "warning", "formation")
    assert "were sealed while the engine was busy and waited" in first.evidence
    assert "Mean batch 3.9 → 1.1 of 16. The queue grows by " in first.evidence
    assert not said.keys() & {"saturated", "queue_grows", "batch_of_one"}, "one cause is one warning"
    assert first.change == {"formation": "late"}
    assert first.expected.startswith("4.2 of 11.")
    assert first.data["sealed_while_busy"] > 30
    for late in (picture_run(), CALM, steady(20.0)):
        assert "sealed_early" not in told(late)


def test_that_early_formation_without_load_is_no_fault() -> None:
    assert "sealed_early" not in told(steady(0.3, duration_s=60.0, formation="early"))


def held_by_ray(run: SyntheticRun, limit: int, *, cap: int) -> Callable[[TelemetryFrame], TelemetryFrame]:
    """As if the cap were `cap`, and Ray let the replica hold those that run and one more batch, or those that run."""
    admitted = {}  # by request, when Ray handed it over: with the batch before its own where both fit
    for before, batch in pairwise(run.batches):
        admitted |= {
            f"q{m.number}": (before if limit >= 2 * len(batch.members) else batch).formed_s for m in batch.members
        }

    def change(frame: TelemetryFrame) -> TelemetryFrame:
        in_force = changed(frame.in_force, settings=Settings(max_batch_size=cap, batch_wait_timeout_s=0.2))
        batches = tuple(changed(b, cap=cap, release_reason="timeout") for b in frame.batches)
        requests = []
        for record in frame.requests:
            since_s = run.start_s + (admitted.get(record.id) or record.received_s - run.start_s)
            if since_s <= frame.at_s:
                requests.append(changed(record, received_s=since_s, enqueued_s=since_s))
        held = changed(frame, in_force=in_force, batches=batches, requests=tuple(requests))
        return with_status(max_ongoing_requests=limit)(held)

    return change


def test_that_batches_capped_by_ray_are_named_before_the_timeout_they_wait() -> None:
    run = steady(20.0, max_batch_size=5)
    said = told(run, telemetry=held_by_ray(run, 5, cap=16))
    capped = said["ongoing_capped"]
    assert capped.evidence.startswith("Ray lets a replica hold 5 requests at once, waiting, running or reading")
    assert "It held up to 5 while more had been sent: the last" in capped.evidence
    assert "held 5.0 of 16 requests on average" in capped.evidence
    assert "Raise max_ongoing_requests to 272" in capped.advice
    assert "timeout_waited" not in said


def test_that_ray_counts_those_that_wait_and_those_that_run_against_its_limit() -> None:
    """A limit of the cap itself: half of it runs and half of it waits, so that batches are half full."""
    run = steady(20.0, max_batch_size=8)
    capped = told(run, telemetry=held_by_ray(run, 16, cap=16))["ongoing_capped"]
    assert "It held up to 16 while more had been sent" in capped.evidence
    assert "held 8.0 of 16 requests on average" in capped.evidence


def test_that_ray_caps_nothing_where_no_more_was_sent_or_more_is_held() -> None:
    run = steady(20.0, max_batch_size=5)
    of_ray = held_by_ray(run, 5, cap=16)

    def sent_late(frame: LoadFrame) -> LoadFrame:  # by users that are no more than the limit
        batch_of = {f"c{m.number}": batch for batch in run.batches for m in batch.members}
        return changed(
            frame,
            requests=tuple(
                changed(r, intended_s=sent_s, sent_s=sent_s)
                for r in frame.requests
                if (sent_s := run.start_s + batch_of[r.id].formed_s - 0.001) <= frame.at_s
            ),
        )

    assert "ongoing_capped" not in told(run, telemetry=of_ray, load=sent_late)
    assert "ongoing_capped" not in told(run, telemetry=with_status(max_ongoing_requests=100_000))
    assert "ongoing_capped" not in told(run, telemetry=with_status(max_ongoing_requests=5)), "it holds more"
    assert "ongoing_capped" not in told(run)  # a service that does not tell its limit


def test_that_requests_that_wait_for_memory_are_told_so() -> None:
    run = steady(20.0, max_batch_size=5)
    tokens = run.requests[0].prompt_tokens + run.requests[0].tokens

    def of_memory(rows: int) -> Callable[[TelemetryFrame], TelemetryFrame]:
        def change(frame: TelemetryFrame) -> TelemetryFrame:
            in_force = changed(frame.in_force, settings=Settings(max_batch_size=16))
            batches = tuple(changed(batch, cap=16) for batch in frame.batches)
            return with_status(memory_tokens=rows * tokens)(changed(frame, in_force=in_force, batches=batches))

        return change

    said = told(run, telemetry=of_memory(5))
    assert "memory_limits" in said
    assert said["memory_limits"].evidence.startswith(
        f"Memory has room for {5 * tokens} tokens of prompts and max_tokens"
    )
    assert "5 requests of 16." in said["memory_limits"].evidence
    assert "batch_size_limits" not in said
    assert "memory_limits" not in told(run, telemetry=of_memory(100))
    assert "memory_limits" not in told(run)


def test_that_a_cap_that_limits_is_named_and_one_that_no_longer_does_is_told() -> None:
    limits = found(sizes.batch_size_limits, picture_run(), 38.0)
    assert limits is not None
    assert limits.control == "max_batch_size"
    assert re.search(r"batches were full, and \d+ requests or more waited during half of the last", limits.evidence)
    raised = (
        Step(0.0, 5.0, Settings(max_batch_size=4)),
        Step(30.0, rate_per_s=4.0, settings=Settings(max_batch_size=64)),
    )
    said = told(SyntheticRun(50.0, raised, step_s=0.029, per_request_s=0.003))
    assert said["batch_size_no_longer_limits"].severity == "check"
    assert said["batch_size_no_longer_limits"].evidence.endswith("reached the cap of 64.")
    assert "batch_size_limits" not in said


def test_that_requests_that_run_one_by_one_under_load_are_named_and_not_those_of_a_quiet_service() -> None:
    alone = found(sizes.batch_of_one, steady(3.0, max_batch_size=1))
    assert alone is not None
    assert alone.control == "max_batch_size"
    assert told(steady(3.0, max_batch_size=1)).keys().isdisjoint({"batch_of_one", "batch_size_limits"}), "saturated"
    assert "batch_of_one" not in told(steady(0.3, duration_s=60.0, max_batch_size=1))
    assert "batch_of_one" not in told(CALM)


# ------------------------------------------------------------------------------------------------------- the timeout


def test_that_a_timeout_that_costs_more_than_it_gains_is_named_with_what_it_costs() -> None:
    too_long = told(steady(1.0, duration_s=40.0, tokens=4, max_batch_size=64, batch_wait_timeout_s=0.5))[
        "timeout_too_long"
    ]
    assert too_long.control == "batch_wait_timeout_s"
    assert 0.3 < too_long.data["lost_s"] <= 0.5
    assert "timeout_too_long" not in told(CALM)


def test_that_a_timeout_that_every_batch_waits_is_told_where_it_costs_little() -> None:
    waited = told(picture_run())["timeout_waited"]
    assert waited.severity == "info"
    assert "waited 0.050 s" in waited.evidence
    assert waited.advice.startswith("It costs a request about 0.04")
    assert waited.advice.endswith("too little to matter.")
    assert waited.change is None
    assert "timeout_waited" not in told(picture_run(), 38.0)


def test_that_a_timeout_without_effect_is_told_only_where_full_batches_wait() -> None:
    assert "timeout_without_effect" in told(picture_run(), 38.0)
    assert "timeout_without_effect" not in told(CALM)


def test_that_batches_that_may_not_leave_small_are_named_where_they_wait_to_be_full() -> None:
    said = told(steady(2.0, duration_s=60.0, max_batch_size=8, allow_small_batch=False))
    held = said["held_back"]
    assert (held.severity, held.control, held.title) == ("warning", "allow_small_batch", "Batches wait to be full")
    assert held.data["held_s"] > 1
    assert not {"timeout_waited", "timeout_too_long"} & set(said), "that timeout has no part in it"
    assert "held_back" not in told(steady(20.0, max_batch_size=4, allow_small_batch=False)), "they are full at once"


def test_that_batches_that_wait_for_their_tick_are_named() -> None:
    held = told(steady(2.0, batch_wait_timeout_s=0.0, stride_s=1.0))["held_back"]
    assert (held.control, held.title) == ("stride_s", "Batches wait for their tick")
    assert "leave every 1 s at most" in held.evidence
    assert "held_back" not in told(steady(2.0, batch_wait_timeout_s=0.0, stride_s=0.005))
    assert "held_back" not in told(CALM)


# ------------------------------------------------------------------------------------------------ load and capacity


def test_that_load_beyond_capacity_is_told_by_how_much_and_load_within_as_a_share() -> None:
    beyond = told(picture_run(), 38.0)
    assert beyond["saturated"].control == "max_batch_size"
    assert beyond["saturated"].evidence.startswith("6.4 requests/s arrive, full batches of 4 can answer 4.")
    assert 0.3 < beyond["saturated"].data["excess"] < 0.7
    assert "load_share" not in beyond
    within = told(picture_run())
    assert "saturated" not in within
    assert within["load_share"].title.endswith(" % of capacity")
    assert within["load_share"].evidence.startswith("6.4 of ")


def test_that_nothing_advises_a_larger_batch_where_one_would_gain_little() -> None:
    steps = (Step(0.0, 1.0, Settings(max_batch_size=8)), Step(40.0, 6.0, Settings(max_batch_size=4)))
    said = told(SyntheticRun(60.0, steps, step_s=0.001, per_request_s=0.02))
    assert said["saturated"].advice.startswith("No setting carries 6.0 requests/s here: send less, add replicas, or ")
    assert "The most that any gives is about " in said["saturated"].advice
    for finding in said.values():
        assert finding.change is None, finding.rule


def test_that_a_load_that_pauses_asks_nothing_of_the_engine() -> None:
    run = SyntheticRun(27.0, (Step(0.0, 6.4, Settings(max_batch_size=4)), Step(18.0, rate_per_s=0.0)))
    poisson = Poisson(rate_per_s=6.4)
    assert "saturated" in told(run, 17.0, load=lambda frame: changed(frame, pattern=poisson))

    def pausing(frame: LoadFrame) -> LoadFrame:
        return changed(frame, pattern=poisson, is_paused=frame.at_s > run.start_s + 18.0)

    assert not told(run, load=pausing).keys() & {"saturated", "load_share", "queue_grows"}


def test_that_arrivals_are_counted_where_no_generator_declares_them() -> None:
    outside = SyntheticRun(60.0, (Step(0.0, 6.4, Settings(max_batch_size=4)),), outside_share=1.0)
    said = told(outside, load=lambda frame: changed(frame, pattern=None))
    assert 5.0 < said["saturated"].data["offered_per_s"] < 8.0


def test_that_a_queue_that_grows_is_told_with_its_pace_and_one_that_swings_is_not() -> None:
    grows = found(queueing.queue_grows, picture_run(), 38.0)
    assert grows is not None
    assert 1.0 < grows.data["growth_per_s"] < 4.0
    for seed in range(5):
        run = SyntheticRun(30.0, (Step(0.0, 6.0, Settings()),), seed=seed)
        assert found(queueing.queue_grows, run) is None, seed


def test_that_a_queue_that_stays_at_its_limit_does_not_grow() -> None:
    settings = Settings(max_batch_size=4, max_queued_requests=70)
    run = SyntheticRun(40.0, (Step(0.0, 12.0, settings), Step(10.0, 4.4)))
    assert found(queueing.queue_grows, run, 7.0) is not None
    assert found(queueing.queue_grows, run, 25.0) is None


def test_that_slow_batches_are_looked_for_as_far_back_as_needed() -> None:
    """Five batches of six seconds each: the last ten seconds hold two of them."""
    settings = Settings(max_batch_size=4)
    run = SyntheticRun(60.0, (Step(0.0, 4.0, settings),), step_s=0.25)
    limits = found(sizes.batch_size_limits, run)
    assert limits is not None
    assert limits.data["batches"] >= LEAST_BATCHES
    assert limits.data["waiting"] > 100


def test_that_nothing_is_said_of_a_load_that_is_over() -> None:
    run = SyntheticRun(75.0, (Step(0.0, 4.0, Settings(max_batch_size=4)), Step(30.0, 0.0)))
    assert not told(run)


def test_that_the_first_batch_under_new_settings_counts() -> None:
    run = steady(4.0, 6.0)
    history, _ = filled_history(run)
    facts = Facts.at(history, history.now_s())
    assert facts is not None
    assert len(facts.batches) == len([batch for batch in run.batches if run.start_s + batch.formed_s <= facts.at_s])


def test_that_refused_requests_are_counted() -> None:
    def third_refused(frame: TelemetryFrame) -> TelemetryFrame:
        return changed(
            frame,
            requests=tuple(changed(r, state="refused") if int(r.id[1:]) % 3 == 0 else r for r in frame.requests),
        )

    refused = told(CALM, telemetry=third_refused)["requests_shed"]
    assert refused.control == "max_queued_requests"
    assert refused.data["refused"] / refused.data["received"] == pytest.approx(1 / 3, abs=0.1)
    assert "requests_shed" not in told(CALM)


# --------------------------------------------------------------------------------------- work, replicas, generator


def test_that_places_held_by_a_long_member_are_told_as_a_share() -> None:
    def half_vacant(frame: TelemetryFrame) -> TelemetryFrame:
        return changed(
            frame,
            batches=tuple(
                changed(b, work=BatchWork(steps=24, computed=24 * b.size, vacant=12 * b.size)) for b in frame.batches
            ),
        )

    stragglers = told(CALM, telemetry=half_vacant)["stragglers"]
    assert "50 % of the places stood empty" in stragglers.evidence
    assert "stragglers" not in told(CALM)


def test_that_batches_that_memory_did_not_hold_are_told_with_the_size_that_it_held() -> None:
    def split(frame: TelemetryFrame) -> TelemetryFrame:
        return changed(
            frame,
            batches=tuple(
                changed(b, size=16, work=BatchWork(steps=24, splits=3 if b.number % 2 else 0)) for b in frame.batches
            ),
        )

    full = told(CALM, telemetry=split)["memory_full"]
    assert (full.control, full.data["rows"]) == ("max_batch_size", 4)
    assert full.data["split"] == pytest.approx(full.data["batches"] / 2, abs=1)
    assert full.change == {"max_batch_size": 4}
    assert "memory_full" not in told(CALM)


def test_that_a_generator_that_lags_or_drops_is_the_bottleneck() -> None:
    def late(frame: LoadFrame) -> LoadFrame:
        return changed(frame, requests=tuple(changed(r, intended_s=r.intended_s - 0.2) for r in frame.requests))

    lags = told(CALM, load=late)["generator_lags"]
    assert lags.data["lag_p99_ms"] == pytest.approx(201.0, abs=1.0)
    assert "sent 201 ms late or more" in lags.evidence
    assert "latencies, which count from the intended send, are longer than the service's own" in lags.advice
    dropping = told(
        CALM, load=lambda frame: changed(frame, totals=ClientTotals(dropped=int(frame.at_s - CALM.start_s)))
    )
    assert "10 arrivals were dropped" in dropping["generator_lags"].evidence
    assert "generator_lags" not in told(CALM)


def test_that_a_burst_that_is_over_saturates_nothing() -> None:
    """Without a load of the window the rate is counted by the arrivals of all clients."""
    run = SyntheticRun(30.0, (Step(0.0, 40.0, Settings()), Step(3.0, 0.001)))

    def unsaid(frame: LoadFrame) -> LoadFrame:
        return changed(frame, pattern=None)

    assert "saturated" in told(run, until_s=6.0, load=unsaid)
    assert "saturated" not in told(run, until_s=7.5, load=unsaid)


def test_that_a_lag_is_held_against_the_median_of_several_latencies() -> None:
    """The first answers come quickly: what waits behind them will take much longer."""

    def quick(request: ClientRequest) -> ClientRequest:
        finished_s = None if request.finished_s is None else request.sent_s + 0.1
        return changed(request, intended_s=request.intended_s - 0.03, finished_s=finished_s)

    def late(frame: LoadFrame) -> LoadFrame:
        return changed(frame, requests=tuple(map(quick, frame.requests)))

    assert "generator_lags" not in told(CALM, until_s=3.0, load=late)
    assert "generator_lags" in told(CALM, until_s=5.0, load=late)


def test_that_a_replica_without_work_is_named_only_while_another_queues() -> None:
    def beside_an_idle_one(frame: TelemetryFrame) -> TelemetryFrame:
        return changed(frame, replicas=(*frame.replicas, *(changed(s, replica="r2", pid=2) for s in frame.replicas)))

    idle = told(steady(6.4, max_batch_size=4), telemetry=beside_an_idle_one)["replica_idle"]
    assert idle.evidence.startswith("r2 had nothing to do 100 % of the time while up to")
    assert idle.evidence.endswith("requests waited at r1.")
    assert "replica_idle" not in told(steady(0.3, duration_s=60.0), telemetry=beside_an_idle_one)
    assert "replica_idle" not in told(steady(6.4, max_batch_size=4))


def test_that_memory_that_grows_without_a_pause_is_named_and_a_single_step_is_not() -> None:
    run = SyntheticRun(75.0, (Step(0.0, 1.0, Settings()),))
    base = 1_000_000_000

    def leaking(frame: TelemetryFrame) -> TelemetryFrame:
        return with_status(memory_bytes=base + int((frame.at_s - run.start_s) * 5e6))(frame)

    def stepping(frame: TelemetryFrame) -> TelemetryFrame:
        return with_status(memory_bytes=base + (600_000_000 if frame.at_s > run.start_s + 40 else 0))(frame)

    grows = told(run, telemetry=leaking)["memory_grows"]
    assert grows.evidence.startswith("r1 grew from ")
    assert "memory_grows" not in told(run, telemetry=stepping)
    assert "memory_grows" not in told(run)
