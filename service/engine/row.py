"""A sequence while it is being decoded: its text, its stop texts, its random numbers and how it ends."""

from __future__ import annotations

import codecs
import random
from collections.abc import Collection, Set
from collections.abc import Sequence as SequenceOf
from typing import Any

from service.engine.job import FinishReason, Likelihoods, Progress, Sequence
from service.engine.sampling import Draw

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
# Of the prompt, so that a tokenizer that strips leading spaces does not strip those of the completion.
_CONTEXT_TOKENS = 6
_LONGEST_WAIT_TOKENS = 8  # for the rest of a character; UTF-8 needs at most four bytes, so what waits longer is broken


class Row:
    """Everything about one sequence that must outlive the batch it is computed in.

    A pass tells of its last column alone what may follow. So where the tokens of the prompt are judged, only the first
    is read as a prompt, and each of the others is the token of a step.

    Attributes:
        logprobs: how many of the likeliest tokens of each step are told of; ``None`` where it is not asked for.
    """

    def __init__(self, sequence: Sequence, detokenizer: Detokenizer, eos: Set[int]) -> None:
        self.sequence = sequence
        self.is_done = False
        self.in_flight = 0  # tokens that are being computed and have not come yet
        self.logprobs = sequence.sampling.logprobs
        self._known = (
            1 if sequence.sampling.judges_prompt else len(sequence.prompt_ids)
        )  # of the prompt, without a step
        self._eos = frozenset() if sequence.sampling.ignore_eos else eos
        self._text = detokenizer.stream(sequence.prompt_ids)
        self._stop = StopFilter(sequence.sampling.stop)
        self._random = random.Random(sequence.sampling.seed)
        self._uniforms: list[float] = []  # of the tokens that have not come yet

    @property
    def token_ids(self) -> list[int]:
        """The prompt and what has been generated, which is all that a forward pass needs to go on."""
        return [*self.prompt_ids, *self.sequence.tokens]

    @property
    def prompt_ids(self) -> SequenceOf[int]:
        """As much of the prompt as is known to a forward pass that begins."""
        return self.sequence.prompt_ids[: self._known]

    @property
    def length(self) -> int:
        return self._known + len(self.sequence.tokens)

    @property
    def tokens_left(self) -> int:
        """Tokens to launch if it does not end before `max_tokens`."""
        if self.is_done:
            return 0
        all_tokens = len(self.sequence.prompt_ids) + self.sequence.sampling.max_tokens
        return all_tokens - self.length - self.in_flight

    @property
    def given(self) -> int | None:
        """The token after those in flight where it is one of the prompt's."""
        place = self._known + self.in_flight
        return self.sequence.prompt_ids[place] if place < len(self.sequence.prompt_ids) else None

    def draw(self, row: int) -> Draw | None:
        """How to sample the token after those in flight, as row `row` of the batch; the same each time for a token."""
        sampling = self.sequence.sampling
        if sampling.is_greedy:
            return None
        if self.in_flight == len(self._uniforms):
            self._uniforms.append(self._random.random())
        return Draw(row, sampling.temperature, sampling.top_p, self._uniforms[self.in_flight])

    def advance(self, token: int, likelihoods: Likelihoods | None = None) -> Progress:
        """Take the next token."""
        del self._uniforms[:1]
        if likelihoods is not None:
            self.sequence.likelihoods.append(likelihoods)
        if self._known < len(self.sequence.prompt_ids):
            self._known += 1
            return Progress(self.sequence, "", 0)
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


class StopFilter:
    """Lets text through up to the first stop text, and never a part of one.

    Text that may yet become a stop text is held back until the next characters decide.

    >>> texts = StopFilter(["END"])
    >>> texts.push("one EN"), texts.push("D two"), texts.has_stopped
    ('one ', '', True)
    """

    def __init__(self, stops: Collection[str]) -> None:
        self._stops = stops
        self._held = ""
        self.has_stopped = False

    def push(self, text: str) -> str:
        """The part of all text so far that is now certain and has not been returned before."""
        text = self._held + text
        found = [(text.index(stop) + len(stop), text.index(stop)) for stop in self._stops if stop in text]
        if found:  # what is complete first counts; of those complete at once the longest
            self.has_stopped = True
            self._held = ""
            _, start = min(found)
            return text[:start]
        certain = len(text) - max((_begun(stop, text) for stop in self._stops), default=0)
        self._held = text[certain:]
        return text[:certain]

    def flush(self) -> str:
        """What was still held back, as nothing more comes."""
        held, self._held = self._held, ""
        return held


