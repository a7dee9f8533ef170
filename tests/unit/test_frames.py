from __future__ import annotations

import random

import pytest

from gui.control.clocks import BIN_MS, FrameMeter


def test_that_without_frames_nothing_is_known() -> None:
    times = FrameMeter().times()

    assert (times.count, times.p50_ms, times.p99_ms, times.max_ms) == (0, None, None, None)
    assert FrameMeter().recent_p99_ms() is None


def test_that_percentiles_are_exact_to_a_bin_and_never_flatter() -> None:
    meter = FrameMeter()
    values = [random.Random(7).uniform(1, 60) for _ in range(5000)]
    for value in values:
        meter.record(value)
    values.sort()

    times = meter.times()

    assert times.count == 5000
    assert times.p50_ms == pytest.approx(values[2499], abs=BIN_MS)
    assert times.p99_ms == pytest.approx(values[4949], abs=BIN_MS)
    assert times.p99_ms is not None
    assert times.p99_ms >= values[4949] - 1e-9
    assert times.max_ms == pytest.approx(values[-1], abs=0.01)


def test_that_one_slow_frame_in_a_hundred_shows_in_the_maximum_and_two_in_the_p99() -> None:
    meter = FrameMeter()
    for _ in range(99):
        meter.record(5.0)
    meter.record(300.0)
    assert (meter.times().p99_ms, meter.times().max_ms) == (5.0, 300.0)

    meter.record(300.0)
    assert meter.times().p99_ms == 300.0


def test_that_a_frame_longer_than_all_bins_counts_with_its_true_length() -> None:
    meter = FrameMeter()
    meter.record(60_000.0)

    assert meter.times().p99_ms == 60_000.0


def test_that_recent_frames_forget_old_ones() -> None:
    meter = FrameMeter()
    meter.record(500.0)
    for _ in range(300):
        meter.record(4.0)

    assert meter.recent_p99_ms() == 4.0
    assert meter.times().max_ms == 500.0


def test_that_a_reset_meter_knows_nothing() -> None:
    meter = FrameMeter()
    meter.record(4.0)
    meter.reset()

    assert meter.times().count == 0
    assert meter.recent_p99_ms() is None
