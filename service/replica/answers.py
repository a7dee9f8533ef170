"""What clients of OpenAI's get: completions and chat completions, whole or in chunks."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import msgspec

from service.engine.job import Engine, Likelihoods, Prompt, TokenIds
from service.engine.job import Sequence as TokenSequence
from service.replica.bodies import ChatBody, CompletionBody, GenerationBody
from service.replica.requests import FinishReason, GenerationRequest, TextChunk

Spell: TypeAlias = Callable[[int], bytes]


class Usage(msgspec.Struct, frozen=True):
    """Tokens of all prompts of a request."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class TextLogprobs(msgspec.Struct, frozen=True):
    """How likely tokens were; of the first of a prompt that is not known."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class TextChoice(msgspec.Struct, frozen=True):
    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: FinishReason | None


class Completion(msgspec.Struct, frozen=True):
    """A completion of each prompt, or a chunk of one."""

    id: str
    created: int
    model: str
    object: Literal["text_completion"]
    choices: list[TextChoice]
    usage: Usage | None


class LikelyToken(msgspec.Struct, frozen=True):
    token: str
    logprob: float
    bytes: list[int]


class TakenToken(msgspec.Struct, frozen=True):
    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[LikelyToken]


class ChatLogprobs(msgspec.Struct, frozen=True):
    content: list[TakenToken]
    refusal: None = None


class ChatMessage(msgspec.Struct, frozen=True):
    content: str
    role: Literal["assistant"] = "assistant"
    refusal: None = None


class ChatChoice(msgspec.Struct, frozen=True):
    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason | None


class ChatCompletion(msgspec.Struct, frozen=True):
    """The next message of a conversation."""

    id: str
    created: int
    model: str
    object: Literal["chat.completion"]
    choices: list[ChatChoice]
    usage: Usage | None


class Delta(msgspec.Struct, frozen=True, omit_defaults=True):
    content: str
    role: Literal["assistant"] | None = None


class DeltaChoice(msgspec.Struct, frozen=True):
    index: int
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason | None


class ChatChunk(msgspec.Struct, frozen=True):
    id: str
    created: int
    model: str
    object: Literal["chat.completion.chunk"]
    choices: list[DeltaChoice]
    usage: Usage | None


def usage_of(latest: Sequence[TextChunk]) -> Usage:
    """Token counts of all prompts of a request, from the latest chunk of each."""
    prompts = sum(chunk.prompt_tokens for chunk in latest)
    completions = sum(chunk.completion_tokens for chunk in latest)
    return Usage(prompts, completions, prompts + completions)


class Written(NamedTuple):
    """A token that came, its logarithm of probability, ``None`` where that is not known, and those of the likeliest."""

    token: bytes
    logprob: float | None
    likeliest: list[tuple[bytes, float]]


class TokenReader:
    """Reads the tokens of one request as they come, those of its prompt first where that is judged."""

    def __init__(self, job: TokenSequence, spell: Spell) -> None:
        self._job, self._spell = job, spell
        self._read = 0

    def read(self, count: int) -> list[Written]:
        """The tokens that were not read before, up to the first `count` of the completion."""
        job, tokens = self._job, self._job.tokens[:count]
        likelihoods: Sequence[Likelihoods | None] = job.likelihoods
        if job.sampling.judges_prompt:
            tokens, likelihoods = [*job.prompt_ids, *tokens], [None, *likelihoods]
        first, self._read = self._read, len(tokens)
        return [self._written(tokens[place], likelihoods[place]) for place in range(first, len(tokens))]

    def _written(self, token: int, likelihoods: Likelihoods | None) -> Written:
        if likelihoods is None:
            return Written(self._spell(token), None, [])
        likeliest = [(self._spell(other), logprob) for other, logprob in likelihoods.likeliest.items()]
        return Written(self._spell(token), likelihoods.taken, likeliest)


class Answers(ABC):
    """Writes the answers to one request: one for each of its prompts, whole or in chunks."""

    ID: ClassVar[str]

    def __init__(
        self, body: GenerationBody, engine: Engine, requests: Sequence[GenerationRequest], number: str
    ) -> None:
        """`requests`: what the prompts of `body` have become; `number` is part of the answer's id."""
        self._head: dict[str, Any] = {"id": f"{self.ID}-{number}", "created": int(time.time()), "model": engine.name}
        jobs = [request.job for request in requests if body.likeliest is not None]
        self._readers = [TokenReader(job, engine.spell) for job in jobs if isinstance(job, TokenSequence)]

    @abstractmethod
    def whole(self, chunks: Sequence[TextChunk]) -> msgspec.Struct:
        """All of them, complete."""

    @abstractmethod
    def part(self, index: int, chunk: TextChunk, usage: Usage | None) -> msgspec.Struct:
        """A chunk of the answer to prompt `index`."""

    @abstractmethod
    def end(self, usage: Usage) -> msgspec.Struct:
        """The chunk behind all others, where the usage is asked for."""

    def _tokens(self, index: int, chunk: TextChunk) -> list[Written] | None:
        return self._readers[index].read(chunk.completion_tokens) if self._readers else None