def _begun(stop: str, text: str) -> int:
    """How many characters of `stop`, of which more would have to come, `text` ends with."""
    most = min(len(stop) - 1, len(text))
    return next((count for count in range(most, 0, -1) if text.endswith(stop[:count])), 0)


class Detokenizer:
    """Opens a stream of text for each sequence of one tokenizer.

    Byte-level vocabularies (GPT-2, Llama 3, SmolLM …) are decoded byte by byte through a table, everything else by
    decoding a short window of tokens again.
    """

    def __init__(self, tokenizer: Any) -> None:
        from tokenizers import decoders

        self._tokenizer = tokenizer
        backend = getattr(tokenizer, "backend_tokenizer", None)
        is_byte_level = backend is not None and isinstance(backend.decoder, decoders.ByteLevel)
        self._token_bytes = _byte_table(backend) if is_byte_level else None
        # Behind this no space that a token begins with is stripped.
        self._head: list[int] = [] if is_byte_level else tokenizer.encode("a", add_special_tokens=False)

    def spell(self, token: int) -> bytes:
        """What a token stands for by itself; a special one, which no text shows, for its name."""
        if self._token_bytes is not None and token in self._token_bytes:
            return self._token_bytes[token]
        head, whole = (
            self._tokenizer.decode(ids, clean_up_tokenization_spaces=False)
            for ids in (self._head, [*self._head, token])
        )
        text: str = whole[len(head) :]
        return text.encode()

    def stream(self, prompt_ids: SequenceOf[int]) -> _ByteStream | _WindowStream:
        """Gives the text of the completion of `prompt_ids` while its tokens come.

        `push` returns the text that a token completes; "" while it ends within a character. `flush` returns what is
        left when no token follows: an incomplete character shows as U+FFFD.
        """
        if self._token_bytes is not None:
            return _ByteStream(self._token_bytes)
        return _WindowStream(self._tokenizer, prompt_ids[-_CONTEXT_TOKENS:])


class _ByteStream:
    """Each token stands for bytes; Python's incremental decoder waits for the rest of a character."""

    def __init__(self, token_bytes: dict[int, bytes]) -> None:
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        return self._decoder.decode(self._token_bytes.get(token, b""))

    def flush(self) -> str:
        return self._decoder.decode(b"", final=True)


class _WindowStream:
    """Decodes the tokens since the last complete character together with those before, which give the context.

    tokens   … a b c d e f          text of "b c d e f" minus text of "b c" is new
                 ^   ^
             start   said
    """

    def __init__(self, tokenizer: Any, context: SequenceOf[int]) -> None:
        self._tokenizer = tokenizer
        self._tokens = list(context)
        self._said = len(self._tokens)
        self._said_text = self._decode(self._tokens)

    def push(self, token: int) -> str:
        self._tokens.append(token)
        text = self._decode(self._tokens)
        waits = text.endswith(REPLACEMENT) and len(self._tokens) - self._said < _LONGEST_WAIT_TOKENS
        return "" if waits else self._say(text)

    def flush(self) -> str:
        return self._say(self._decode(self._tokens))

    def _say(self, text: str) -> str:
        """Advance past all tokens; returns what of `text`, theirs, is new."""
        new = text[len(self._said_text) :]
        if new:
            self._tokens = self._tokens[self._said :]
            self._said = len(self._tokens)
            self._said_text = self._decode(self._tokens)
        return new

    def _decode(self, tokens: list[int]) -> str:
        text: str = self._tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text


def _byte_table(backend: Any) -> dict[int, bytes]:
    """The bytes of every token of a byte-level vocabulary; special tokens, which are not shown, are left out."""
    hidden = {token for token, added in backend.get_added_tokens_decoder().items() if added.special}
    byte_of = byte_alphabet()
    vocabulary = backend.get_vocab(with_added_tokens=True)
    return {token: _token_bytes(text, byte_of) for text, token in vocabulary.items() if token not in hidden}


def _token_bytes(text: str, byte_of: dict[str, int]) -> bytes:
    try:
        return bytes([byte_of[character] for character in text])
    except KeyError:  # an added token, written as it is
        return text.encode()


def byte_alphabet() -> dict[str, int]:
    """GPT-2's way of writing bytes as visible characters: printable Latin-1 as it is, the rest from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}
