"""Lengths of prompts and completions: fixed, or drawn from a distribution."""

from __future__ import annotations

import math
import random
import re
from statistics import NormalDist
from typing import Final

from service.messages.load import LOAD_BOUNDS, Length, LognormalLength, UniformLength

NOTATION: Final = 'a number ("24"), a range ("8-128") or "lognormal(32,0.6,256)": median, sigma and cap'

_RANGE = re.compile(r"(\d{1,9})\s*[-–]\s*(\d{1,9})")
_LOGNORMAL = re.compile(r"lognormal\(\s*(\d{1,9})\s*,\s*(\d{1,3}(?:\.\d{1,6})?)\s*,\s*(\d{1,9})\s*\)")


class Lengths:
    """Draws lengths.

    One random number a draw, whatever the distribution, is turned into the length at that quantile. So the same seed
    gives the same order of short and long whatever is drawn from, and a change of distribution does not shift what
    comes after it.
    """

    def __init__(self, stream: str) -> None:
        self._random = random.Random(stream)

    def draw(self, length: Length) -> int:
        return quantile(length, self._random.random())


def quantile(length: Length, share: float) -> int:
    """The length below which that share of all lengths lies.

    >>> quantile(UniformLength(low=8, high=12), 0.5)
    10
    >>> quantile(LognormalLength(median=32, sigma=0.6, cap=256), 0.5)
    32
    """
    match length:
        case UniformLength(low=low, high=high):
            return low + int(share * (high - low + 1))
        case LognormalLength(median=median, sigma=sigma, cap=cap):
            if share == 0:
                return 1
            drawn = median * math.exp(sigma * NormalDist().inv_cdf(share))
            return max(1, min(cap, round(drawn)))
        case _:
            return length


def parse_length(text: str) -> Length:
    """The length that `text` spells; raises `ValueError` with a sentence."""
    text = text.strip()
    try:
        if text.isascii() and text.isdecimal():
            return _whole(text)
        if found := _RANGE.fullmatch(text):
            return UniformLength(low=_whole(found[1]), high=_whole(found[2]))
        if found := _LOGNORMAL.fullmatch(text):
            return LognormalLength(median=_whole(found[1]), sigma=_sigma(found[2]), cap=_whole(found[3]))
    except ValueError as e:
        raise ValueError(f"{text!r} is no length: {e}") from e
    raise ValueError(f"{text!r} is no length: give {NOTATION}.")


def _whole(text: str) -> int:
    number, bounds = int(text), LOAD_BOUNDS["tokens"]
    if not bounds.low <= number <= bounds.high:
        raise ValueError(f"it must lie from {bounds.low:g} to {bounds.high:,.0f}.")
    return number


def _sigma(text: str) -> float:
    sigma = float(text)
    if not 0 < sigma <= 5:
        raise ValueError("its sigma must be above 0 and at most 5.")
    return sigma
