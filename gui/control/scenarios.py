"""Loads by what they stand for, as shares of the capacity of the service that runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gui.panels.scenarios import Scenario
from service.messages.load import (
    LOAD_BOUNDS,
    ClosedLoop,
    GammaArrivals,
    LognormalLength,
    Poisson,
    Ramp,
    format_rate,
    longest,
    mean,
)
from service.messages.text import counted, significant

UNKNOWN_PER_S: Final = 7.0  # in the place of a capacity that is not known
USERS_A_PLACE: Final = 2  # in a batch, so that half of them wait
MIXED: Final = LognormalLength(median=16, sigma=1.2, cap=160)


def scenarios(full_per_s: float | None, places: int, tokens: float | None) -> tuple[Scenario, ...]:
    """Those for a service that answers `full_per_s` requests a second with full batches, of `places` places together.

    Args:
        full_per_s: ``None`` where it is not known, and so no share of it.
        places: of the batches of all replicas.
        tokens: that an answer has on average; ``None`` for a function, whose answers are all as long.

    >>> for each in scenarios(14.5, 16, 24.0):
    ...     print(f"{each.title}: {each.said}")
    Calm: 30 % 4.3 req/s
    Rush hour: 30 to 90 % 4.3 to 13.1 req/s
    Bursts: 50 % 7.2 req/s, in clusters
    Long among short: 50 % 5.3 req/s, up to 160 tokens
    Overload: 130 % 18.9 req/s
    Stuck in line: 32 users wait for answers
    >>> scenarios(None, 16, None)[0].said
    '2.1 req/s'
    """
    return tuple(_scenarios(full_per_s, places, tokens))


def _scenarios(full_per_s: float | None, places: int, tokens: float | None) -> Iterator[Scenario]:
    calm, busy, half, over = (_rate(share, full_per_s) for share in (0.3, 0.9, 0.5, 1.3))

    def shares(words: str) -> str:
        return "" if full_per_s is None else f"{words} %"

    yield Scenario("Calm", shares("30"), _said(calm), Poisson(rate_per_s=calm), (0.3,) * 16)
    rising = tuple(0.3 + 0.04 * number for number in range(16))
    ramp = Ramp(rate_per_s=calm, rate_to_per_s=busy, over_s=60)
    yield Scenario("Rush hour", shares("30 to 90"), _said(calm, busy), ramp, rising)
    clusters = (0.0, 0.9, 0.8, 0.0, 0.0, 0.0, 0.1, 0.0, 0.0, 0.9, 1.0, 0.7, 0.0, 0.0, 0.1, 0.0)
    bursts = GammaArrivals(rate_per_s=half, shape=0.1)
    yield Scenario("Bursts", shares("50"), f"{_said(half)}, in clusters", bursts, clusters)
    if tokens is not None:
        slower = _rate(0.5 * tokens / mean(MIXED), full_per_s)
        words = f"{_said(slower)}, up to {longest(MIXED)} tokens"
        few_long = (0.2, 0.2, 0.3, 0.2, 1.0, 0.2, 0.2, 0.3, 0.2, 0.2, 0.9, 0.2, 0.3, 0.2, 0.2, 0.2)
        yield Scenario("Long among short", shares("50"), words, Poisson(rate_per_s=slower), few_long, MIXED)
    yield Scenario("Overload", shares("130"), _said(over), Poisson(rate_per_s=over), (1.0,) * 16)
    users = USERS_A_PLACE * places
    yield Scenario("Stuck in line", counted(users, "user"), "wait for answers", ClosedLoop(users=users), (0.7, 0.4) * 8)


def _rate(share: float, full_per_s: float | None) -> float:
    full_per_s = UNKNOWN_PER_S if full_per_s is None else full_per_s
    return max(significant(share * full_per_s, 3), LOAD_BOUNDS["rate_per_s"].low)


def _said(*rates_per_s: float) -> str:
    return " to ".join(map(format_rate, rates_per_s)) + " req/s"
