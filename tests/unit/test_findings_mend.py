"""Advice that mends: the smallest setting that carries the load, what it is expected to give, or that none does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.analysis.findings.changed import settings_changed, with_change
from service.analysis.findings.facts import Facts, Rate
from service.analysis.findings.mend import Advice, carry_load, form_late, take_waiting
from service.analysis.findings.ranking import findings
from service.analysis.findings.rules import load, timeouts
from service.messages.load import ClosedLoop
from service.messages.settings import Formation, Settings
from tests.synthetic_run import Step, SyntheticRun, early_run, filled_history, picture_run, replace_settings
from tests.unit.test_findings import changed, found, steady, told

SMALL = Settings(max_batch_size=4)


def facts_of(run: SyntheticRun, until_s: float | None = None) -> Facts:
    history, _ = filled_history(run, until_s)
    facts = Facts.at(history, history.now_s())
    assert facts is not None
    return facts


def seen_at(*sizes: int, then: Settings, rate_per_s: float, **engine: float) -> SyntheticRun:
    """A run that has had batches of these sizes before it gets the settings `then`, and this load."""
    steps = [Step(12.0 * n, 1.5 * size**0.5, Settings(max_batch_size=size)) for n, size in enumerate(sizes)]
    begin_s = 12.0 * len(sizes)
    return SyntheticRun(begin_s + 20.0, (*steps, Step(begin_s, rate_per_s, then)), **engine)  # type: ignore[arg-type]


def test_that_the_smallest_cap_that_carries_the_load_is_advised_and_carries_it() -> None:
    facts = facts_of(picture_run(), 38.0)
    advice = carry_load(facts)
    assert advice.change == {"max_batch_size": 12}
    carried = facts.rate(facts.settings.revised(advice.change))
    assert carried is not None
    assert advice.expected.startswith(f"6.4 of {carried.words}")
    assert "what waits is worked off in about" in advice.expected
    mended = SyntheticRun(120.0, (Step(0.0, 6.4, facts.settings.revised(advice.change)),), seed=3, step_s=0.029)
    assert not told(mended).keys() & {"saturated", "queue_grows"}
    smaller = facts.rate(facts.settings.revised({"max_batch_size": 8}))
    assert smaller is not None
    assert smaller.low_per_s * 0.9 < 6.4, "a smaller one carries it not, or hardly"


def test_that_another_formation_is_advised_only_where_no_cap_carries_the_load() -> None:
    """In `continuous` others take the places of the short members; a larger cap does not fit into memory here."""
    run = seen_at(1, 4, 8, 16, then=Settings(max_batch_size=8), rate_per_s=4.8, tokens_spread=22, per_request_s=0.002)
    facts = facts_of(run)
    vars(facts)["memory_rows"] = 8
    assert carry_load(facts).change == {"formation": "continuous"}
    assert "formation" not in (carry_load(facts_of(picture_run(), 38.0)).change or {})


@pytest.mark.parametrize("formation", ["late", "early", "continuous"])
def test_that_a_cap_that_takes_what_waits_is_advised_to_users_whatever_the_formation(formation: Formation) -> None:
    """With `early` and a cap of 3 of 256 it was said that no larger batch is possible."""
    small = Settings(formation=formation, max_batch_size=3)
    run = seen_at(1, 4, 8, 16, then=small, rate_per_s=9.0)
    advice = take_waiting(facts_of(run))
    assert advice.change is not None
    assert advice.change["max_batch_size"] > 3
    assert advice.change.get("formation") == ("late" if formation == "early" else None)


def test_that_where_no_setting_carries_the_load_none_is_advised() -> None:
    run = seen_at(1, 4, 8, then=SMALL, rate_per_s=12.0, step_s=0.001, per_request_s=0.02)
    advice = carry_load(facts_of(run))
    assert advice.change is None
    assert advice.advice.startswith("No setting carries 12.0 requests/s here: send less, add replicas, or take a ")
    assert advice.advice.endswith(" requests/s.")


def test_that_what_was_never_seen_is_not_promised() -> None:
    advice = carry_load(facts_of(steady(3.0, max_batch_size=1)))
    assert advice.change == {"max_batch_size": 2}
    assert advice.advice == "Set max_batch_size to 2 and watch whether the queue still grows."
    assert advice.expected == "Not known before batches of 2 have run."


def test_that_early_batches_are_to_form_late_and_grow_as_well_where_that_does_not_suffice() -> None:
    assert form_late(facts_of(early_run())).change == {"formation": "late"}
    run = seen_at(1, 4, 16, then=replace_settings(SMALL, formation="early"), rate_per_s=6.4)
    change = form_late(facts_of(run)).change or {}
    assert change["formation"] == "late"
    assert isinstance(change["max_batch_size"], int)
    assert change["max_batch_size"] > 4


def test_that_a_cap_is_never_raised_beyond_what_memory_holds() -> None:
    facts = facts_of(picture_run(), 38.0)
    vars(facts)["memory_rows"] = 6
    assert carry_load(facts).change != {"max_batch_size": 8}


@pytest.mark.parametrize(
    ("run", "until_s"),
    [(early_run(), None), (picture_run(), 38.0), (picture_run(), None), (steady(2.0, stride_s=1.0), None)],
    ids=["early", "saturated", "well", "tick"],
)
def test_that_every_change_is_valid_and_named_on_its_button(run: SyntheticRun, until_s: float | None) -> None:
    facts = facts_of(run, until_s)
    for finding in findings(facts.history):
        if finding.change is not None and finding.undoes is None:
            assert facts.settings.revised(finding.change) != facts.settings
            assert finding.action.startswith("Apply ")
            assert finding.expected


def test_that_an_advice_names_all_that_it_changes() -> None:
    facts = facts_of(steady(4.0))
    changed_both = facts.settings.revised({"formation": "continuous", "max_batch_size": 8})
    advice = Advice.of(facts, changed_both, "More.")
    assert advice.advice == "Set formation to continuous and max_batch_size to 8."
    assert advice.change == {"formation": "continuous", "max_batch_size": 8}


# ------------------------------------------------------------------------------------------- the share of the capacity


def test_that_a_share_rests_on_the_batches_that_were_seen() -> None:
    facts = facts_of(steady(4.0))
    assert facts.cost is not None
    assert facts.cost.sizes[1] < 16
    share = load.load_share(facts)
    assert share is not None
    assert share.title.startswith("Load is at most ")
    assert f"if every batch held {facts.cost.sizes[1]}, the most so far." in share.evidence
    full = facts_of(seen_at(16, 4, then=SMALL, rate_per_s=2.0))
    seen = load.load_share(full)
    assert seen is not None
    assert seen.evidence.endswith("if every batch held 4.")


def test_that_no_share_is_told_of_users_that_wait_for_their_answers_nor_while_a_queue_stands() -> None:
    run = steady(4.0)
    assert "load_share" in told(run)
    assert "load_share" not in told(run, load=lambda frame: changed(frame, pattern=ClosedLoop(users=4)))
    assert found(load.load_share, picture_run(), 41.0) is None, "a hundred requests wait"


def test_that_a_rate_with_its_error_is_told_as_an_interval() -> None:
    assert Rate(10.0, 9.0, 11.5).words == "10.0 requests/s (9.0 to 11.5)"


# --------------------------------------------------------------------------------------------------------- the timeout


def test_that_the_advice_on_a_timeout_never_turns_round_from_one_moment_to_the_next() -> None:
    run = steady(4.0, duration_s=60.0, batch_wait_timeout_s=0.1)
    history, _ = filled_history(run)
    said = set()
    for at_s in range(20, 60):
        facts = Facts.at(history, run.start_s + at_s)
        assert facts is not None
        for rule in (timeouts.timeout_waited, timeouts.timeout_too_long):
            if (finding := rule(facts)) is not None:
                said.add("pays" if finding.advice.startswith("It pays") else "costs" if finding.change else "")
    assert not {"pays", "costs"} <= said


# ------------------------------------------------------------------------------------------------ a change of settings


def test_that_a_change_says_what_of_the_settings_before_comes_first_and_for_how_long() -> None:
    steps = (Step(0.0, 4.0, Settings(formation="early")), Step(20.0, settings=Settings()))
    run = SyntheticRun(60.0, steps)
    facts = facts_of(run, 21.0)
    change = settings_changed(facts)
    assert change is not None
    assert change.title == "v2: formation early → late"
    expected = sum(len(batch.members) for batch in run.batches if batch.formed_s <= 21.0 < batch.ended_s)
    assert change.data["left"] == expected > 10
    assert change.evidence.startswith(f"{expected} requests of the settings before come first, for about ")
    assert (change.change, change.action) == ({"formation": "early"}, "Undo v2")
    drained = max(batch.ended_s for batch in run.batches if batch.version == 1)
    over = settings_changed(facts_of(run, min(drained + 0.5, 33.0)))
    assert over is None or drained + 0.5 > 33.0 or "no batch of the settings before is left" in over.evidence


def test_that_a_change_is_in_force_since_the_first_batch_that_obeyed_it() -> None:
    """A batch of 48 ran on for 4 s, and the change was said to be in force for as long."""
    steps = (Step(0.0, 4.0, Settings(max_batch_size=4)), Step(20.0, settings=Settings(max_batch_size=16)))
    run = SyntheticRun(60.0, steps, step_s=0.1)
    begun_s = min(batch.formed_s for batch in run.batches if batch.version == 2)
    assert begun_s > 20.3, "a batch of the settings before runs on"
    before, after = settings_changed(facts_of(run, begun_s - 0.2)), settings_changed(facts_of(run, begun_s + 2.0))
    assert before is not None
    assert after is not None
    assert "come first" in before.evidence
    assert "In force" not in before.evidence
    assert after.evidence.startswith("In force for 2.0 s; no batch of the settings before is left")


def test_that_a_batch_of_the_service_before_does_not_obey_a_change_whatever_its_version() -> None:
    facts = facts_of(SyntheticRun(60.0, (Step(0.0, 4.0, SMALL), Step(20.0, settings=Settings()))), 25.0)
    older = replace(facts, regime=replace(facts.regime, version=9, start_s=facts.at_s - 80.0))
    change = settings_changed(older)
    assert change is not None
    assert change.evidence == "No batch has obeyed it yet."


def test_that_a_change_stands_behind_the_warnings_and_goes_when_it_is_over() -> None:
    facts = facts_of(picture_run(), 43.0)
    shown = with_change(facts, findings(facts.history))
    assert "settings_changed" in [finding.rule for finding in shown]
    order = [finding.severity for finding in shown]
    assert order == sorted(order, key=("warning", "check", "info").index)
    over = facts_of(picture_run())
    assert settings_changed(over) is None
