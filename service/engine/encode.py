"""Prompts to tokens, with every reason to refuse a prompt said in words."""

from __future__ import annotations

import threading
from typing import Any

_SAMPLE_CHARACTERS_PER_TOKEN = 8  # a text that is longer than the context by this is judged by its beginning


class PromptError(ValueError):
    """A prompt that can't be completed; the message is for its sender.

    PromptError ← EmptyPrompt, PromptTooLong, InvalidText, UnknownToken
    """


class EmptyPrompt(PromptError):  # noqa: N818  # the tree is named after what is wrong with the prompt
    """There is nothing to continue."""


class InvalidText(PromptError):  # noqa: N818
    """Not Unicode text."""


class UnknownToken(PromptError):  # noqa: N818
    """The tokenizer knows more tokens than the model. On a GPU, looking one up would end the whole process."""


class PromptTooLong(PromptError):  # noqa: N818
    """The prompt and its completion don't fit into the context.

    Attributes:
        tokens: of the prompt; at least this many where it is so long that it was not read to its end.
        limit: the context length.
    """

    def __init__(self, tokens: int, max_tokens: int, limit: int, *, is_estimate: bool = False) -> None:
        at_least = "at least " if is_estimate else ""
        super().__init__(
            f"The prompt has {at_least}{tokens} tokens and max_tokens is {max_tokens}: together "
            f"{at_least}{tokens + max_tokens}, but this model's context is {limit} tokens."
        )
        self.tokens = tokens
        self.limit = limit


class Encoder:
    """One model's tokenizer, safe to use from several threads.

    Text that looks like a special token (``<|im_end|>``) is taken as plain text: the author of a prompt
    can neither end it early nor put words into another role's mouth. What the tokenizer itself puts around a
    prompt, such as Llama's ``<s>``, stays special.
    """

    def __init__(self, tokenizer: Any, context_length: int, vocabulary: int) -> None:
        """`vocabulary`: how many tokens the model has embeddings for."""
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._context_length = context_length
        self._lock = threading.Lock()
        self._backend = _own_backend(tokenizer)

    def encode(self, prompt: str, max_tokens: int) -> list[int]:
        """The tokens of `prompt`; raises `PromptError`."""
        _check_text(prompt)
        self._check_beginning(prompt, max_tokens)
        tokens = self._tokens(prompt)
        if not tokens:
            raise EmptyPrompt("The prompt is empty: there is nothing to continue.")
        if len(tokens) + max_tokens > self._context_length:
            raise PromptTooLong(len(tokens), max_tokens, self._context_length)
        if max(tokens) >= self._vocabulary:
            raise UnknownToken(
                f"The prompt holds token {max(tokens)}, which this model does not know: it has {self._vocabulary}. "
                "Its tokenizer belongs to another model."
            )
        return tokens

    def _check_beginning(self, prompt: str, max_tokens: int) -> None:
        """Refuse a text far beyond the context after reading a part of it: a megabyte takes a second to read."""
        enough = _SAMPLE_CHARACTERS_PER_TOKEN * self._context_length
        if len(prompt) <= 2 * enough:
            return
        tokens = len(self._tokens(prompt[:enough]))
        if tokens > self._context_length:
            raise PromptTooLong(tokens, max_tokens, self._context_length, is_estimate=True)

    def _tokens(self, text: str) -> list[int]:
        if self._backend is not None:
            ids: list[int] = self._backend.encode_batch_fast([text])[0].ids  # unlike `encode`, lets other threads run
            return ids
        with self._lock:
            return list(self._tokenizer(text, split_special_tokens=True)["input_ids"])


def _check_text(prompt: str) -> None:
    if not prompt:
        raise EmptyPrompt("The prompt is empty: there is nothing to continue.")
    try:
        prompt.encode()
    except UnicodeEncodeError as error:
        code = ord(prompt[error.start])
        raise InvalidText(
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
