"""The row of figures."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import numpy as np
import pytest

from service.analysis.observed.history import History
from service.analysis.observed.register import UNKNOWN_FIGURES
from service.analysis.observed.statistics import (
    LEAST_SINGLES,
    SINGLES_S,
    RanBatches,
    figures,
    previous_figures,
    speedup,
    token_gaps,
)
from service.messages.settings import Settings
from tests.synthetic_run import CLOCK, FakeClock, Step, SyntheticRun, filled_history, picture_run


def test_that_nothing_is_known_before_the_first_frame() -> None:
    history = History(CLOCK, FakeClock(5.0))
    assert figures(history) == UNKNOWN_FIGURES
    assert previous_figures(history) is None


def test_that_figures_are_those_of_the_last_ten_seconds() -> None:
    run = SyntheticRun(30.0, (Step(0.0, 6.0, Settings(max_batch_size=16)),))
    history, _ = filled_history(run)
    start_s, end_s = history.now_s() - 10, history.now_s()
    ended = [row for row in history.requests.rows() if row.finished_s is not None and start_s < row.finished_s <= end_s]
    latencies = [row.latency_s for row in ended]
    now = figures(history)
    assert now.requests_per_s == pytest.approx(len(ended) / 10)
    assert (now.p50_s, now.p95_s, now.p99_s) == pytest.approx(tuple(np.percentile(latencies, (50, 95, 99))))  # type: ignore[arg-type]
    sizes = [
        len(b.members)
        for b in run.batches
        if b.finished_s is not None and start_s < run.start_s + b.finished_s <= end_s
    ]
    assert now.mean_batch == pytest.approx(np.mean(sizes))


def test_that_tokens_are_counted_while_they_are_generated() -> None:
    history, _ = filled_history(SyntheticRun(30.0, (Step(0.0, 30.0, Settings(max_batch_size=8)),)))
    step_s = 0.030 + 8 * 0.0018
    assert figures(history).tokens_per_s == pytest.approx(8 / step_s, rel=0.05)


def test_that_figures_never_reach_across_a_change() -> None:
    run = picture_run()
    history, _ = filled_history(run, until_s=44.0)
    (mark,) = [mark for mark in history.batches.marks() if mark.version == 3]
    now, (version, before) = figures(history), previous_figures(history) or (0, UNKNOWN_FIGURES)
    assert history.now_s() - mark.at_s < 10
    assert now.mean_batch == 16
    assert (version, before.mean_batch) == (2, 4)
    assert before.queue is not None
    assert before.queue > 20


def test_that_times_between_tokens_are_those_of_the_last_ten_seconds() -> None:
    run = SyntheticRun(30.0, (Step(0.0, 30.0, Settings(formation="continuous", max_batch_size=8)),))
    history, _ = filled_history(run, until_s=20.0)
    ended = [gap for request in run.requests for gap in request.gaps_between(10.0, 20.0)]
    gaps = token_gaps(history)
    stall = max(history.gaps.stalls(run.start_s + 10.0, run.start_s + 20.0), key=attrgetter("gap_s"))
    assert gaps.count == len(ended)
    assert gaps.mean_s == pytest.approx(np.mean([gap_s for gap_s, _ in ended]))
    percentiles = np.percentile([gap_s for gap_s, _ in ended], (50, 95, 99), method="higher")
    assert gaps.percentiles_s(50, 95, 99) == pytest.approx(percentiles.tolist(), rel=0.06)
    assert (stall.gap_s, stall.at_s - run.start_s) == pytest.approx(max(ended))
    assert gaps.longest_s == stall.gap_s


def test_that_times_between_tokens_never_reach_across_a_change() -> None:
    many, one = Settings(max_batch_size=16), Settings(max_batch_size=1)
    history, _ = filled_history(SyntheticRun(40.0, (Step(0.0, 20.0, many), Step(20.0, settings=one))), until_s=28.0)
    (regime,) = [regime for regime in history.batches.regimes if regime.version == 2]
    assert history.now_s() - regime.start_s < 10.0
    assert 0 < token_gaps(history).longest_s < 0.04 < (token_gaps(history, regime.start_s - 0.1).mean_s or 0)


def test_that_of_no_tokens_nothing_is_known_between_them() -> None:
    gaps = token_gaps(filled_history(SyntheticRun(5.0, (Step(0.0, 0.0, Settings()),)))[0])
    assert (gaps.count, gaps.mean_s, gaps.percentiles_s(50, 99)) == (0, None, [])


def test_that_rates_wait_for_a_second_and_percentiles_for_an_answer() -> None:
    run = SyntheticRun(30.0, (Step(0.0, 20.0, Settings(max_batch_size=4)),))
    history, _ = filled_history(run, until_s=0.5)
    now = figures(history)
    assert (now.requests_per_s, now.tokens_per_s, now.p50_s, now.mean_batch) == (None, None, None, None)
    assert now.queue is not None


def test_that_figures_of_an_idle_service_are_zero_but_its_latency_is_unknown() -> None:
    run = SyntheticRun(40.0, (Step(0.0, 4.0, Settings()), Step(20.0, rate_per_s=0.0)))
    history, _ = filled_history(run)
    now = figures(history)
    assert (now.requests_per_s, now.tokens_per_s, now.queue, now.p50_s) == (0.0, 0.0, 0.0, None)


@pytest.mark.parametrize("end", [History.mark_failure, History.mark_stop], ids=["failed", "stopped"])
def test_that_figures_stand_where_the_service_failed_or_stopped(end: Callable[[History], None]) -> None:
    history, clock = filled_history(SyntheticRun(20.0))
    at_the_end = figures(history)
    end(history)
    clock.now_s += 60
    assert figures(history).requests_per_s == pytest.approx(at_the_end.requests_per_s)
    assert figures(history).p95_s == at_the_end.p95_s


def test_that_figures_can_be_asked_for_an_earlier_moment() -> None:
    history, _ = filled_history(picture_run())
    early, _ = filled_history(picture_run(), until_s=36.0)
    then, now = figures(history, early.now_s()), figures(early)
    assert then.p95_s == pytest.approx(now.p95_s)
    assert then.queue == now.queue
    assert then.speedup_over_batch_1 == pytest.approx(now.speedup_over_batch_1), "what came later has no part in it"


def ran(
    *size_and_run_s: tuple[float, float], tokens: float = 24, prompts: float = 7, are_open: bool = False
) -> RanBatches:
    """Batches of requests with so many tokens each."""
    size, run_s = np.array(size_and_run_s, np.float64).reshape(-1, 2).T
    return RanBatches(size, tokens * size, prompts * size, run_s, np.full(len(size), are_open))


SINGLES = [(1.0, 0.6)] * LEAST_SINGLES


def test_that_batches_are_compared_with_as_many_batches_of_one_as_there_are() -> None:
    assert speedup(ran((4.0, 0.8)), ran(*SINGLES, (4.0, 0.8))) == (3.0, LEAST_SINGLES)


def test_that_the_speed_up_is_unknown_below_five_batches_of_one() -> None:
    assert speedup(ran((8.0, 1.0)), ran(*SINGLES[1:], (8.0, 1.0))) == (None, LEAST_SINGLES - 1)
    assert speedup(ran(), ran(*SINGLES)) == (None, 0)


@pytest.mark.parametrize(
    "others", [{"tokens": 1}, {"tokens": 64}, {"prompts": 200}, {"are_open": True}], ids=lambda other: next(iter(other))
)
def test_that_batches_of_one_that_are_not_alike_do_not_count(others: dict[str, Any]) -> None:
    """Such as the one token that a replica generates to warm up."""
    assert speedup(ran((4.0, 0.8)), ran(*SINGLES, **others)) == (None, 0)


def test_that_segments_of_a_continuous_batch_are_alike_whatever_their_lengths() -> None:
    segments = ran(*SINGLES, tokens=90, are_open=True)
    assert speedup(ran((4.0, 0.2), tokens=3, are_open=True), segments) == (pytest.approx(60 / 150), LEAST_SINGLES)


def test_that_the_speed_up_of_a_history_is_that_of_its_steps() -> None:
    steps = (Step(0.0, 1.0, Settings(max_batch_size=1)), Step(20.0, 40.0, Settings(max_batch_size=8)))
    now = figures(filled_history(SyntheticRun(40.0, steps))[0])
    alone_s, together_s = (0.030 + rows * 0.0018 for rows in (1, 8))
    assert now.speedup_over_batch_1 == pytest.approx(8 * alone_s / together_s, rel=0.1)
    assert now.single_batches >= LEAST_SINGLES


def test_that_batches_of_one_are_forgotten_after_five_minutes() -> None:
    steps = (
        Step(0.0, 1.0, Settings(max_batch_size=1)),
        Step(20.0, 0.0),
        Step(SINGLES_S + 10.0, 40.0, Settings(max_batch_size=8)),
    )
    now = figures(filled_history(SyntheticRun(SINGLES_S + 40.0, steps))[0])
    assert (now.speedup_over_batch_1, now.single_batches) == (None, 0)
