"""Load and figures for the benchmarks: two ways to send, one way to count."""

from __future__ import annotations

import asyncio
import contextlib
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

import aiohttp
import msgspec

from service.messages.life import Failed, Ready, ServiceState

TOKENS = 24


class AnswerError(Exception):
    """A server answered otherwise than it was asked to."""


Ask = Callable[[aiohttp.ClientSession, int], Awaitable[None]]


@dataclass(frozen=True)
class Measurement:
    """Requests that were answered within the measured time: their latencies in seconds, and what was generated."""

    seconds: float
    latencies_s: list[float]
    tokens: float

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.seconds

    def percentile_s(self, percent: int) -> float:
        return statistics.quantiles(self.latencies_s, n=100, method="inclusive")[percent - 1]


def session() -> aiohttp.ClientSession:
    """Each request has a connection of its own: llama.cpp's server closes one after a streamed answer, unannounced."""
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    return aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(600))


async def closed_loop(ask: Ask, users: int, seconds: float, warm_up_s: float = 5.0) -> Measurement:
    """`users` users, each of which asks again when answered; what ends during the warm-up is not counted.

    A request's tokens count as far as it was under way within the time: users are often answered all at once, and then
    it would matter much whether one more answer came just before the end.
    """
    begin_s = time.monotonic() + warm_up_s
    end_s = begin_s + seconds
    latencies_s: list[float] = []
    tokens = 0.0

    async def use(client: aiohttp.ClientSession, user: int) -> None:
        nonlocal tokens
        number = user
        while (sent_s := time.monotonic()) < end_s:
            await ask(client, number)
            number += users
            now_s = time.monotonic()
            tokens += TOKENS * max(min(now_s, end_s) - max(sent_s, begin_s), 0.0) / (now_s - sent_s)
            if begin_s <= now_s < end_s:
                latencies_s.append(now_s - sent_s)

    async with session() as client:
        await asyncio.gather(*(use(client, user) for user in range(users)))
    return Measurement(seconds, latencies_s, tokens)


async def poisson(ask: Ask, rate_per_s: float, seconds: float, seed: int = 7) -> Measurement:
    """Open loop: latency counts from the intended send time; all that were sent are waited for."""
    draw = random.Random(seed)
    latencies_s: list[float] = []

    async def send(client: aiohttp.ClientSession, number: int, intended_s: float) -> None:
        await ask(client, number)
        latencies_s.append(time.monotonic() - intended_s)

    async with session() as client, asyncio.TaskGroup() as sent:
        begin_s = intended_s = time.monotonic()
        number = 0
        while (intended_s := intended_s + draw.expovariate(rate_per_s)) < begin_s + seconds:
            await asyncio.sleep(intended_s - time.monotonic())
            sent.create_task(send(client, number, intended_s))
            number += 1
    return Measurement(seconds, latencies_s, number * TOKENS)


@contextlib.contextmanager
def batchscope(*arguments: str) -> Iterator[Ready]:
    """`python -m service` with the default model."""
    command = [sys.executable, "-m", "service", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        for line in process.stdout:
            state = msgspec.json.decode(line, type=ServiceState)
            if isinstance(state, Ready):
                break
            if isinstance(state, Failed):
                raise SystemExit(state.reason)
        try:
            yield state
        finally:
            process.terminate()


def ask_for_completion(url: str, **fields: object) -> Ask:
    """Of any server that speaks OpenAI's completions; by `fields` it is told to go on to the last token.

    With `stream=True` the answer is read to its end.
    """

    async def ask(client: aiohttp.ClientSession, number: int) -> None:
        body = {"prompt": f"Story {number}: once upon a time", "max_tokens": TOKENS, "temperature": 0, **fields}
        async with client.post(f"{url}/v1/completions", json=body) as response:
            if not response.ok:
                raise AnswerError(f"{url} answered {response.status}: {(await response.text())[:200]}")
            generated = await (_streamed_tokens(response) if fields.get("stream") else _tokens(response))
            if generated != TOKENS:
                raise AnswerError(f"{url} generated {generated} tokens instead of {TOKENS}.")

    return ask


async def _tokens(response: aiohttp.ClientResponse) -> int:
    return int((await response.json())["usage"]["completion_tokens"])


async def _streamed_tokens(response: aiohttp.ClientResponse) -> int:
    """As the last event with a usage says."""
    generated = 0
    async for line in response.content:
        data = line.removeprefix(b"data:").strip()
        if line.startswith(b"data:") and data != b"[DONE]" and (usage := msgspec.json.decode(data).get("usage")):
            generated = usage["completion_tokens"]
    return generated


def ask_as_in_the_tutorial(url: str) -> Ask:
    async def ask(client: aiohttp.ClientSession, number: int) -> None:
        async with client.get(url, params={"text": f"Story {number}: once upon a time"}) as response:
            response.raise_for_status()
            await response.read()

    return ask
