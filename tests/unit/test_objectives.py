"""Objectives: what is accepted, what is refused in words, and which requests are good."""

from __future__ import annotations

import pytest

from service.messages.objectives import Objectives
from service.messages.text import UserError


def test_that_a_percentile_sets_the_latency_and_the_share_that_is_to_meet_it() -> None:
    assert Objectives.parse(["p99=2"]) == Objectives(latency_s=2.0, share=0.99)


@pytest.mark.parametrize(
    "text", ["p95", "p95=", "p95=nan", "p95=inf", "p95=0", "p95=-1", "p95=1e9", "p96=1", "ttft=1,5", "=1"]
)
def test_that_what_cannot_be_met_or_read_is_refused_with_the_rule(text: str) -> None:
    with pytest.raises(UserError, match="Must be name=seconds"):
        Objectives.parse([text])


@pytest.mark.parametrize(
    ("text", "form"), [("p95<=1.0", "p95=1.0"), ("p99 <= 2 s", "p99=2"), ("latency≤1", "latency=1")]
)
def test_that_the_old_spelling_is_refused_with_the_present_one(text: str, form: str) -> None:
    with pytest.raises(UserError, match=f"write {form}, without"):
        Objectives.parse([text])


def test_that_a_request_is_good_if_it_meets_every_objective_that_is_set() -> None:
    objectives = Objectives(latency_s=1.0, tpot_s=0.05)
    assert objectives.are_met(1.0, 9.0, 0.05)
    assert not objectives.are_met(1.1, 0.1, 0.01)
    assert not objectives.are_met(0.9, 0.1, 0.06)


def test_that_a_time_that_does_not_exist_asks_for_nothing() -> None:
    assert Objectives(tpot_s=0.05).are_met(1.0, 0.5, None)
    assert not Objectives()
