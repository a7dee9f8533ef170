"""What the text engine is asked for: a prompt's tokens, and how to go on from there."""

from __future__ import annotations

import math
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

from service.engine.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How one completion is drawn and when it ends. A value that exists is valid: construction raises `ValueError`.

    Attributes:
        max_tokens: tokens to generate at most.
        temperature: 0 takes the likeliest token each time.
        top_p: sample from the likeliest tokens that hold this much of the probability.
        seed: makes the draws repeatable, whatever else is in the batch.
        stop: texts that end the completion; they are not part of it.
        ignore_eos: go on to `max_tokens` even where the model says that it is done.
    """

    max_tokens: int = 24
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ValueError("max_tokens must be at least 1.")
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ValueError("temperature must be a finite number, 0 or more.")
        if not 0 < self.top_p <= 1:
            raise ValueError("top_p must be above 0 and at most 1.")
        if not all(self.stop):
            raise ValueError("stop must not contain an empty text.")

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token is taken; so small a temperature that nothing else has a chance counts too."""
        return self.temperature < 1e-5


class Sequence(Job):
    """One prompt on its way through the engine.

    Attributes:
        prompt_ids: the prompt as `TextEngine.encode` returned it.
        tokens: what has been generated so far; only the engine appends.
    """

    def __init__(self, id: str, prompt_ids: SequenceOf[int], sampling: SamplingParams) -> None:
        super().__init__(id, len(prompt_ids), sampling.max_tokens)
        self.prompt_ids = tuple(prompt_ids)
        self.sampling = sampling
        self.tokens: list[int] = []
