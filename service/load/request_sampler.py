"""Draws what each request of a load asks for: its prompt, its length and `max_tokens`."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from statistics import NormalDist
from typing import Final, NamedTuple

from service.load.trace_file import TraceEntry
from service.messages.load import LOAD_BOUNDS, Length, LognormalLength, RunLoad, UniformLength


class RequestSpec(NamedTuple):
    """What one request asks for."""

    prompt: str
    max_tokens: int


class PromptDeck:
    """Deals the prompts of a load: each once a round, every round in a new order."""

    def __init__(self, prompts: tuple[str, ...], seed: int) -> None:
        self._prompts = prompts
        self._random = random.Random(f"prompts-{seed}")
        self._round: list[str] = []

    def draw(self) -> str:
        if not self._round:
            self._round = list(self._prompts)
            self._random.shuffle(self._round)
        return self._round.pop()


class Filler:
    """Cuts prompts to a number of words, or continues them with words drawn from all of them."""

    def __init__(self, prompts: tuple[str, ...], seed: int) -> None:
        self._vocabulary = sorted({word for prompt in prompts for word in prompt.split()}) or ["and"]
        self._random = random.Random(f"words-{seed}")

    def fit(self, prompt: str, count: int) -> str:
        words = prompt.split()[:count]
        words += self._random.choices(self._vocabulary, k=count - len(words))
        return " ".join(words)


class RequestSampler:
    """Draws the requests of a load in an order that the seed decides.

    Prompts, prompt lengths and completion lengths each have a random stream of their own, so that a change of one does
    not shift the others.
    """

    def __init__(self, load: RunLoad, trace: Sequence[TraceEntry] = ()) -> None:
        self._deck = PromptDeck(load.prompts, load.seed)
        self._filler = Filler(load.prompts, load.seed)
        self._prompt_words = Lengths(f"prompt-lengths-{load.seed}")
        self._max_tokens = Lengths(f"lengths-{load.seed}")
        self._trace = iter(trace)

    def revised(self, before: RunLoad, load: RunLoad) -> RequestSampler:
        """What to go on with when `load` takes over from `before` while it runs."""
        if before.seed != load.seed:
            return RequestSampler(load)
        if before.prompts != load.prompts:
            self._deck = PromptDeck(load.prompts, load.seed)
            self._filler = Filler(load.prompts, load.seed)
        return self

    def draw(self, load: RunLoad) -> RequestSpec:
        """What the next request asks for, with the lengths of `load`."""
        prompt = self._deck.draw() if load.prompts else ""
        words = None if load.prompt_words is None else self._prompt_words.draw(load.prompt_words)
        max_tokens = self._max_tokens.draw(load.max_tokens)
        entry = next(self._trace, None)
        if entry is not None:
            max_tokens = entry.max_tokens or max_tokens
            words = entry.prompt_words or words
            if entry.prompt is not None:
                return RequestSpec(entry.prompt, max_tokens)
        return RequestSpec(prompt if words is None else self._filler.fit(prompt, words), max_tokens)


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
