"""What each request of a load asks for: its prompt and how many tokens."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from service.load.lengths import Lengths
from service.load.trace_file import TraceEntry
from service.messages.load import RunLoad


class Asked(NamedTuple):
    """What one request asks for."""

    prompt: str
    max_tokens: int


class PromptDeck:
    """The prompts of a load, each once a round, every round shuffled anew."""

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


class Asking:
    """Draws what the requests of a load ask for, each a draw, in an order that the seed decides.

    Prompts, their lengths and those of the completions have random streams of their own: none is shifted by a change
    of another.
    """

    def __init__(self, load: RunLoad, trace: Sequence[TraceEntry] = ()) -> None:
        self._deck = PromptDeck(load.prompts, load.seed)
        self._filler = Filler(load.prompts, load.seed)
        self._prompt_words = Lengths(f"prompt-lengths-{load.seed}")
        self._max_tokens = Lengths(f"lengths-{load.seed}")
        self._trace = iter(trace)

    def revised(self, before: RunLoad, load: RunLoad) -> Asking:
        """What to go on with when `load` takes over from `before` while it runs."""
        if before.seed != load.seed:
            return Asking(load)
        if before.prompts != load.prompts:
            self._deck = PromptDeck(load.prompts, load.seed)
            self._filler = Filler(load.prompts, load.seed)
        return self

    def draw(self, load: RunLoad) -> Asked:
        """What the next request asks for, with the lengths of `load`."""
        prompt = self._deck.draw() if load.prompts else ""
        words = None if load.prompt_words is None else self._prompt_words.draw(load.prompt_words)
        max_tokens = self._max_tokens.draw(load.max_tokens)
        entry = next(self._trace, None)
        if entry is not None:
            max_tokens = entry.max_tokens or max_tokens
            words = entry.prompt_words or words
            if entry.prompt is not None:
                return Asked(entry.prompt, max_tokens)
        return Asked(prompt if words is None else self._filler.fit(prompt, words), max_tokens)
