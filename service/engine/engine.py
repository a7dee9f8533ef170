"""A text generator for batches: prompts in, text of all of them step by step out.

The engine knows nothing of Ray, HTTP or queues. One thread calls `TextEngine.generate` with a batch and gets it back
when every sequence has ended; `encode` may be called by others meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf
from typing import TYPE_CHECKING

from service.engine.batch import Batch, Forward, Step, make_step
from service.engine.detokenize import Detokenizer
from service.engine.encode import Encoder, InvalidText
from service.engine.failure import Failure, attempt
from service.engine.job import Admit, Emit, Progress
from service.engine.memory_limit import MemoryLimit
from service.engine.open_batch import OpenBatch, sum_of
from service.engine.row import Row
from service.engine.sequence import SamplingParams, Sequence
from service.messages.telemetry import BatchWork

if TYPE_CHECKING:
    from service.model.load import LoadedModel

logger = logging.getLogger(__name__)


_UNFIT_LOGITS = "The model computed values that are not numbers (NaN or infinite) for this prompt."


class TextEngine:
    """Decodes batches with one model.

    Attributes:
        name: the model's.
        context_length: tokens that a prompt and its completion may have together.
    """

    def __init__(self, loaded: LoadedModel) -> None:
        self.name = loaded.name
        self.context_length = loaded.context_length
        self._encoder = Encoder(loaded.tokenizer, loaded.context_length, loaded.vocabulary)
        self._detokenizer = Detokenizer(loaded.tokenizer)
        self._eos = loaded.end_tokens
        self._forward = Forward(loaded.forward, loaded.device)
        self._memory = MemoryLimit()
        self._work = BatchWork()  # for the batch that is being decoded

    def encode(self, prompt: str, max_tokens: int) -> list[int]:
        """The tokens of `prompt`; raises a `PromptError` (a `ValueError`) that says why if it can't be completed."""
        return self._encoder.encode(prompt, max_tokens)

    def job(self, id: str, input: str, sampling: SamplingParams) -> Sequence:
        """The sequence of a prompt; raises as `encode` does."""
        if not isinstance(input, str):
            raise InvalidText(f"A prompt is a text, not {str(input)[:80]}.")
        return Sequence(id, self.encode(input, sampling.max_tokens), sampling)

    def generate(self, sequences: SequenceOf[Sequence], emit: Emit, admit: Admit | None = None) -> BatchWork:
        """Decode `sequences` together until all have ended; blocks. Returns what was computed for them.

        With `admit` others join: it is called between two steps with what was computed so far and whether anybody can
        join now, and returns those who do. Their prompts are read in parts, one in each step of those who run, which is
        longer for it by a tenth of a second at most on two cores, or in proportion by more if more join than run.

        `emit` gets the progress of all rows once a step, in this thread, and an empty list as a sign of life after each
        part of long prompts that was read. Each sequence gets exactly one `Progress` with a `finish_reason`. If the
        model raises, the step is repeated by halves until only those sequences that cause it have ended with an error;
        the others go on where they were. A batch that memory does not hold is decoded in parts, one after the other;
        for a while later ones are too, of the size that was held. What `emit` raises passes through.
        """
        self._work = BatchWork()
        rows = self._rows(sequences)
        if admit is not None:
            self._decode(rows, emit, admit)
        else:
            self._decode_parts(self._memory.parts(rows), emit)
        return self._work

    def _rows(self, sequences: SequenceOf[Sequence]) -> list[Row]:
        return [Row(sequence, self._detokenizer, self._eos) for sequence in sequences]

    def _decode_parts(self, parts: SequenceOf[list[Row]], emit: Emit) -> None:
        self._work = sum_of(self._work, BatchWork(splits=len(parts) - 1))
        for part in parts:
            self._decode(part, emit)

    def _decode(self, rows: list[Row], emit: Emit, admit: Admit | None = None) -> None:
        while failure := self._run_open(rows, emit, admit) if admit else self._run(rows, emit):
            rows = _unfinished(rows)
            logger.warning("A batch of %d failed: %s", len(rows), failure)
            if failure.is_out_of_memory and len(rows) > 1:
                self._memory.lower(len(rows) // 2)
                self._decode_parts(_halves(rows), emit)
                return
            self._isolate(rows, failure, emit)

    def _isolate(self, rows: list[Row], failure: Failure, emit: Emit) -> None:
        """Give each of `rows` one more token, by halves, so that `failure` ends only those which cause it."""
        if len(rows) == 1:
            emit([rows[0].fail(f"The model failed on this request: {failure}")])
            return
        for half in _halves(rows):
            if renewed := self._run(half, emit, single_step=True):
                self._isolate(_unfinished(half), renewed, emit)

    def _run(self, rows: list[Row], emit: Emit, *, single_step: bool = False) -> Failure | None:
        """Compute `rows` from their tokens on until all are done, or for one token; returns what the model raised."""
        live = _end_cancelled(rows, emit)
        if not live:
            return None
        batch = attempt(lambda: Batch(self._forward, live))
        if isinstance(batch, Failure):
            return batch
        try:
            return self._step_through(batch, rows, emit, single_step)
        finally:
            self._work = sum_of(self._work, batch.work)

    def _step_through(self, batch: Batch, rows: list[Row], emit: Emit, single_step: bool) -> Failure | None:
        while True:
            progress = self._step([batch])
            if isinstance(progress, Failure):
                return progress
            emit(progress)
            if (progress and single_step) or not _end_cancelled(rows, emit):
                return None

    def _step(self, batches: list[Batch]) -> list[Progress] | Failure:
        """What a step gives the rows: nothing to those whose prompts remain unread."""
        steps = attempt(lambda: make_step(self._forward, batches))
        if isinstance(steps, Failure):
            return steps
        return [each for batch, step in zip(batches, steps, strict=True) if step for each in _advance(batch.rows, step)]

    def _run_open(self, rows: list[Row], emit: Emit, admit: Admit) -> Failure | None:
        """As `_run`, while others join; whoever does is added to `rows`."""
        open_batch, before = OpenBatch(self._forward, rows, self._memory), self._work
        rows[:] = _end_cancelled(rows, emit)
        while rows:
            batches = attempt(open_batch.for_step)
            progress = batches if isinstance(batches, Failure) else self._step(batches)
            self._work = sum_of(before, open_batch.work)
            if isinstance(progress, Failure):
                joining = open_batch.put_back(progress)
                if joining is None:
                    return progress
                self._rescue(joining, progress, emit)
                rows[:] = _end_cancelled(rows, emit)
            else:
                emit(progress)
                rows[:] = _end_cancelled(rows, emit)
                newcomers = self._rows(admit(self._work, open_batch.can_join))
                open_batch.join(newcomers)
                rows += newcomers
        return None

    def _rescue(self, joining: list[Row], failure: Failure, emit: Emit) -> None:
        """One of the rows that were to join made the model fail, or memory lacks for all of them at present."""
        logger.warning("%d requests could not join: %s", len(joining), failure)
        if not failure.is_out_of_memory:
            self._isolate(joining, failure, emit)


def _advance(rows: SequenceOf[Row], step: Step) -> list[Progress]:
    """Give each row its token. A row whose token can't be used, for whatever reason, ends alone."""
    return [_advance_row(*each) for each in zip(rows, step.tokens, step.is_fit, strict=True)]


def _advance_row(row: Row, token: int, is_fit: bool) -> Progress:
    if not is_fit:
        return row.fail(_UNFIT_LOGITS)
    progress = attempt(lambda: row.advance(token))
    if isinstance(progress, Failure):
        return row.fail(f"The text of this completion could not be written: {progress}")
    return progress


def _end_cancelled(rows: Iterable[Row], emit: Emit) -> list[Row]:
    """End those of `rows` that were cancelled; returns those that are not done."""
    unfinished = _unfinished(rows)
    if cancelled := [row.cancel() for row in unfinished if row.sequence.is_cancelled]:
        emit(cancelled)
    return _unfinished(unfinished)


def _unfinished(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if not row.is_done]


def _halves(rows: list[Row]) -> tuple[list[Row], list[Row]]:
    middle = len(rows) // 2
    return rows[:middle], rows[middle:]
