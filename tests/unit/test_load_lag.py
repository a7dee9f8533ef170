"""The generator's own lag."""

from __future__ import annotations

import random

import pytest

from service.load.generator import LagWindow


def test_that_nothing_sent_has_no_lag() -> None:
    assert LagWindow().p99_ms(5.0) is None


def test_that_the_percentile_is_right_to_five_percent() -> None:
    window, drawn = LagWindow(), random.Random(1)
    lags_s = [drawn.expovariate(1000) for _ in range(10_000)]
    for number, lag_s in enumerate(lags_s):
        window.record(number / 1000, lag_s)
    exact_ms = sorted(lags_s)[9_899] * 1e3
    measured_ms = window.p99_ms(10.0)
    assert measured_ms is not None
    assert exact_ms <= measured_ms <= exact_ms * 1.05


def test_that_lag_is_forgotten_after_ten_seconds() -> None:
    window = LagWindow()
    window.record(0.5, 1.0)
    window.record(8.0, 0.001)
    assert window.p99_ms(10.4) == pytest.approx(1000, rel=0.05)
    assert window.p99_ms(11.1) == pytest.approx(1, rel=0.05)
    assert window.p99_ms(19.1) is None


@pytest.mark.parametrize("lag_s", [-0.001, 0.0, 1e9])
def test_that_an_odd_lag_is_counted_at_the_edge(lag_s: float) -> None:
    window = LagWindow()
    window.record(1.0, lag_s)
    assert window.p99_ms(1.0) is not None
