"""Predictions from a run under one setting, held against runs of the same arrivals under others."""

from __future__ import annotations

from functools import cache
from itertools import accumulate
from random import Random

import numpy as np
import pytest

from service.analysis.observed.history import History
from service.analysis.predict.cost import CostModel
from service.analysis.predict.load import Requests, users_of
from service.analysis.predict.predict import Prediction, predict
from service.messages.settings import Formation, Settings
from service.messages.telemetry import BatchWork
from tests.synthetic_run import CLOCK, Step, SyntheticBatch, SyntheticRun

SPAN_S = 60.0
OBSERVED = Settings(max_batch_size=8, batch_wait_timeout_s=0.05)
UNSEEN = [
    Settings(max_batch_size=16, batch_wait_timeout_s=0.2),
    Settings(max_batch_size=32, batch_wait_timeout_s=0.5),
    Settings(max_batch_size=6, batch_wait_timeout_s=0.0),
    Settings(formation="early", max_batch_size=16, batch_wait_timeout_s=1.0),
    Settings(formation="early", max_batch_size=8, batch_wait_timeout_s=1.5),
    Settings(max_batch_size=8, batch_wait_timeout_s=0.05, allow_small_batch=False),
    Settings(max_batch_size=32, batch_wait_timeout_s=0.0, stride_s=2.0),
]


def run_of(settings: Settings, rate_per_s: float) -> SyntheticRun:
    return SyntheticRun(SPAN_S, (Step(0.0, rate_per_s, settings),), seed=3, outside_share=0.3)


@cache
def observed(rate_per_s: float = 4.0) -> History:
    run = run_of(OBSERVED, rate_per_s)
    history = History(CLOCK, lambda: run.start_s + SPAN_S)
    run.fill(history)
    return history


def predicted(settings: Settings, rate_per_s: float = 4.0) -> Prediction:
    prediction = predict(observed(rate_per_s), settings, over_s=SPAN_S)
    assert prediction is not None
    return prediction


def latencies_s(run: SyntheticRun) -> list[float]:
    return [r.batch.finished_s - r.received_s for r in run.requests if r.batch and r.batch.finished_s]


@pytest.mark.parametrize("settings", UNSEEN, ids=str)
def test_that_settings_it_has_not_seen_are_predicted(settings: Settings) -> None:
    run, prediction = run_of(settings, 4.0), predicted(settings)
    p50_s, p95_s = np.percentile(latencies_s(run), (50, 95))
    assert prediction.p50_s.value == pytest.approx(p50_s, rel=0.1)
    assert prediction.p95_s.value == pytest.approx(p95_s, rel=0.15)
    assert prediction.requests_per_s.value == pytest.approx(len(run.requests) / SPAN_S, rel=0.05)
    assert prediction.tokens_per_s.value == pytest.approx(24 * len(run.requests) / SPAN_S, rel=0.05)
    assert prediction.mean_batch.value == pytest.approx(len(run.requests) / len(run.batches), rel=0.1)


class OneCallABatch(SyntheticRun):
    """Of a function that streams: what comes in 24 pieces is one call."""

    def _run(self, batch: SyntheticBatch, engine_free_s: float) -> float:
        for member in batch.members:
            member.prompt_tokens = 0
        ends_s = super()._run(batch, engine_free_s)
        batch.work = BatchWork(steps=1)
        return ends_s


@pytest.mark.parametrize("settings", [UNSEEN[0], UNSEEN[3]], ids=str)
def test_that_a_function_that_streams_is_predicted_by_its_calls(settings: Settings) -> None:
    run, other = (OneCallABatch(SPAN_S, (Step(0.0, 4.0, each),), seed=3) for each in (OBSERVED, settings))
    history = History(CLOCK, lambda: run.start_s + SPAN_S)
    run.fill(history)
    prediction = predict(history, settings, over_s=SPAN_S)
    assert prediction is not None
    assert prediction.p50_s.value == pytest.approx(np.percentile(latencies_s(other), 50), rel=0.1)
    assert prediction.requests_per_s.value == pytest.approx(len(other.requests) / SPAN_S, rel=0.05)
    assert prediction.tokens_per_s.value == pytest.approx(24 * len(other.requests) / SPAN_S, rel=0.05)
    cost = CostModel.of_history(history)
    assert cost is not None
    capacity = cost.capacity(8)
    assert capacity.requests_per_s == pytest.approx(8 / (24 * (run.step_s + 8 * run.per_request_s)), rel=0.1)
    assert capacity.tokens_per_s == pytest.approx(24 * capacity.requests_per_s)


def test_that_batches_side_by_side_are_not_predicted_from_batches_one_by_one() -> None:
    assert predict(observed(), OBSERVED.revised({"max_concurrent_batches": 2}), over_s=SPAN_S) is None


def test_that_an_estimate_lies_in_its_interval() -> None:
    for estimate in (predicted(OBSERVED).p50_s, predicted(OBSERVED).p95_s, predicted(OBSERVED).mean_batch):
        assert estimate.low <= estimate.value <= estimate.high
        assert estimate.low < estimate.high


