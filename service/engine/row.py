"""A sequence while it is being decoded: its text, its random numbers and how it ends."""

from __future__ import annotations

import random
from collections.abc import Set

from service.engine.detokenize import Detokenizer
from service.engine.job import FinishReason, Progress
from service.engine.sampling import Draw
from service.engine.sequence import Sequence
from service.engine.stop import StopFilter


class Row:
    """Everything about one sequence that must outlive the batch it is computed in."""

    def __init__(self, sequence: Sequence, detokenizer: Detokenizer, eos: Set[int]) -> None:
        self.sequence = sequence
        self.is_done = False
        self._eos = frozenset() if sequence.sampling.ignore_eos else eos
        self._text = detokenizer.stream(sequence.prompt_ids)
        self._stop = StopFilter(sequence.sampling.stop)
        self._random = random.Random(sequence.sampling.seed)
        self._uniform: float | None = None

    @property
    def token_ids(self) -> list[int]:
        """The prompt and what has been generated, which is all that a forward pass needs to go on."""
        return [*self.sequence.prompt_ids, *self.sequence.tokens]

    @property
    def length(self) -> int:
        return len(self.sequence.prompt_ids) + len(self.sequence.tokens)

    def draw(self, row: int) -> Draw | None:
        """How to sample the next token, as row `row` of the batch; the same again until that token has come."""
        sampling = self.sequence.sampling
        if sampling.is_greedy:
            return None
        if self._uniform is None:
            self._uniform = self._random.random()
        return Draw(row, sampling.temperature, sampling.top_p, self._uniform)

    def advance(self, token: int) -> Progress:
        """Take the next token."""
        self._uniform = None
        self.sequence.tokens.append(token)
        if token in self._eos:
            return self._end("stop")
        text = self._stop.push(self._text.push(token))
        if self._stop.has_stopped:
            return self._end("stop", text)
        if len(self.sequence.tokens) >= self.sequence.sampling.max_tokens:
            return self._end("length", text)
        return Progress(self.sequence, text, len(self.sequence.tokens))

    def cancel(self) -> Progress:
        """End as the caller asked."""
        return self._end("cancelled")

    def fail(self, error: str) -> Progress:
        """End with `error`, a sentence."""
        self.is_done = True
        return Progress(self.sequence, "", len(self.sequence.tokens), "error", error)

    def _end(self, reason: FinishReason, text: str = "") -> Progress:
        """The last progress, with all text that was still held back."""
        self.is_done = True
        if not self._stop.has_stopped:
            text += self._stop.push(self._text.flush())
        if not self._stop.has_stopped:
            text += self._stop.flush()
        elif reason == "length":
            reason = "stop"
        return Progress(self.sequence, text, len(self.sequence.tokens), reason)
