"""`POST /v1/completions` in OpenAI's form, whole or as server-sent events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from service.engine.job import Line, SamplingParams
from service.replica.errors import PromptRefusedError, error_body
from service.replica.generation import Generation
from service.replica.requests import GenerationError, GenerationRequest, TextChunk

LONGEST_PAUSE_S = 0.5
"""How long a stream pauses at most, so that all open ones together send no more than `Generation.chunks_per_s`."""

MAX_PROMPTS = 256

Prompt = Annotated[str, Field(min_length=1)]
StopString = Annotated[str, Field(min_length=1, max_length=256)]


class StreamOptions(BaseModel):
    model_config = ConfigDict(strict=True)

    include_usage: bool = False


class CompletionBody(BaseModel):
    """OpenAI's request. Fields that this service does not know are ignored, as other servers do."""

    model_config = ConfigDict(strict=True, extra="ignore")

    model: str | None = None
    prompt: Prompt | Annotated[list[Prompt], Field(min_length=1, max_length=MAX_PROMPTS)]
    max_tokens: int = Field(16, ge=1, le=1_000_000)
    temperature: float = Field(1.0, ge=0, le=2, allow_inf_nan=False)
    top_p: float = Field(1.0, gt=0, le=1, allow_inf_nan=False)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stop: StopString | Annotated[list[StopString], Field(max_length=16)] | None = None
    ignore_eos: bool = False
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: Literal[1] | None = None
    best_of: Literal[1] | None = None
    echo: Literal[False] | None = None
    logprobs: None = None
    suffix: None = None

    @model_validator(mode="before")
    @classmethod
    def _null_means_default(cls, body: Any) -> Any:
        """Clients send null for what they leave open."""
        return {k: v for k, v in body.items() if v is not None} if isinstance(body, dict) else body

    @property
    def prompts(self) -> list[str]:
        return [self.prompt] if isinstance(self.prompt, str) else self.prompt

    def ids(self, client_id: str | None) -> list[str | None]:
        """The caller's name for each prompt, of which the first has the one that was sent."""
        if client_id is None:
            return [None] * len(self.prompts)
        return [client_id, *(f"{client_id}.{index}" for index in range(1, len(self.prompts)))]

    @property
    def sampling(self) -> SamplingParams:
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        return SamplingParams(
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            seed=self.seed,
            stop=stop,
            ignore_eos=self.ignore_eos,
        )


async def answer_completion(
    generation: Generation, model: str, body: CompletionBody, *, received_s: float, client_id: str | None
) -> Response:
    """Submit all prompts of `body`, and answer them together or as they come; refusals come before any answer."""
    head = {"id": f"cmpl-{generation.replica}-{time.time_ns():x}", "created": int(time.time()), "model": model}
    named = zip(body.prompts, body.ids(client_id), strict=True)
    asked = [Asked(Line(prompt), body.sampling, own_id) for prompt, own_id in named]
    requests = await submit_all(generation, asked, received_s, streamed=body.stream)
    if body.stream:
        with_usage = body.stream_options is not None and body.stream_options.include_usage
        return CompletionStream(generation, requests, head, with_usage)
    results = await results_of(generation, requests)
    choices = [choice(index, result) for index, result in enumerate(results)]
    return JSONResponse(head | {"object": "text_completion", "choices": choices, "usage": usage(results)})


class Asked(NamedTuple):
    """An input as it came, how to sample where that is done, and the caller's name for it."""

    input: object
    sampling: SamplingParams
    client_id: str | None = None


async def submit_all(
    generation: Generation, asked: Sequence[Asked], received_s: float, *, streamed: bool = False
) -> list[GenerationRequest]:
    """All of them in the queue, or none."""
    most = generation.batcher.in_force.settings.max_queued_requests
    if len(asked) > most:  # to try again would never help
        generation.recorder.count(received=len(asked), refused=len(asked))
        raise PromptRefusedError(
            f"The request has {len(asked)} inputs, but the queue holds {most} at most (max_queued_requests). "
            f"Send at most {most} in one request, or raise max_queued_requests."
        )
    requests: list[GenerationRequest] = []
    try:
        for each in asked:
            request = await generation.submit(
                each.input, each.sampling, received_s=received_s, streamed=streamed, client_id=each.client_id
            )
            requests.append(request)
    except BaseException as error:
        give_up_all(generation, requests)
        if isinstance(error, ValueError):
            raise PromptRefusedError(str(error)) from error
        raise
    return requests


