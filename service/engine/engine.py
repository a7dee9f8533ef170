"""A text generator for batches: prompts in, text of all of them step by step out.

A thread calls `TextEngine.generate` with a batch and gets it back when every sequence has ended; others may call
`encode` meanwhile. Several threads may call `generate` where the engine has a `ComputeThread`: their batches then take
turns, step by step.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence as SequenceOf
from typing import Any

from service.engine.batch import READ_COLUMNS, Forward
from service.engine.compute_thread import ComputeThread
from service.engine.decoding import Decoding
from service.engine.job import (
    TIMES_LONGEST,
    Admit,
    Conversation,
    Emit,
    Prompt,
    PromptError,
    SamplingParams,
    Sequence,
    TokenIds,
)
from service.engine.model.load import LoadedModel
from service.engine.out_of_memory import MemoryLimit
from service.engine.prefixes import USUAL_ROOM_TOKENS
from service.engine.row import Detokenizer, Row
from service.messages.settings import Settings
from service.messages.telemetry import BatchWork, GraphUse

LONGEST_FIRST_STEP_S = 60.0  # which may load libraries, and capture graphs
LEAST_STALL_S = {"cpu": 4.0}
USUAL_LEAST_STALL_S = 15.0  # of a device that now and then compiles something
READING_S = 0.02  # of a token of a prompt, at worst
SPARE_SHARE = 16  # of what memory holds: one part in this many may be the padding of a group, another the kept prefixes
_EMPTY = "The prompt is empty: there is nothing to continue."
_SAMPLE_CHARACTERS_PER_TOKEN = 8  # a text that is longer than the context by this is judged by its beginning


class TextEngine:
    """Decodes batches with one model."""

    gives_logprobs = True

    def __init__(self, loaded: LoadedModel, thread: ComputeThread | None = None, memory_tokens: int = 0) -> None:
        """`memory_tokens`: whose keys and values memory holds at a time; 0 where that is not known."""
        self.name = loaded.name
        self.context_length = loaded.context_length  # tokens that a prompt and its completion may have together
        self.memory_tokens = memory_tokens
        self._encoder = Encoder(loaded.tokenizer, loaded.context_length, loaded.vocabulary, memory_tokens)
        self._detokenizer = Detokenizer(loaded.tokenizer)
        self._eos = loaded.end_tokens
        self.forward = Forward(loaded.forward, loaded.device, loaded.layers, loaded.is_deterministic)
        if memory_tokens:
            self.forward.free_padding = min(self.forward.free_padding, memory_tokens // SPARE_SHARE)
            if self.forward.prefixes is not None:
                self.forward.prefixes.room_tokens = min(USUAL_ROOM_TOKENS, memory_tokens // SPARE_SHARE)
        self._memory = MemoryLimit()
        self._thread = thread or ComputeThread()

    @property
    def graphs(self) -> GraphUse | None:
        """How much of the decoding is replayed; ``None`` where the device is no GPU."""
        return getattr(self.forward.compute, "use", None)

    def encode(self, prompt: Prompt, max_tokens: int) -> list[int]:
        """The tokens of `prompt`; raises a `PromptError` (a `ValueError`) that says why if it can't be completed."""
        return self._encoder.encode(prompt, max_tokens)

    def job(self, id: str, input: Prompt, sampling: SamplingParams) -> Sequence:
        """The sequence of a prompt; raises as `encode` does."""
        if not isinstance(input, str | TokenIds | Conversation):
            raise PromptError(f"A prompt is a text, not {str(input)[:80]}.")
        ids = self.encode(input, sampling.least_tokens)
        return Sequence(id, ids, sampling.within(self._encoder.most_tokens - len(ids)))

    def spell(self, token: int) -> bytes:
        return self._detokenizer.spell(token)

    def adopt(self, settings: Settings) -> None:
        least = READ_COLUMNS if self.forward.is_deterministic else 1
        self.forward.joining_tokens = max(settings.chunk_tokens(self.forward.device.type), least)

    def stall_limit_s(self, longest_s: float | None, unread_tokens: int) -> float:
        if longest_s is None:
            return LONGEST_FIRST_STEP_S + READING_S * unread_tokens
        least_s = LEAST_STALL_S.get(self.forward.device.type, USUAL_LEAST_STALL_S)
        return max(TIMES_LONGEST * longest_s, least_s + READING_S * unread_tokens)

    def generate(self, sequences: SequenceOf[Sequence], emit: Emit, admit: Admit | None = None) -> BatchWork:
        """Decode `sequences` together until all have ended; blocks. Returns what was computed for them.

        With `admit` other jobs join: it is called between two steps with what was computed so far and whether a job can
        join now, and returns the jobs that join. Their prompts are read in parts of `prefill_chunk_tokens`, padding
        included, one part a step of the rows that run. Those that join together keep the value with which they began.

        `emit` gets the progress of all rows once a step, in this thread, and an empty list as a sign of life after each
        part of long prompts that was read. Each sequence gets exactly one `Progress` with a `finish_reason`. If the
        model raises, the step is repeated by halves until only those sequences that cause it have ended with an error;
        the others go on where they were. A batch that memory does not hold is decoded in parts, one after the other;
        for a while later ones are too, of the size that was held. What `emit` raises passes through.
        Raises `DeviceLostError` when all have ended, where the device computes nothing more.
        """
        decoding = Decoding(self.forward, self._memory, self._thread, emit)
        if admit is None:
            decoding.run(self._rows(sequences))
        else:
            decoding.run(self._rows(sequences), lambda work, can_join: self._rows(admit(work, can_join)))
        return decoding.work

    def _rows(self, sequences: SequenceOf[Sequence]) -> list[Row]:
        return [Row(sequence, self._detokenizer, self._eos) for sequence in sequences]


