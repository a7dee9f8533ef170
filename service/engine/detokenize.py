"""Text from tokens while they come, so that the parts add up to exactly the text of the whole."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Any, Protocol

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
# Of the prompt, so that a tokenizer that strips leading spaces does not strip those of the completion.
_CONTEXT_TOKENS = 6
_LONGEST_WAIT_TOKENS = 8  # for the rest of a character; UTF-8 needs at most four bytes, so what waits longer is broken


class TextStream(Protocol):
    """Turns one sequence's tokens into text."""

    def push(self, token: int) -> str:
        """The text that `token` completes; "" while it ends within a character."""

    def flush(self) -> str:
        """What is left when no token follows: an incomplete character shows as U+FFFD."""


class Detokenizer:
    """Opens a `TextStream` for each sequence of one tokenizer.

    Byte-level vocabularies (GPT-2, Llama 3, SmolLM …) are decoded byte by byte through a table, everything else by
    decoding a short window of tokens again.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        backend = getattr(tokenizer, "backend_tokenizer", None)
        self._token_bytes = _byte_table(backend) if _is_byte_level(backend) else None

    def stream(self, prompt_ids: Sequence[int]) -> TextStream:
        """A stream for the completion of `prompt_ids`."""
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

    def __init__(self, tokenizer: Any, context: Sequence[int]) -> None:
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


def _is_byte_level(backend: Any) -> bool:
    from tokenizers import decoders

    return backend is not None and isinstance(backend.decoder, decoders.ByteLevel)


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
