"""A text generator for batches: prompts in, text of all of them step by step out.

The engine knows nothing of Ray, HTTP or queues. A thread calls `TextEngine.generate` with a batch and gets it back when
every sequence has ended; `encode` may be called by others meanwhile. Several threads may call it where the engine has a
`ComputeThread`: their batches then take turns, step by step.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from typing import TYPE_CHECKING

from service.engine.batch import Forward
from service.engine.compute_thread import ComputeThread
from service.engine.decoding import Decoding
from service.engine.detokenize import Detokenizer
from service.engine.encode import Encoder, InvalidText
from service.engine.job import Admit, Emit
from service.engine.out_of_memory import MemoryLimit
from service.engine.row import Row
from service.engine.sequence import SamplingParams, Sequence
from service.messages.telemetry import BatchWork

if TYPE_CHECKING:
    from service.engine.model.load import LoadedModel


class TextEngine:
    """Decodes batches with one model.

    Attributes:
        name: the model's.
        context_length: tokens that a prompt and its completion may have together.
    """

    def __init__(self, loaded: LoadedModel, thread: ComputeThread | None = None) -> None:
        self.name = loaded.name
        self.context_length = loaded.context_length
        self._encoder = Encoder(loaded.tokenizer, loaded.context_length, loaded.vocabulary)
        self._detokenizer = Detokenizer(loaded.tokenizer)
        self._eos = loaded.end_tokens
        self._forward = Forward(loaded.forward, loaded.device)
        self._memory = MemoryLimit()
        self._thread = thread or ComputeThread()

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

        With `admit` other jobs join: it is called between two steps with what was computed so far and whether a job can
        join now, and returns those who do. Their prompts are read in parts, one in each step of those who run, which is
        longer for it by a tenth of a second at most on two cores, or in proportion by more if more join than run.

        `emit` gets the progress of all rows once a step, in this thread, and an empty list as a sign of life after each
        part of long prompts that was read. Each sequence gets exactly one `Progress` with a `finish_reason`. If the
        model raises, the step is repeated by halves until only those sequences that cause it have ended with an error;
        the others go on where they were. A batch that memory does not hold is decoded in parts, one after the other;
        for a while later ones are too, of the size that was held. What `emit` raises passes through.
        """
        decoding = Decoding(self._forward, self._memory, self._thread, emit)
        if admit is None:
            decoding.run(self._rows(sequences))
        else:
            decoding.run(self._rows(sequences), lambda work, can_join: self._rows(admit(work, can_join)))
        return decoding.work

    def _rows(self, sequences: SequenceOf[Sequence]) -> list[Row]:
        return [Row(sequence, self._detokenizer, self._eos) for sequence in sequences]