async def results_of(generation: Generation, requests: Sequence[GenerationRequest]) -> list[TextChunk]:
    """All results, in their order; raises `GenerationError`. However it ends, the requests are given up."""
    try:
        return await asyncio.gather(*(generation.result(request) for request in requests))
    finally:
        give_up_all(generation, requests)


def give_up_all(generation: Generation, requests: Sequence[GenerationRequest]) -> None:
    for request in requests:
        generation.give_up(request)


def choice(index: int, chunk: TextChunk) -> dict[str, Any]:
    return {"index": index, "text": chunk.text, "logprobs": None, "finish_reason": chunk.finish_reason}


def usage(latest: Sequence[TextChunk]) -> dict[str, int]:
    """Token counts of all prompts of a request, from the latest chunk of each."""
    prompt_tokens = sum(chunk.prompt_tokens for chunk in latest)
    completion_tokens = sum(chunk.completion_tokens for chunk in latest)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }


class CompletionStream(StreamingResponse):
    """Chunks of all choices as they come. However it ends, also before its first byte, the requests are given up."""

    def __init__(
        self, generation: Generation, requests: list[GenerationRequest], head: dict[str, Any], with_usage: bool
    ) -> None:
        self._generation = generation
        self._requests = requests
        self._head = head | {"object": "text_completion"}
        self._with_usage = with_usage
        self._latest: dict[int, TextChunk] = {}
        super().__init__(self._events(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._generation.open_streams += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._generation.open_streams -= 1
            give_up_all(self._generation, self._requests)

    async def _events(self) -> AsyncIterator[bytes]:
        unfinished = len(self._requests)
        try:
            async for index, chunk in merged([self._generation.chunks(request) for request in self._requests]):
                self._latest[index] = chunk
                unfinished -= chunk.finish_reason is not None
                # What ends a stream comes with its last text: each piece of its own costs as much as a chunk.
                yield self._event([choice(index, chunk)]) + (b"" if unfinished else self._end())
                if chunk.finish_reason is None:
                    await self._pause(unfinished)
        except GenerationError as error:
            yield b"data: " + msgspec.json.encode(error_body(str(error), "server_error")) + b"\n\n"

    async def _pause(self, unfinished: int) -> None:
        """Gather what comes next, but not beyond the end of a choice."""
        running = [request.answered for request in self._requests if not request.is_final]
        if len(running) == unfinished:  # else an end is to be reported already
            generation = self._generation
            pause_s = min(generation.open_streams / generation.chunks_per_s, LONGEST_PAUSE_S)
            await asyncio.wait(running, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)

    def _end(self) -> bytes:
        return (self._event([]) if self._with_usage else b"") + b"data: [DONE]\n\n"

    def _event(self, choices: list[dict[str, Any]]) -> bytes:
        body = self._head | {"choices": choices, "usage": usage(list(self._latest.values()))}
        return b"data: " + msgspec.json.encode(body) + b"\n\n"


async def merged(streams: Sequence[AsyncIterator[TextChunk]]) -> AsyncIterator[tuple[int, TextChunk]]:
    """(index, chunk) of all streams, whichever has one first."""
    if len(streams) == 1:
        async for chunk in streams[0]:
            yield 0, chunk
        return
    pending = {asyncio.ensure_future(anext(stream)): index for index, stream in enumerate(streams)}
    try:
        while pending:
            done, _ = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                index = pending.pop(task)
                try:
                    chunk = task.result()
                except StopAsyncIteration:
                    continue
                yield index, chunk
                pending[asyncio.ensure_future(anext(streams[index]))] = index
    finally:
        for task in pending:
            task.cancel()