class Encoder:
    """One model's tokenizer, safe to use from several threads.

    Text that looks like a special token (``<|im_end|>``) is taken as plain text: the author of a prompt or a message
    can neither end it early nor put words into another role's mouth. What the tokenizer itself puts around a
    prompt, such as Llama's ``<s>``, and what the model's template puts around messages, stays special.

    Attributes:
        most_tokens: that a prompt and its completion may have together.
    """

    def __init__(self, tokenizer: Any, context_length: int, vocabulary: int, memory_tokens: int = 0) -> None:
        """`vocabulary`: how many tokens the model has embeddings for; for `memory_tokens` see `TextEngine`."""
        self._memory_tokens = memory_tokens
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._context_length = context_length
        self.most_tokens = min(context_length, memory_tokens or context_length)
        self._lock = threading.Lock()
        self._backend = _own_backend(tokenizer)

    def encode(self, prompt: Prompt, max_tokens: int) -> list[int]:
        """The tokens of `prompt`; raises `PromptError`."""
        tokens = list(prompt) if isinstance(prompt, TokenIds) else self._tokens_of(prompt, max_tokens)
        if not tokens:
            raise PromptError(_EMPTY)
        if len(tokens) + max_tokens > self._context_length:
            raise self._too_long(len(tokens), max_tokens)
        if 0 < self._memory_tokens < len(tokens) + max_tokens:
            raise PromptError(
                f"The prompt has {len(tokens)} tokens and max_tokens is {max_tokens}: together "
                f"{len(tokens) + max_tokens}, but memory holds {self._memory_tokens}. Ask for fewer, or free memory "
                "and start the service anew."
            )
        if max(tokens) >= self._vocabulary:  # on a GPU, looking it up would end the whole process
            why = "" if isinstance(prompt, TokenIds) else " Its tokenizer belongs to another model."
            raise PromptError(
                f"The prompt holds token {max(tokens)}, which this model does not know: it has {self._vocabulary}.{why}"
            )
        return tokens

    def _tokens_of(self, prompt: str | Conversation, max_tokens: int) -> list[int]:
        if not prompt:
            raise PromptError(_EMPTY)
        text = prompt if isinstance(prompt, str) else prompt.text
        _check_text(text)
        self._check_beginning(text, max_tokens)
        return self._tokens(prompt) if isinstance(prompt, str) else self._templated(prompt)

    def _check_beginning(self, prompt: str, max_tokens: int) -> None:
        """Refuse a text far beyond the context after reading a part of it: a megabyte takes a second to read."""
        enough = _SAMPLE_CHARACTERS_PER_TOKEN * self._context_length
        if len(prompt) <= 2 * enough:
            return
        tokens = len(self._tokens(prompt[:enough]))
        if tokens > self._context_length:
            raise self._too_long(tokens, max_tokens, "at least ")

    def _too_long(self, tokens: int, max_tokens: int, at_least: str = "") -> PromptError:
        return PromptError(
            f"The prompt has {at_least}{tokens} tokens and max_tokens is {max_tokens}: together "
            f"{at_least}{tokens + max_tokens}, but this model's context is {self._context_length} tokens."
        )

    def _tokens(self, text: str) -> list[int]:
        if self._backend is not None:
            ids: list[int] = self._backend.encode_batch_fast([text])[0].ids  # unlike `encode`, lets other threads run
            return ids
        with self._lock:
            return list(self._tokenizer(text, split_special_tokens=True)["input_ids"])

    def _templated(self, conversation: Conversation) -> list[int]:
        if not self._tokenizer.chat_template:
            raise PromptError(
                "This model has no chat template, so it only continues texts: ask at POST /v1/completions, or choose a "
                "model that was made for chats."
            )
        try:
            with self._lock:
                ids = self._tokenizer.apply_chat_template(
                    [dict(message) for message in conversation],
                    add_generation_prompt=True,
                    sanitize_control_tokens=True,
                    return_dict=False,
                )
        except Exception as error:  # whatever a template raises, which came with the model
            raise PromptError(f"The model's chat template refuses these messages: {error}") from error
        return list(ids)


def _check_text(prompt: str) -> None:
    try:
        prompt.encode()
    except UnicodeEncodeError as error:
        code = ord(prompt[error.start])
        raise PromptError(
            f"The prompt is not Unicode text: character {error.start + 1} is half of a surrogate pair (U+{code:04X})."
        ) from None


def _own_backend(tokenizer: Any) -> Any:
    """A copy of the fast tokenizer whose options no other code sets, or ``None`` if there is no fast one."""
    from tokenizers import Tokenizer

    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return None
    own = Tokenizer.from_str(backend.to_str())
    own.no_truncation()
    own.no_padding()
    own.encode_special_tokens = True
    return own
