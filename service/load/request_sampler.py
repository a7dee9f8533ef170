"""Draws what each request of a load asks for: its prompt, its length and `max_tokens`."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from statistics import NormalDist
from typing import NamedTuple

from service.load.arrivals import TraceEntry
from service.messages.load import Length, LognormalLength, RunLoad, UniformLength


class RequestSpec(NamedTuple):
    """What one request asks for."""

    prompt: str
    max_tokens: int


def dealt(prompts: tuple[str, ...], seed: int) -> Iterator[str]:
    """Deals the prompts of a load: each once a round, every round in a new order. There must be one at least."""
    order = random.Random(f"prompts-{seed}")
    while True:
        deck = list(prompts)
        order.shuffle(deck)
        yield from reversed(deck)


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
    not shift the others. A length takes one random number, whatever its distribution: the same seed gives the same
    order of short and long ones, and a change of distribution does not shift what comes after it.
    """

    def __init__(self, load: RunLoad, trace: Sequence[TraceEntry] = ()) -> None:
        self._deck = dealt(load.prompts, load.seed)
        self._filler = Filler(load.prompts, load.seed)
        self._prompt_lengths = random.Random(f"prompt-lengths-{load.seed}")
        self._lengths = random.Random(f"lengths-{load.seed}")
        self._trace = iter(trace)

    def revised(self, before: RunLoad, load: RunLoad) -> RequestSampler:
        """What to go on with when `load` takes over from `before` while it runs."""
        if before.seed != load.seed:
            return RequestSampler(load)
        if before.prompts != load.prompts:
            self._deck = dealt(load.prompts, load.seed)
            self._filler = Filler(load.prompts, load.seed)
        return self

    def draw(self, load: RunLoad) -> RequestSpec:
        """What the next request asks for, with the lengths of `load`."""
        prompt = next(self._deck) if load.prompts else ""
        words = None if load.prompt_words is None else quantile(load.prompt_words, self._prompt_lengths.random())
        max_tokens = quantile(load.max_tokens, self._lengths.random())
        entry = next(self._trace, None)
        if entry is not None:
            max_tokens = entry.max_tokens or max_tokens
            words = entry.prompt_words or words
            if entry.prompt is not None:
                return RequestSpec(entry.prompt, max_tokens)
        return RequestSpec(prompt if words is None else self._filler.fit(prompt, words), max_tokens)


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