class TextAnswers(Answers):
    """Completions."""

    ID = "cmpl"

    def __init__(
        self, body: CompletionBody, engine: Engine, requests: Sequence[GenerationRequest], number: str
    ) -> None:
        super().__init__(body, engine, requests, number)
        prompts = [_as_text(prompt, engine.spell) for prompt in body.prompts if body.echo or self._readers]
        self._echoes = dict(enumerate(prompts)) if body.echo else {}  # to come
        # From the beginning of the prompt, as OpenAI counts them.
        self._offsets = [0 if body.echo else len(prompt) for prompt in prompts]

    def whole(self, chunks: Sequence[TextChunk]) -> Completion:
        return self._completion([self._choice(*each) for each in enumerate(chunks)], usage_of(chunks))

    def part(self, index: int, chunk: TextChunk, usage: Usage | None) -> Completion:
        return self._completion([self._choice(index, chunk)], usage)

    def end(self, usage: Usage) -> Completion:
        return self._completion([], usage)

    def _completion(self, choices: list[TextChoice], usage: Usage | None) -> Completion:
        return Completion(**self._head, object="text_completion", choices=choices, usage=usage)

    def _choice(self, index: int, chunk: TextChunk) -> TextChoice:
        text = self._echoes.pop(index, "") + chunk.text
        return TextChoice(index, text, self._logprobs(index, chunk), chunk.finish_reason)

    def _logprobs(self, index: int, chunk: TextChunk) -> TextLogprobs | None:
        written = self._tokens(index, chunk)
        if written is None:
            return None
        logprobs = TextLogprobs([], [], [], [])
        for token, logprob, likeliest in written:
            logprobs.tokens.append(_spelled(token))
            logprobs.token_logprobs.append(logprob)
            others = {_spelled(other): value for other, value in likeliest}
            logprobs.top_logprobs.append(None if logprob is None else others | {_spelled(token): logprob})
            logprobs.text_offset.append(self._offsets[index])
            self._offsets[index] += sum(byte & 0xC0 != 0x80 for byte in token)  # characters that begin in it
        return logprobs


class ChatAnswers(Answers):
    """Chat completions."""

    ID = "chatcmpl"

    def __init__(self, body: ChatBody, engine: Engine, requests: Sequence[GenerationRequest], number: str) -> None:
        super().__init__(body, engine, requests, number)
        self._has_begun = False

    def whole(self, chunks: Sequence[TextChunk]) -> ChatCompletion:
        choices = [
            ChatChoice(index, ChatMessage(chunk.text), self._logprobs(index, chunk), chunk.finish_reason)
            for index, chunk in enumerate(chunks)
        ]
        return ChatCompletion(**self._head, object="chat.completion", choices=choices, usage=usage_of(chunks))

    def part(self, index: int, chunk: TextChunk, usage: Usage | None) -> ChatChunk:
        delta = Delta(chunk.text) if self._has_begun else Delta(chunk.text, "assistant")
        self._has_begun = True
        return self._chunk([DeltaChoice(index, delta, self._logprobs(index, chunk), chunk.finish_reason)], usage)

    def end(self, usage: Usage) -> ChatChunk:
        return self._chunk([], usage)

    def _chunk(self, choices: list[DeltaChoice], usage: Usage | None) -> ChatChunk:
        return ChatChunk(**self._head, object="chat.completion.chunk", choices=choices, usage=usage)

    def _logprobs(self, index: int, chunk: TextChunk) -> ChatLogprobs | None:
        written = self._tokens(index, chunk)
        if written is None:
            return None
        content = []
        for token, logprob, likeliest in written:
            assert logprob is not None, "the messages are not judged"
            others = [LikelyToken(_spelled(other), value, list(other)) for other, value in likeliest]
            content.append(TakenToken(_spelled(token), logprob, list(token), others))
        return ChatLogprobs(content)


def answers_to(
    body: CompletionBody | ChatBody, engine: Engine, requests: Sequence[GenerationRequest], number: str
) -> Answers:
    if isinstance(body, ChatBody):
        return ChatAnswers(body, engine, requests, number)
    return TextAnswers(body, engine, requests, number)


def _as_text(prompt: Prompt, spell: Spell) -> str:
    if isinstance(prompt, TokenIds):
        return b"".join(map(spell, prompt)).decode("utf-8", "replace")
    assert isinstance(prompt, str), "no route completes a conversation's text"
    return prompt


def _spelled(token: bytes) -> str:
    r"""As OpenAI's clients know tokens, of which some are parts of characters.

    >>> _spelled(" tree".encode()), _spelled("🌳".encode()[:2])
    (' tree', 'bytes:\\xf0\\x9f')
    """
    try:
        return token.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token)
