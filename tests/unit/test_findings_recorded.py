"""Every rule on recordings of the real service: named where its cause was, and nowhere else.

`python -m tests.benchmarks.findings_shown tests/recordings/findings` records them anew.
"""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest

from service.analysis.findings.ranking import findings
from service.analysis.observed.rolling import STEP_S
from service.analysis.observed.stages import durations, marks
from service.analysis.recording.reader import open_recording
from service.commands.explain import explain
from tests.benchmarks.findings_shown import SCENARIOS, Scenario

FOLDER = Path(__file__).parents[1] / "recordings" / "findings"
RUNS = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)


def recording_of(scenario: Scenario) -> Path:
    return FOLDER / f"{scenario.name}.bsr"


@RUNS
def test_that_a_real_run_shows_what_caused_its_trouble_and_nothing_else(scenario: Scenario) -> None:
    told = {finding.rule for finding in explain(open_recording(recording_of(scenario)), None).findings}
    assert told >= set(scenario.shows)
    assert not told & set(scenario.hides)


@RUNS
def test_that_the_stages_of_every_answered_request_add_up_to_its_latency(scenario: Scenario) -> None:
    history = open_recording(recording_of(scenario)).history
    answered = [row for row in history.requests.rows() if row.state == "done" and row.latency_s is not None]
    spans = durations(marks(history.requests.columns, np.array([row.key for row in answered])))
    assert answered
    assert (spans >= 0).all()
    np.testing.assert_allclose(spans.sum(axis=1), [row.latency_s for row in answered], rtol=0.01)
    assert history.sender_clock.error_s == 0.0, "one machine has one clock"


@RUNS
def test_that_recordings_stay_small(scenario: Scenario) -> None:
    assert recording_of(scenario).stat().st_size < 200_000


def test_that_the_idle_replica_and_the_busy_one_are_named() -> None:
    (found,) = (
        f for f in explain(open_recording(FOLDER / "replica_idle.bsr"), None).findings if f.rule == "replica_idle"
    )
    idle, busy = found.evidence.split()[0], found.evidence.rstrip(".").split()[-1]
    assert {idle, busy} == {"r1", "r2"}


def test_that_the_timeout_that_every_batch_waits_is_told_to_pay_where_users_return_together() -> None:
    history = open_recording(FOLDER / "timeout_waited.bsr").history
    (waited,) = [finding for finding in findings(history) if finding.rule == "timeout_waited"]
    assert waited.data["mean_batch"] > 1.5 * waited.data["size_before"]


def test_that_the_chunk_that_is_told_makes_the_stalls_shorter() -> None:
    """A prompt of 800 tokens joins twice: read in one step, and 32 tokens at a time."""
    history = open_recording(FOLDER / "stream_stalled.bsr").history
    columns = history.requests.columns
    once, in_parts = np.flatnonzero(columns["prompt_tokens"] == 800)
    before, after = (
        max(history.gaps.stalls(columns["started"][row], columns["first_token"][row] + STEP_S), key=attrgetter("gap_s"))
        for row in (once, in_parts)
    )
    (stalled,) = (found for found in findings(history, before.at_s + 2.0) if found.rule == "stream_stalled")
    assert stalled.data["stall_s"] == before.gap_s
    assert stalled.data["prompt_tokens"] == 800
    assert stalled.change == {"prefill_chunk_tokens": 32}
    assert after.gap_s < before.gap_s / 4