@pytest.mark.parametrize(("rate_per_s", "cap"), [(7.5, 8), (9.5, 12)])
def test_that_close_to_saturation_a_value_stands_where_most_draws_are(rate_per_s: float, cap: int) -> None:
    """A long run there is calm or not by its luck; its value stood at an end of its own band."""
    prediction = predicted(Settings(max_batch_size=cap), rate_per_s)
    for estimate in (prediction.p50_s, prediction.p95_s, prediction.ttft_p50_s):
        assert estimate.low < estimate.value < estimate.high


def test_that_a_queue_that_would_grow_is_told() -> None:
    alone = Settings(max_batch_size=1, batch_wait_timeout_s=0.0)
    prediction = predicted(alone)
    assert prediction.saturated
    assert prediction.horizon_s == 30.0
    assert prediction.p95_s.value > 3 * predicted(OBSERVED).p95_s.value
    assert prediction.requests_per_s.value < 0.5 * predicted(OBSERVED).requests_per_s.value


@pytest.mark.parametrize("formation", ["late", "continuous"])
@pytest.mark.parametrize("cap", [8, 16, 32, 48, 64])
def test_that_an_overloaded_service_is_predicted_to_serve_its_capacity(formation: Formation, cap: int) -> None:
    """Ten seconds hold two or three batches of 48: their count said 9.6 requests/s, or 14.4."""
    prediction = predicted(Settings(formation=formation, max_batch_size=cap), 40.0)
    cost = CostModel.of_history(observed(40.0))
    assert cost is not None
    capacity = cost.capacity(cap)
    assert prediction.saturated
    comes = prediction.trajectory.requests_per_s[-1]
    assert comes is not None
    assert comes.value == pytest.approx(capacity.requests_per_s, rel=0.07)
    for estimate, per_s in (
        (prediction.requests_per_s, capacity.requests_per_s),
        (prediction.tokens_per_s, capacity.tokens_per_s),
    ):
        assert estimate.value == pytest.approx(per_s, rel=0.05)
        assert estimate.low < estimate.value < estimate.high


def test_that_the_band_of_a_rate_holds_what_can_be_counted() -> None:
    """Its value is what is served; what is counted in ten seconds is a batch of 48 more or less."""
    requests_per_s = predicted(Settings(max_batch_size=48), 40.0).requests_per_s
    counts = [48 * batches / 10.0 for batches in range(6)]
    assert sum(requests_per_s.low <= each <= requests_per_s.high for each in counts) >= 2


def test_that_a_queue_that_does_not_grow_is_not_said_to() -> None:
    assert not predicted(OBSERVED).saturated
    assert not predicted(Settings(max_batch_size=32)).saturated


def test_that_refusals_are_foreseen() -> None:
    prediction = predicted(Settings(max_batch_size=1, max_queued_requests=2))
    assert prediction.saturated
    assert prediction.refused_share.value > 0.3


def test_that_the_load_is_known_for_what_it_is() -> None:
    prediction = predicted(OBSERVED)
    assert (prediction.load, prediction.users) == ("open", 0)
    assert prediction.rate_per_s == pytest.approx(len(run_of(OBSERVED, 4.0).requests) / SPAN_S, rel=0.05)


def test_that_nothing_is_said_without_a_load() -> None:
    assert predict(History(CLOCK, lambda: 0.0), OBSERVED) is None


def test_that_a_moment_in_the_past_can_be_asked_for() -> None:
    history = observed()
    prediction = predict(history, OBSERVED, at_s=1000.0 + 30.0)
    assert prediction is not None
    assert prediction.requests < predicted(OBSERVED).requests


def asked(intended_s: list[float], took_s: list[float]) -> Requests:
    """Requests that nobody but the service tells of."""
    begins = np.array(intended_s)
    nothing = np.zeros(len(begins))
    return Requests(
        begins, nothing, begins + np.array(took_s), nothing, nothing.astype(int), nothing.astype(int), nothing > 0
    )


def test_that_users_that_wait_for_their_answers_are_recognised() -> None:
    """Four users whose batches take about a second; each is back within 30 ms."""
    draw = Random(1)
    begins = [batch * 1.03 + draw.uniform(0.0, 0.03) for batch in range(12) for _ in range(4)]
    ends = [(n // 4) * 1.03 + 1.0 for n in range(48)]
    begins.sort()
    requests = asked(begins, [end - begin for begin, end in zip(begins, ends, strict=True)])
    assert users_of(None, requests, at_s=13.0) == 4


def test_that_arrivals_at_random_are_no_users() -> None:
    draw = Random(2)
    begins = list(accumulate(draw.expovariate(4.0) for _ in range(100)))
    assert users_of(None, asked(begins, [1.0 + draw.uniform(0.0, 0.5) for _ in begins]), at_s=begins[-1]) == 0


def test_that_arrivals_by_the_clock_are_no_user() -> None:
    """One request a second that takes nine tenths of it looks like a user that thinks for a tenth."""
    draw = Random(3)
    begins = [float(n) + draw.uniform(0.0, 0.002) for n in range(30)]
    assert users_of(None, asked(begins, [0.9 + draw.uniform(0.0, 0.05) for _ in begins]), at_s=30.0) == 0
