"""What it means where requests join and leave one by one, and what says that they should."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from service.analysis.findings.facts import Facts, Finding
from service.analysis.findings.ranking import findings
from service.analysis.findings.rules import queueing, sizes
from service.messages.settings import Settings
from tests.synthetic_run import Step, SyntheticRun, filled_history

SETTINGS = Settings(formation="continuous")
OF_WHOLE_BATCHES = {
    "sealed_early",
    "stragglers",
    "waits_for_batch",
    "timeout_too_long",
    "timeout_waited",
    "timeout_without_effect",
}


def run_of(*steps: Step, duration_s: float = 30.0, spread: int = 0, **engine: Any) -> SyntheticRun:
    return SyntheticRun(duration_s, steps, tokens_spread=spread, **engine)


def told(run: SyntheticRun, until_s: float | None = None) -> dict[str, Finding]:
    return {finding.rule: finding for finding in findings(filled_history(run, until_s)[0])}


def steady(rate_per_s: float, spread: int = 16, duration_s: float = 30.0, **settings: object) -> dict[str, Finding]:
    return told(run_of(Step(0.0, rate_per_s, SETTINGS.revised(settings)), spread=spread, duration_s=duration_s))


def found(rule: Callable[[Facts], Finding | None], rate_per_s: float, **settings: object) -> Finding | None:
    """What one rule finds, also where a finding of the same cause stands for it."""
    history, _ = filled_history(run_of(Step(0.0, rate_per_s, SETTINGS.revised(settings)), spread=16))
    facts = Facts.at(history, history.now_s())
    assert facts is not None
    return rule(facts)


@pytest.mark.parametrize("rate_per_s", [0.3, 2.0, 4.0, 12.0, 30.0])
@pytest.mark.parametrize("max_batch_size", [1, 4, 16])
def test_that_nothing_is_said_that_is_true_of_whole_batches_only(rate_per_s: float, max_batch_size: int) -> None:
    said = steady(rate_per_s, max_batch_size=max_batch_size)
    assert not said.keys() & OF_WHOLE_BATCHES
    for finding in said.values():
        text = f"{finding.title} {finding.evidence} {finding.advice}"
        assert "batches" not in text, finding.rule


def test_that_a_cap_that_limits_is_told_by_the_time_that_all_places_were_taken() -> None:
    limits = found(sizes.batch_size_limits, 12.0, max_batch_size=4)
    assert limits is not None
    assert limits.control == "max_batch_size"
    assert limits.evidence.startswith("All 4 places were taken ")
    assert " % of the time, and " in limits.evidence
    assert "batch_size_limits" not in steady(4.0)


def test_that_a_cap_that_no_longer_limits_is_told_by_the_most_that_ran() -> None:
    raised = run_of(
        Step(0.0, 6.0, SETTINGS.revised({"max_batch_size": 2})),
        Step(12.0, 3.0, settings=SETTINGS.revised({"max_batch_size": 64})),
        duration_s=50.0,
        spread=8,
    )
    no_longer = told(raised, until_s=30.0)["batch_size_no_longer_limits"]
    assert no_longer.evidence.startswith("Never more than ")
    assert no_longer.evidence.endswith(" of 64 places were taken.")


def test_that_load_and_capacity_are_told_with_so_many_running() -> None:
    share, beyond = steady(4.0)["load_share"], steady(12.0, max_batch_size=4)["saturated"]
    assert share.evidence.endswith("requests/s with 8 running, the most so far.")
    # 24 tokens on average: 4 rows get one each in 30 + 4 * 1.8 ms, and 4 prompts of 8 tokens take 1 ms a token
    assert beyond.data["capacity_per_s"] == pytest.approx(4 / (24 * 0.0372 + 4 * 0.008), rel=0.08)
    assert "with all 4 places taken the engine can answer" in beyond.evidence
    assert "saturated" not in steady(4.0)


def test_that_a_queue_that_grows_is_told_and_one_that_swings_is_not() -> None:
    grows = found(queueing.queue_grows, 12.0, max_batch_size=4)
    assert grows is not None
    assert grows.data["growth_per_s"] > 4
    assert "queue_grows" not in steady(5.0)


def test_that_one_at_a_time_under_load_is_named_only_where_the_cap_is_one() -> None:
    alone = found(sizes.batch_of_one, 2.0, max_batch_size=1)
    assert alone is not None
    assert alone.evidence.startswith("One request ran at a time, while the engine was busy ")
    assert alone.control == "max_batch_size"
    assert "batch_of_one" not in steady(2.0)


def test_that_a_timeout_is_named_where_it_holds_those_that_find_the_engine_free() -> None:
    held = steady(0.8, duration_s=60.0, batch_wait_timeout_s=0.4)["timeout_needless"]
    assert (held.severity, held.control) == ("warning", "batch_wait_timeout_s")
    assert "were held up to 0.400 s for others." in held.evidence
    assert steady(0.8, duration_s=60.0, batch_wait_timeout_s=0.05)["timeout_needless"].severity == "info"
    assert "timeout_needless" not in steady(0.8, duration_s=60.0, batch_wait_timeout_s=0.0)
    assert "timeout_needless" not in steady(8.0, batch_wait_timeout_s=0.4), "nobody finds it free"


# ------------------------------------------------------------------------------------------------ what it would mend


def test_that_stragglers_of_late_batches_lead_to_continuous_with_what_it_would_gain() -> None:
    said = told(run_of(Step(0.0, 9.0, Settings(max_batch_size=8)), spread=22))
    stragglers = said["stragglers"]
    assert (stragglers.severity, stragglers.control) == ("warning", "formation")
    assert stragglers.change == {"formation": "continuous"}
    assert stragglers.expected.startswith("Up to 7.")
    assert "waits_for_batch" not in said, "that would say the same less well"


def test_that_nobody_is_told_to_join_a_call_of_a_function() -> None:
    history, _ = filled_history(run_of(Step(0.0, 4.0, Settings())))
    history.unit = "houses"
    (waits,) = (finding for finding in findings(history) if finding.rule == "waits_for_batch")
    assert (waits.advice, waits.control) == ("", None)
    assert "of the time to their result." in waits.evidence


def test_that_waiting_for_the_batch_before_is_named_where_it_has_room() -> None:
    waits = told(run_of(Step(0.0, 4.0, Settings())))["waits_for_batch"]
    assert (waits.severity, waits.control) == ("info", "formation")
    assert waits.data["wait_p50_s"] > 0.2
    assert waits.advice.startswith(
        "Set formation to continuous: they then join the running batch at the next step, of "
    )
    assert "waits_for_batch" not in told(run_of(Step(0.0, 0.3, Settings()), duration_s=60.0)), "the engine is free"
    assert "waits_for_batch" not in told(run_of(Step(0.0, 9.0, Settings(max_batch_size=4)))), "nobody could join"


def test_that_after_a_change_what_still_runs_of_the_formation_before_says_nothing() -> None:
    run = run_of(Step(0.0, 9.0, SETTINGS.revised({"max_batch_size": 4})), Step(20.0, settings=Settings()), spread=16)
    assert told(run, until_s=24.0).keys().isdisjoint({"timeout_needless", "batch_size_no_longer_limits"})


# ------------------------------------------------------------------------------------------------ prompts that join


def joined_by(prompts: tuple[tuple[int, int], ...], rate_per_s: float = 4.0, **settings: object) -> dict[str, Finding]:
    """Prompts are read in one step, at 1 ms a token, beside steps of about 0.04 s."""
    step = Step(0.0, rate_per_s, SETTINGS.revised({"prefill_chunk_tokens": 1024, **settings}))
    return told(run_of(step, spread=16, duration_s=20.0, prompts=prompts))


def test_that_a_prompt_that_stalls_running_answers_is_named_with_what_would_bound_the_stall() -> None:
    stalled = joined_by(((60, 600),))["stream_stalled"]
    assert (stalled.severity, stalled.control) == ("warning", "prefill_chunk_tokens")
    assert stalled.data["stall_s"] == pytest.approx(0.64, abs=0.03)
    assert " running answers got no token for 0.6" in stalled.evidence
    assert stalled.evidence.endswith(' while the prompt of c60 ("Once upon a time"), 600 tokens, was read in one step.')
    assert stalled.change == {"prefill_chunk_tokens": 64}
    assert stalled.data["bound_s"] == pytest.approx(0.04 + 0.064, abs=0.02)
    assert stalled.data["later_s"] == pytest.approx(9 * 0.04, rel=0.3), "ten steps instead of one"
    assert stalled.data["most_s"] == pytest.approx(0.04 + 1.5 * 0.064, abs=0.02), "the last tokens take longer"
    assert stalled.expected.startswith("By the cost of recent batches, stalls of 0.1")


def test_that_it_is_said_whose_longest_prompt_it_was_where_several_were_read_together() -> None:
    burst = tuple((number, 150 + number) for number in range(100, 108))
    stalled = joined_by(burst, rate_per_s=6.0)["stream_stalled"]
    longest = int(stalled.data["prompt_tokens"])
    assert f"in a step, the longest of c{longest - 150} (" in stalled.evidence
    assert stalled.evidence.endswith(f") with {longest} tokens.")


@pytest.mark.parametrize(
    ("prompts", "settings"),
    [
        ((), {}),
        (((60, 90),), {}),
        (((60, 600),), {"formation": "late"}),
        (((60, 600),), {"formation": "early"}),
    ],
    ids=["short", "a little long", "late", "early"],
)
def test_that_no_stall_is_named_where_prompts_are_short_or_none_joins(
    prompts: tuple[tuple[int, int], ...], settings: dict[str, object]
) -> None:
    assert "stream_stalled" not in joined_by(prompts, **settings)


def test_that_a_stall_that_a_smaller_chunk_would_not_mend_is_not_named() -> None:
    """The prompt is blamed for nothing that it does not explain: here every step takes as long."""
    slow = run_of(Step(0.0, 0.5, SETTINGS), spread=4, duration_s=40.0, step_s=0.5, prompts=((12, 100),))
    assert "stream_stalled" not in told(slow)


def test_that_long_prompts_are_one_cause_and_one_finding() -> None:
    """They stall those that run, and take much of the engine's time."""
    prompts = tuple((number, 300) for number in range(1, 60))
    said = joined_by(prompts, rate_per_s=2.0)
    assert "prompts_dominate" not in said
    assert "Reading prompts took " in said["stream_stalled"].evidence


@pytest.mark.parametrize(("joined_under", "is_named"), [(2, True), (1, False)])
def test_that_a_prompt_that_joined_before_a_change_of_the_chunk_is_not_held_against_it(
    joined_under: int, is_named: bool
) -> None:
    """What joins keeps the chunk with which it began, also where its last parts are read after the change."""
    before, after = SETTINGS.revised({"prefill_chunk_tokens": 1024}), SETTINGS.revised({"prefill_chunk_tokens": 512})
    steps = (Step(0.0, 4.0, before), Step(13.0, settings=after))
    run = run_of(*steps, spread=16, duration_s=20.0, prompts=((60, 600),))
    segment = next(request.batch.id for request in run.requests if request.prompt_tokens == 600 and request.batch)
    history, _ = filled_history(run, until_s=0.0)
    for telemetry, load in run.frames():
        batches = tuple(
            replace(batch, settings_version=joined_under) if batch.id == segment else batch
            for batch in telemetry.batches
        )
        history.add_telemetry(replace(telemetry, batches=batches))
        history.add_load(load)
    found = {finding.rule for finding in findings(history, run.start_s + 20.0)}
    assert ("stream_stalled" in found) is is_named
