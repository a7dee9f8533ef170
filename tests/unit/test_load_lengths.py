"""Lengths that are fixed or drawn, and how they are spelled."""

from __future__ import annotations

import argparse
import random
import statistics
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.analysis.observed.descriptions import format_length
from service.commands.load_options import parse_length
from service.load.request_sampler import quantile
from service.messages.load import Length, LognormalLength, UniformLength

LENGTHS = st.one_of(
    st.integers(1, 100_000),
    st.tuples(st.integers(1, 100_000), st.integers(1, 100_000)).map(
        lambda ends: UniformLength(low=min(ends), high=max(ends))
    ),
    st.builds(
        LognormalLength,
        median=st.integers(1, 100_000),
        sigma=st.integers(1, 500).map(lambda percent: percent / 100),
        cap=st.integers(1, 100_000),
    ),
)


def drawn(length: Length, count: int = 5000, stream: str = "a") -> list[int]:
    shares = random.Random(stream)
    return [quantile(length, shares.random()) for _ in range(count)]


def test_that_a_fixed_length_is_always_the_same() -> None:
    assert set(drawn(24)) == {24}


def test_that_every_length_of_a_range_is_as_likely() -> None:
    counts = Counter(drawn(UniformLength(low=8, high=12)))
    assert set(counts) == {8, 9, 10, 11, 12}
    assert min(counts.values()) > 900


def test_that_a_lognormal_length_has_its_median_and_its_tail_ends_at_the_cap() -> None:
    lengths = drawn(LognormalLength(median=32, sigma=0.6, cap=100))
    assert statistics.median(lengths) == pytest.approx(32, abs=1)
    assert statistics.quantiles(lengths, n=100)[83] == pytest.approx(32 * 2.718**0.6, rel=0.06)
    assert max(lengths) == 100


@given(length=LENGTHS, share=st.floats(0, 1, exclude_max=True))
def test_that_no_length_is_below_one_or_above_what_was_asked_for(length: Length, share: float) -> None:
    match length:
        case UniformLength(low=low, high=high):
            assert low <= quantile(length, share) <= high
        case LognormalLength(cap=cap):
            assert 1 <= quantile(length, share) <= cap
        case _:
            assert quantile(length, share) == length


def test_that_the_same_stream_gives_the_same_order_of_short_and_long() -> None:
    length = UniformLength(low=1, high=100)
    assert drawn(length, 50) == drawn(length, 50)
    assert drawn(length, 50) != drawn(length, 50, stream="b")
    ranked = sorted(range(50), key=drawn(UniformLength(low=1, high=100_000), 50).__getitem__)
    assert ranked == sorted(range(50), key=drawn(LognormalLength(median=2000, sigma=1, cap=100_000), 50).__getitem__)


@given(length=LENGTHS)
def test_that_what_is_spelled_is_read_again(length: Length) -> None:
    assert parse_length(format_length(length)) == length


@pytest.mark.parametrize(
    ("text", "length"),
    [
        (" 24 ", 24),
        ("8-128", UniformLength(low=8, high=128)),
        ("8 – 128", UniformLength(low=8, high=128)),
        ("lognormal( 32, 0.6, 256 )", LognormalLength(median=32, sigma=0.6, cap=256)),
    ],
)
def test_that_lengths_are_read(text: str, length: Length) -> None:
    assert parse_length(text) == length


@pytest.mark.parametrize(
    "text", ["", "0", "-3", "9-3", "0-5", "1.5", "８", "lognormal(32)", "lognormal(32,0,64)", "lognormal(1,9,2)", "1e3"]
)
def test_that_nonsense_is_refused_in_words(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"is no length: .+\.$"):
        parse_length(text)
