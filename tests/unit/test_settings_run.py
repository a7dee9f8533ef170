"""Every value of every setting is either refused in a sentence, or batches can be formed under it."""

from __future__ import annotations

import asyncio
import itertools
import math
import sys
from types import SimpleNamespace
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from ray.serve import batching

from service.batching.batcher import Batcher
from service.batching.rules import Rules
from service.messages.settings import (
    BOUNDS,
    FORMATIONS,
    SCALE_BOUNDS,
    Bounds,
    Scale,
    SettingError,
    Settings,
    VersionedSettings,
)
from tests.virtual_time import now_s, run_in_virtual_time

TINY: Final = (5e-324, 1e-310, sys.float_info.min, 1e-300, 1e-9)
ALL_BOUNDS: Final = {**BOUNDS, **SCALE_BOUNDS}
UPTIME_S: Final = 1e8
"""A monotonic clock counts from the start of the machine: here it has run for three years."""


def around(bounds: Bounds) -> list[float]:
    """Values at the edges of what is accepted, on both sides."""
    edges = (bounds.low, bounds.high, bounds.least)
    near = [math.nextafter(edge, towards) for edge in edges for towards in (-math.inf, math.inf)]
    whole = [int(edge) + step for edge in edges for step in (-1, 0, 1)]
    extremes = [-0.0, math.nan, math.inf, -math.inf, sys.float_info.max, 10**400, True, False]
    return [*edges, *near, *whole, *TINY, *(-tiny for tiny in TINY), *extremes]


def settings_of(values: dict[str, Any]) -> Settings | Scale:
    revised = Scale().revised(values) if values.keys() <= SCALE_BOUNDS.keys() else Settings().revised(values)
    assert isinstance(revised, Settings | Scale)
    return revised


def is_accepted(values: dict[str, Any]) -> bool:
    try:
        settings_of(values)
    except SettingError:
        return False
    return True


@pytest.mark.parametrize("field", ALL_BOUNDS)
def test_a_value_at_the_edge_that_is_accepted_is_kept_as_it_is(field: str) -> None:
    bounds = ALL_BOUNDS[field]
    for value in around(bounds):
        if is_accepted({field: value}):
            kept = getattr(settings_of({field: value}), field)
            assert kept == value
            assert not isinstance(value, bool)
            assert type(kept) is (int if bounds.integral else float)
            assert math.copysign(1, kept) == 1
            assert bounds.low <= kept <= bounds.high


@pytest.mark.parametrize("field", ALL_BOUNDS)
def test_a_value_beyond_the_edge_is_refused_with_the_field_and_its_rule(field: str) -> None:
    refused = [value for value in around(ALL_BOUNDS[field]) if not is_accepted({field: value})]
    assert {math.inf, -math.inf, 10**400, -5e-324} <= set(refused)
    for value in refused:
        with pytest.raises(SettingError) as refusal:
            settings_of({field: value})
        assert (refusal.value.field, refusal.value.rule) == (field, ALL_BOUNDS[field].rule)


def test_a_period_of_ticks_is_nothing_or_one_that_a_clock_can_tell() -> None:
    with pytest.raises(SettingError, match=r"stride_s: Must be a number from 0\.001 to 5, or 0\."):
        Settings().revised({"stride_s": 5e-324})


def accepted_by(field: str) -> st.SearchStrategy[float]:
    bounds = BOUNDS[field]
    inside = st.integers(int(bounds.low), int(bounds.high)) if bounds.integral else st.floats(bounds.low, bounds.high)
    edges = [value for value in around(bounds) if is_accepted({field: value})]
    return st.sampled_from(edges) | inside.filter(lambda value: is_accepted({field: value}))


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.fixed_dictionaries(
        {},
        optional={
            "formation": st.sampled_from(FORMATIONS),
            "allow_small_batch": st.booleans(),
            **{field: accepted_by(field) for field in BOUNDS},
        },
    ),
    tokens=st.lists(st.integers(1, 100_000), min_size=1, max_size=12),
)
@example(values={"stride_s": 5e-324}, tokens=[1])
@example(values={"stride_s": 1e-320, "formation": "early"}, tokens=[1])
@example(values={"batch_wait_timeout_s": 5e-324, "formation": "early"}, tokens=[1, 2])
@pytest.mark.usefixtures("replica_context")
def test_batches_can_be_formed_under_every_value_that_is_accepted(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, Any], tokens: list[int]
) -> None:
    assume(is_accepted(values))
    ticks = itertools.count()  # a clock never reads the same twice
    clock = SimpleNamespace(
        monotonic=lambda: UPTIME_S + now_s() + next(ticks) * 1e-7, time=lambda: now_s() + next(ticks) * 1e-7
    )
    monkeypatch.setattr(batching, "time", clock)
    assert run_in_virtual_time(served(Settings().revised(values), clock, tokens)) == list(range(len(tokens)))


async def served(accepted: Settings, clock: Any, tokens: list[int]) -> list[int]:
    """Items in the order in which their batches leave, each of which ends before the next begins."""
    forming: Batcher[int] = Batcher(VersionedSettings(version=1, settings=accepted), lambda _: None, clock.monotonic)
    count = min(len(tokens), accepted.max_queued_requests)
    for item in range(count):
        forming.submit(item, tokens[item])
    left: list[int] = []
    while len(left) < count:
        async with asyncio.timeout(60):
            batch = await forming.next_batch()
        assert 1 <= len(batch.entries) <= accepted.max_batch_size
        left += [entry.item for entry in batch.entries]
        forming.free_place()
    return [*left, *range(count, len(tokens))]


@given(ready_s=st.floats(0, 1e10), stride_s=st.floats(BOUNDS["stride_s"].least, BOUNDS["stride_s"].high))
def test_a_tick_is_never_further_than_the_period(ready_s: float, stride_s: float) -> None:
    tick_s = Rules(max_batch_size=1, batch_wait_timeout_s=0.0, stride_s=stride_s).tick_s(ready_s)
    assert ready_s - 1e-5 <= tick_s <= ready_s + stride_s + 1e-5
