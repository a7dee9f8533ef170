"""The verdict: which state is said, in which sentence, with the numbers of the row of figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from service.analysis.findings.changed import with_change
from service.analysis.findings.facts import Facts
from service.analysis.findings.ranking import findings_of
from service.analysis.findings.verdict import LONGEST, STANDS_S, WORST_FIRST, Situation, Standing, Verdict, verdict
from service.analysis.observed.history import History
from service.analysis.observed.register import numbers
from service.analysis.observed.statistics import figures
from service.analysis.predict.predict import Estimate, Prediction, predict
from service.messages.load import ClientOutcome, ClientRequest, ClosedLoop, LoadFrame
from service.messages.objectives import Objectives
from service.messages.settings import Settings
from service.messages.telemetry import TelemetryFrame
from service.messages.text import format_time
from tests.synthetic_run import (
    CLOCK,
    FakeClock,
    Step,
    SyntheticRun,
    continuous_run,
    early_run,
    filled_history,
    picture_run,
)

changed = msgspec.structs.replace
CALM = SyntheticRun(40.0, (Step(0.0, 4.0, Settings()),))
EBBS = SyntheticRun(  # the same, and then fewer arrive
    90.0, (Step(0.0, 6.4, Settings(max_batch_size=2)), Step(30.0, 1.0))
)
DRAINS = SyntheticRun(  # more than batches of 2 can answer; then batches of 16
    90.0, (Step(0.0, 6.4, Settings(max_batch_size=2)), Step(30.0, settings=Settings(max_batch_size=16)))
)


def situation(history: History, at_s: float | None = None, prediction: Prediction | None = None) -> Situation:
    moment_s = history.now_s() if at_s is None else at_s
    facts = Facts.at(history, moment_s)
    found = () if facts is None else with_change(facts, findings_of(facts))
    return Situation(history, moment_s, facts, figures(history, at_s), found, prediction)


def said(run: SyntheticRun, until_s: float | None = None) -> Verdict:
    return verdict(situation(filled_history(run, until_s)[0]))


def held(run: SyntheticRun, objectives: Objectives) -> Verdict:
    """What is said while Hold keeps these objectives."""
    history, _ = filled_history(run)
    history.objectives = objectives
    return verdict(replace(situation(history), is_held=True))


def said_at(run: SyntheticRun, *moments_s: float) -> list[Verdict]:
    """What is said of these moments, looking back."""
    history, _ = filled_history(run)
    return [verdict(situation(history, run.start_s + at_s)) for at_s in moments_s]


def told(
    run: SyntheticRun,
    load: Callable[[LoadFrame], LoadFrame],
    telemetry: Callable[[TelemetryFrame], TelemetryFrame] = lambda frame: frame,
    until_s: float | None = None,
) -> History:
    """The history of a run whose frames were changed on their way."""
    history = History(CLOCK, clock := FakeClock())
    for telemetry_frame, load_frame in run.frames(until_s):
        clock.now_s = telemetry_frame.at_s
        history.add_telemetry(telemetry(telemetry_frame))
        history.add_load(load(load_frame))
    return history


def ending(outcome: ClientOutcome, every: int) -> Callable[[LoadFrame], LoadFrame]:
    """Lets some of the requests end in this way."""

    def ends(request: ClientRequest) -> ClientRequest:
        is_chosen = request.outcome is not None and sum(map(ord, request.id)) % every == 0
        return changed(request, outcome=outcome) if is_chosen else request

    return lambda frame: changed(frame, requests=tuple(map(ends, frame.requests)))


def test_that_a_calm_service_is_well_by_the_figures_of_the_row() -> None:
    history, _ = filled_history(CALM)
    found, row = verdict(situation(history)), numbers(figures(history))
    assert (found.state, found.number) == ("well", row["requests_per_s"])
    assert found.text.startswith(f"All well: {row['requests_per_s']}")
    assert found.text.endswith(f" requests/s, p95 {row['p95_s']} s.")


def test_that_the_capacity_of_full_batches_is_named_and_that_of_smaller_ones_as_the_least() -> None:
    """By the straight line through batches of 3 a batch of 16 took 0.7 times as long as it did."""
    for cap, least in ((16, "at least "), (4, "")):
        history, _ = filled_history(SyntheticRun(40.0, (Step(0.0, 2.5, Settings(max_batch_size=cap)),)))
        given = situation(history)
        [share] = [each for each in given.findings if each.rule == "load_share"]
        per_s = share.data["capacity_low_per_s" if least else "capacity_per_s"]
        assert f" of {least}{per_s:.1f} requests/s" in verdict(given).text
        assert (share.data["of_size"] == cap) is not bool(least)


def test_that_no_capacity_is_named_below_what_is_answered() -> None:
    [drained] = said_at(DRAINS, 52.0)
    assert drained.state == "well"
    assert " of " not in drained.text


def test_that_a_latency_that_a_backlog_left_behind_is_said_to_be_its() -> None:
    history, _ = filled_history(DRAINS, 52.0)
    text = verdict(situation(history)).text
    assert text.endswith(f"; p95 {numbers(figures(history))['p95_s']} s is still the backlog's.")
    history, _ = filled_history(DRAINS, 75.0)
    assert "backlog" not in verdict(situation(history)).text


def test_that_no_backlog_is_where_a_steady_load_fills_the_next_batch() -> None:
    steady = SyntheticRun(70.0, (Step(0.0, 6.0, Settings(max_batch_size=16)),), step_s=0.04, per_request_s=0.004)
    found = said_at(steady, *(float(at_s) for at_s in range(20, 68, 4)))
    assert "well" in {each.state for each in found}
    assert not [each.text for each in found if "backlog" in each.text]


def test_that_so_is_one_of_a_few_requests_that_had_waited_under_the_settings_before() -> None:
    """Fewer than a batch holds, so that no queue is worked off; but they had waited for long."""
    slow = Settings(max_batch_size=1)
    run = SyntheticRun(60.0, (Step(0.0, 2.0, slow), Step(12.0, settings=Settings(max_batch_size=16))), step_s=0.04)
    history, _ = filled_history(run, 20.0)
    assert history.depth_at(run.start_s + 12.0)[0] < 16
    assert verdict(situation(history)).text.endswith(" s is still the backlog's.")
    history, _ = filled_history(run, 40.0)
    assert "backlog" not in verdict(situation(history)).text


def test_that_so_is_one_of_requests_that_came_while_those_were_run() -> None:
    """Ten seconds after a change "all well" stood beside a p95 of 3.65 s, and then of 1.87 s; 0.58 s followed."""
    slow, fast = Settings(max_batch_size=1), Settings(max_batch_size=48)
    steps = (Step(0.0, 4.0, slow), Step(16.0, 10.0), Step(24.0, 5.0, fast))
    run = SyntheticRun(60.0, steps, step_s=0.003, per_request_s=0.0033)
    for at_s in (28.0, 30.0, 34.0):
        assert verdict(situation(filled_history(run, at_s)[0])).text.endswith(" s is still the backlog's."), at_s


def test_that_so_is_one_of_requests_that_came_before_while_none_that_came_since_has_ended() -> None:
    """Requests that had waited take the places of a large continuous batch, and for long it answers no other."""
    slow, wide = Settings(max_batch_size=1), Settings(max_batch_size=93, formation="continuous")
    run = SyntheticRun(60.0, (Step(0.0, 3.0, slow), Step(20.0, settings=wide)), step_s=0.04, per_request_s=0.004)
    for at_s in (27.0, 29.0, 36.0):
        assert verdict(situation(filled_history(run, at_s)[0])).text.endswith(" s is still the backlog's."), at_s
    assert "backlog" not in verdict(situation(filled_history(run, 40.0)[0])).text


def test_that_before_any_load_it_says_what_to_do() -> None:
    idle = SyntheticRun(5.0, (Step(0.0, 0.0, Settings()),))
    assert said(idle).text == "No load yet: run a load, or fire your prompts."


def test_that_a_load_that_has_stopped_is_named_with_its_age() -> None:
    stopped = SyntheticRun(60.0, (Step(0.0, 4.0, Settings()), Step(30.0, 0.0)))
    found = said(stopped)
    assert found.state == "idle"
    assert found.text == f"No load: the last request ended {found.number} ago."


def test_that_the_first_requests_are_too_few_to_call_it_well() -> None:
    found = said(CALM, 0.6)
    assert found.state == "unjudged"
    assert found.text.startswith("Too early to judge: ")


def test_that_nothing_is_judged_of_a_service_that_has_stopped() -> None:
    history, _ = filled_history(DRAINS, 25.0)
    assert "More arrives than can be answered" in verdict(situation(history)).text
    history.mark_stop()
    found = verdict(situation(history))
    assert (found.state, found.mend) == ("idle", None)
    assert found.text == f"The service has stopped: the last request ended {found.number} ago."


def test_that_a_service_that_a_window_has_left_is_not_said_to_have_stopped() -> None:
    history, _ = filled_history(DRAINS, 25.0)
    history.mark_left()
    found = verdict(situation(history))
    assert found.text == f"Detached from the service: the last request ended {found.number} ago."
    history.service_started()
    history.mark_stop()
    assert verdict(situation(history)).text.startswith("The service has stopped: ")


def test_that_a_failure_is_said_before_all_else() -> None:
    history, clock = filled_history(DRAINS, 25.0)
    history.mark_failure()
    clock.now_s += 12.0
    found = verdict(situation(history))
    assert (found.state, found.text) == ("failed", "Failed 12 s ago: no request is answered.")


@pytest.mark.parametrize("outcome", ["failed", "refused"])
def test_that_requests_that_get_no_answer_are_said_with_the_share_of_the_row(outcome: ClientOutcome) -> None:
    history = told(CALM, ending(outcome, every=3))
    found, row = verdict(situation(history)), numbers(figures(history))
    assert (found.state, found.number) == (outcome, f"{row['failed_share']} %")
    assert found.text.startswith(f"{row['failed_share']} % {outcome}")


def test_that_refusals_by_a_full_queue_name_it() -> None:
    def refusing(frame: TelemetryFrame) -> TelemetryFrame:
        requests = (changed(r, state="refused") if sum(map(ord, r.client_id)) % 3 == 0 else r for r in frame.requests)
        return changed(frame, requests=tuple(requests))

    history = told(CALM, ending("refused", every=3), refusing)
    assert (
        verdict(situation(history)).text == f"{numbers(figures(history))['failed_share']} % refused: the queue is full."
    )


def test_that_a_silent_service_is_said_with_the_length_of_the_silence() -> None:
    history, clock = filled_history(CALM)
    clock.now_s += 7.0
    assert verdict(situation(history)).text == "Nothing heard for 7 s: shown as last heard."


def test_that_a_growing_queue_offers_what_mends_it() -> None:
    found = said(DRAINS, 28.0)
    assert found.state == "growing"
    assert found.finding is not None
    assert found.mend is found.finding
    assert found.action.startswith("Apply ")


def test_that_a_backlog_is_worked_off_with_its_time_and_what_then_comes() -> None:
    history, _ = filled_history(DRAINS, 33.0)
    prediction = predict(history, Settings(max_batch_size=16))
    assert prediction is not None
    assert prediction.p95_s is not None
    found, queue = verdict(situation(history, prediction=prediction)), numbers(figures(history))["queue"]
    assert (found.state, found.number) == ("working off", f"{queue} waiting")
    assert found.text.startswith(f"Working off {queue} waiting requests, about ")
    assert found.text.endswith(f"; then p95 {prediction.p95_s.value:.2f} s.")
    assert found.action == "Undo v2"


def test_that_the_time_of_a_backlog_is_the_predicted_one_until_that_has_passed() -> None:
    history, _ = filled_history(DRAINS, 33.0)
    prediction = predict(history, Settings(max_batch_size=16))
    assert prediction is not None
    takes_s = prediction.falls_in_s(16)
    assert takes_s is not None
    of_moments = [prediction.after(passed_s) for passed_s in (0.0, 2.0, takes_s)]
    now, later, passed = (verdict(situation(history, prediction=each)).text for each in of_moments)
    assert f", about {format_time(takes_s)};" in now
    assert f", about {format_time(takes_s - 2.0)};" in later
    measured = verdict(situation(history)).text
    assert passed.startswith(measured.removesuffix("."))
    assert measured.partition(", about ")[2] not in now


def test_that_a_backlog_is_not_worked_off_when_as_many_wait_as_usual_close_to_saturation() -> None:
    """What is usual then is more than a batch, and the sentence speaks of what waits."""
    history, _ = filled_history(DRAINS, 33.0)
    prediction = predict(history, Settings(max_batch_size=16))
    assert prediction is not None
    many = tuple(Estimate(40.0, 30.0, 50.0) for _ in prediction.trajectory.waiting)
    usual = changed(prediction, trajectory=changed(prediction.trajectory, waiting=many))
    assert usual.falls_in_s(40) is None, "it is so now"
    assert verdict(situation(history, prediction=usual)).text.startswith(verdict(situation(history)).text[:-1])


def test_that_what_waits_close_to_saturation_is_no_backlog() -> None:
    run = SyntheticRun(70.0, (Step(0.0, 1.6, Settings(max_batch_size=1)), Step(16.0, 1.3)))  # of some 1.4 a second
    found = said_at(run, *(0.5 * n for n in range(52, 138)))
    assert {each.state for each in found} == {"warned"}


def test_that_the_backlog_is_worked_off_in_about_that_time() -> None:
    found = said(DRAINS, 33.0)
    about_s = float(found.text.partition(", about ")[2].split()[0])
    moments_s = [float(at_s) for at_s in range(34, 70)]
    later = zip(moments_s, said_at(DRAINS, *moments_s), strict=True)
    empty_s = next(at_s for at_s, each in later if each.state == "well") - 33.0
    assert about_s == pytest.approx(empty_s, rel=0.35)


def test_that_a_queue_of_users_that_wait_for_their_answers_is_no_backlog() -> None:
    closed = told(DRAINS, lambda frame: changed(frame, pattern=ClosedLoop(users=64)), until_s=33.0)
    assert verdict(situation(closed)).state != "working off"


def test_that_what_is_left_of_the_settings_before_is_worked_off_first() -> None:
    run = SyntheticRun(60.0, (Step(0.0, 4.0, Settings()), Step(30.0, settings=Settings(formation="early"))))
    first = next(found for n in range(1, 9) if (found := said(run, 30.0 + 0.25 * n)).state == "working off")
    assert " of the settings before" in first.text
    assert first.text.endswith("; then v2.")
    assert first.action == "Undo v2"


def test_that_what_it_says_leads_the_list_and_a_backlog_is_not_asked_about() -> None:
    of = situation(filled_history(DRAINS, 33.0)[0])
    assert of.found("requests_wait") is not None
    assert verdict(of).state == "working off"
    assert "requests_wait" not in [finding.rule for finding in verdict(of).listed(of.findings)]
    of = situation(filled_history(early_run())[0])
    assert verdict(of).listed(tuple(reversed(of.findings)))[0] is verdict(of).finding


def test_that_a_missed_objective_is_slow() -> None:
    history, _ = filled_history(CALM)
    history.objectives = Objectives(latency_s=0.5)
    found = verdict(situation(history))
    assert found.state == "slow"
    assert found.text.startswith("Slow: ")
    assert found.text.endswith("% of the answers within 0.5 s; 95 % are to be.")
    history.objectives = Objectives(latency_s=60.0)
    assert verdict(situation(history)).state == "well"


def test_that_what_is_slow_is_never_written_as_what_is_asked_for() -> None:
    """It said "Slow: 95 % of the answers within 1 s; 95 % are to be."."""
    history, _ = filled_history(CALM)
    history.objectives = Objectives(latency_s=0.5)
    of = situation(history)
    for goodput_per_s in (9.46, 9.49):
        shown = replace(of.figures, requests_per_s=10.0, goodput_per_s=goodput_per_s)
        assert verdict(replace(of, figures=shown)).number == "94 %"


def test_that_a_warning_is_never_below_a_word_that_all_is_well() -> None:
    found = said(early_run())
    assert found.state in ("warned", "growing")
    assert found.finding is not None
    assert found.finding.severity == "warning"


@pytest.mark.parametrize("run", [CALM, DRAINS, picture_run(), early_run(), continuous_run()])
def test_that_every_moment_has_one_sentence_with_one_number(run: SyntheticRun) -> None:
    for found in said_at(run, *(at_s + 0.3 for at_s in range(0, int(run.duration_s), 3))):
        assert len(found.text) <= LONGEST
        assert found.text.endswith(".")
        assert found.number or found.state == "unloaded"
        assert "–" not in found.text


def test_that_a_state_stands_for_a_while_before_a_better_one_and_yields_at_once_to_a_worse() -> None:
    standing, grows, falls = Standing(), *(situation(filled_history(EBBS, at_s)[0]) for at_s in (25.0, 37.0))
    assert standing.take(grows, 10.0).state == "growing"
    assert standing.take(falls, 10.0 + 0.9 * STANDS_S).state == "growing"
    assert standing.take(falls, 10.0 + STANDS_S).state == "warned"
    assert standing.take(grows, 10.1 + STANDS_S).state == "growing"
    assert standing.take(situation(filled_history(CALM)[0]), 10.2 + STANDS_S).state == "well", "nothing waits any more"


def test_that_a_state_that_stands_has_the_figures_of_the_present_and_offers_no_change() -> None:
    standing, grows, falls = Standing(), *(situation(filled_history(EBBS, at_s)[0]) for at_s in (25.0, 37.0))
    assert standing.take(grows, 10.0).mend is not None
    assert verdict(falls).state == "warned"
    found = standing.take(falls, 10.0 + 0.5 * STANDS_S)
    assert found.state == "growing"
    assert falls.written["queue"] != grows.written["queue"]
    assert found.text.endswith(f"; {falls.written['queue']} wait.")
    assert found.mend is None


def test_that_what_the_present_settings_can_answer_is_never_called_more() -> None:
    standing, grows, falls = Standing(), *(situation(filled_history(DRAINS, at_s)[0]) for at_s in (25.0, 33.0))
    assert "More arrives than can be answered" in standing.take(grows, 10.0).text
    assert falls.facts is not None
    rate = falls.facts.rate(falls.facts.settings)
    assert rate is not None
    assert rate.per_s > 6.4
    assert standing.take(falls, 10.1).state == "working off"


def test_that_what_the_settings_before_could_answer_is_not_said_of_the_present_ones() -> None:
    """Beside "capacity ≥ 14.3", of the first large batches, stood "60.0 of 9.3"."""
    run = SyntheticRun(
        45.0, (Step(0.0, 20.0, Settings(max_batch_size=2)), Step(30.0, settings=Settings(max_batch_size=200)))
    )
    standing, before, since = Standing(), *(situation(filled_history(run, at_s)[0]) for at_s in (29.0, 36.0))
    assert "More arrives than can be answered: 20.0 of " in standing.take(before, 10.0).text
    assert since.facts is not None
    assert since.facts.capacity is not None
    assert (since.facts.cap, since.facts.capacity.is_full) == (200, False)
    assert "More arrives" not in standing.take(since, 10.1).text


def test_that_the_states_are_ordered_by_how_bad_they_are() -> None:
    order = ("failed", "refused", "silent", "growing", "working off", "slow", "well")
    assert [state for state in WORST_FIRST if state in order] == list(order)


def test_that_while_hold_is_on_it_says_how_well_the_goal_is_kept() -> None:
    kept = held(CALM, Objectives(latency_s=60.0))
    assert kept.text.startswith("Goal kept: 100 % of the answers within 60 s; ")
    assert kept.is_held


def test_that_no_change_is_offered_while_hold_makes_them() -> None:
    slow = held(CALM, Objectives(latency_s=0.1))
    assert slow.state == "slow"
    assert slow.mend is None
    assert slow.is_held
    growing = held(replace(DRAINS, duration_s=29.0), Objectives(latency_s=0.1))
    assert growing.action == ""
