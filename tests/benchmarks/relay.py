"""A relay before a completion server that times each request as our load generator would have, whoever sent it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import aiohttp
import msgspec
from aiohttp import web

from service.load.client import take_event
from service.load.flight import Flight
from service.load.report import ReportedRequest
from service.messages.event_stream import EventReader

HOST: Final = "127.0.0.1"
ALL: Final = aiohttp.ClientTimeout(total=None)
DROPPED: Final = frozenset({"host", "content-length", "transfer-encoding", "connection", "accept-encoding"})


class Relay:
    """Passes every byte on as it is, and reads of it what our own client would read of an answer.

    A request counts from its arrival here, an answer to the moment its last event is here.
    """

    def __init__(self, target: str) -> None:
        self._target = target
        self._flights: list[Flight] = []
        self.url = ""

    def take(self) -> list[ReportedRequest]:
        """The requests that have ended since the last call, in the order in which they came."""
        ended, self._flights = self._flights, []
        ended.sort(key=lambda flight: flight.intended_s)
        return [ReportedRequest.of(flight, ended[0].intended_s) for flight in ended]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        arrived_s, body = time.monotonic(), await request.read()
        headers = {name: value for name, value in request.headers.items() if name.lower() not in DROPPED}
        async with self._session.request(
            request.method, f"{self._target}{request.path_qs}", data=body, headers=headers
        ) as response:
            answer = web.StreamResponse(status=response.status)
            answer.content_type = response.content_type
            await answer.prepare(request)
            if request.method == "POST" and response.status == 200:
                flight = _flight(arrived_s, msgspec.json.decode(body, type=dict[str, Any]))
                await self._pass_on(response, answer, flight)
            else:
                await answer.write(await response.read())
            with suppress(aiohttp.ClientConnectionResetError):  # a generator may hang up after the last event
                await answer.write_eof()
            return answer

    async def _pass_on(self, response: aiohttp.ClientResponse, answer: web.StreamResponse, flight: Flight) -> None:
        reader = EventReader()
        async for chunk in response.content.iter_any():
            now_s = time.monotonic()
            for event in reader.feed(chunk):
                if found := take_event(event, flight, now_s):
                    flight.outcome, flight.finished_s = found.outcome, now_s
                    self._flights.append(flight)
            await answer.write(chunk)

    async def serve(self, is_up: threading.Event, is_over: asyncio.Event) -> None:
        application = web.Application(client_max_size=1 << 24)
        application.router.add_route("*", "/{path:.*}", self.answer)
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=4.0)
        async with aiohttp.ClientSession(connector=connector, timeout=ALL, auto_decompress=False) as self._session:
            runner = web.AppRunner(application)
            await runner.setup()
            site = web.TCPSite(runner, HOST, 0)
            await site.start()
            self.url = f"http://{HOST}:{runner.addresses[0][1]}"
            is_up.set()
            await is_over.wait()
            await runner.cleanup()


def _flight(arrived_s: float, body: dict[str, Any]) -> Flight:
    return Flight(
        id="",
        source="load",
        prompt="",
        max_tokens=int(body.get("max_tokens", 0)),
        temperature=0.0,
        intended_s=arrived_s,
        sent_s=arrived_s,
    )


@contextmanager
def relay_before(target: str) -> Iterator[Relay]:
    """A relay in a thread of its own; `target` is the address of the server."""
    made, is_up, loop = Relay(target), threading.Event(), asyncio.new_event_loop()
    is_over = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(made.serve(is_up, is_over),))
    thread.start()
    try:
        is_up.wait()
        yield made
    finally:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(is_over.set)
        thread.join()
        loop.close()
