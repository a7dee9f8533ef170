"""What the engine is asked for and what it reports: a prompt's tokens in, new text out."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Literal, TypeAlias

from service.messages.telemetry import BatchWork

FinishReason: TypeAlias = Literal["stop", "length", "cancelled", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How one completion is drawn and when it ends. A value that exists is valid: construction raises `ValueError`.

    Attributes:
        max_tokens: tokens to generate at most.
        temperature: 0 takes the likeliest token each time.
        top_p: sample from the likeliest tokens that hold this much of the probability.
        seed: makes the draws repeatable, whoever else is in the batch.
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


class Sequence:
    """One prompt on its way through the engine.

    Attributes:
        id: the caller's name for it.
        prompt_ids: the prompt as `TextEngine.encode` returned it.
        tokens: what has been generated so far; only the engine appends.
    """

    def __init__(self, id: str, prompt_ids: SequenceOf[int], sampling: SamplingParams) -> None:
        self.id = id
        self.prompt_ids = tuple(prompt_ids)
        self.sampling = sampling
        self.tokens: list[int] = []
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        """Ask the engine to leave this one out from its next step on; from any thread, at any time."""
        self._cancelled.set()

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled.is_set()


@dataclass(frozen=True, slots=True)
class Progress:
    """What one step did for one sequence; the last of a sequence has a `finish_reason`.

    Attributes:
        text: new since the last; the completion is the sum. May be empty while a character or a possible stop text is
            incomplete.
        tokens: generated so far.
        error: a sentence, where `finish_reason` is `error`.
    """

    sequence: Sequence
    text: str
    tokens: int
    finish_reason: FinishReason | None = None
    error: str | None = None


# What a step did for each row; and who joins, given what was computed so far and whether anybody can.
Emit: TypeAlias = Callable[[list[Progress]], None]
Admit: TypeAlias = Callable[[BatchWork, bool], SequenceOf[Sequence]]
