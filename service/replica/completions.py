"""`POST /v1/completions` and `POST /v1/chat/completions` in OpenAI's form, whole or as server-sent events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple

import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from service.engine.job import SamplingParams
from service.replica.answers import Answers, answers_to, usage_of
from service.replica.bodies import ChatBody, CompletionBody, StreamOptions
from service.replica.errors import PromptRefusedError, error_body
from service.replica.generation import Generation
from service.replica.requests import GenerationError, GenerationRequest, TextChunk

LONGEST_PAUSE_S: Final = 0.5
"""How long a stream pauses at most, so that all open ones together send no more than `Generation.chunks_per_s`."""


async def answer_completion(
    generation: Generation, body: CompletionBody | ChatBody, *, received_s: float, client_id: str | None
) -> Response:
    """Submit all prompts of `body`, and answer them together or as they come; refusals come before any answer."""
    engine = generation.engine
    if body.likeliest is not None and not engine.gives_logprobs:
        raise PromptRefusedError(
            f"{engine.name} does not report how likely a token was: leave logprobs out.", "logprobs"
        )
    named = zip(body.prompts, body.ids(client_id), strict=True)
    asked = [Asked(prompt, body.sampling, own_id) for prompt, own_id in named]
    requests = await submit_all(generation, asked, received_s, streamed=body.stream, param=body.PROMPT)
    answers = answers_to(body, engine, requests, f"{generation.replica}-{time.time_ns():x}")
    if body.stream:
        return AnswerStream(generation, requests, answers, body.stream_options)
    whole = answers.whole(await results_of(generation, requests))
    return Response(msgspec.json.encode(whole), media_type="application/json")


class Asked(NamedTuple):
    """An input as it came, how to sample where that is done, and the caller's name for it."""

    input: object
    sampling: SamplingParams
    client_id: str | None = None


async def submit_all(
    generation: Generation,
    asked: Sequence[Asked],
    received_s: float,
    *,
    streamed: bool = False,
    param: str = "prompt",
) -> list[GenerationRequest]:
    """All of them in the queue, or none; raises `PromptRefusedError`, which names `param`."""
    most = generation.batcher.in_force.settings.max_queued_requests
    if len(asked) > most:  # to try again would never help
        generation.recorder.count(received=len(asked), refused=len(asked))
        raise PromptRefusedError(
            f"The request has {len(asked)} inputs, but the queue holds {most} at most (max_queued_requests). "
            f"Send at most {most} in one request, or raise max_queued_requests.",
            param,
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
            raise PromptRefusedError(str(error), param) from error
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


class AnswerStream(StreamingResponse):
    """Chunks of all answers as they come. However it ends, also before its first byte, the requests are given up."""

    def __init__(
        self, generation: Generation, requests: list[GenerationRequest], answers: Answers, options: StreamOptions
    ) -> None:
        self._generation = generation
        self._requests = requests
        self._answers = answers
        self._options = options
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
                usage = usage_of(list(self._latest.values())) if self._options.continuous_usage_stats else None
                yield _event(self._answers.part(index, chunk, usage)) + (b"" if unfinished else self._end())
                if chunk.finish_reason is None:
                    await self._pause(unfinished)
        except GenerationError as error:
            yield _event(error_body(str(error), "server_error"))

    async def _pause(self, unfinished: int) -> None:
        """Gather what comes next, but not beyond the end of a choice."""
        running = [request.answered for request in self._requests if not request.is_final]
        if len(running) == unfinished:  # else an end is to be reported already
            generation = self._generation
            pause_s = min(generation.open_streams / generation.chunks_per_s, LONGEST_PAUSE_S)
            await asyncio.wait(running, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)

    def _end(self) -> bytes:
        usage = usage_of(list(self._latest.values()))
        return (_event(self._answers.end(usage)) if self._options.include_usage else b"") + b"data: [DONE]\n\n"


def _event(content: object) -> bytes:
    return b"data: " + msgspec.json.encode(content) + b"\n\n"


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
