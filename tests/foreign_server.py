"""A server that is not ours, for tests: so many requests at a time, a token each step, and what it says of itself."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

Answers = dict[str, Callable[["ForeignServer"], Any]]


def exposition(labels: str, **figures: float) -> str:
    """The text of `/metrics` with these figures; the names of counters end in ``_total``."""
    return "".join(
        f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}\n{name}{{{labels}}} {value}\n"
        for name, value in figures.items()
    )


VLLM: Answers = {
    "/version": lambda server: {"version": "0.32.0"},
    "/metrics": lambda server: exposition(
        'engine="0",model_name="tiny"',
        **{
            "vllm:num_requests_running": server.running,
            "vllm:num_requests_waiting": server.waiting,
            "vllm:kv_cache_usage_perc": server.running / 10,
            "vllm:generation_tokens_total": server.tokens,
            "vllm:prompt_tokens_total": server.prompt_tokens,
        },
    ),
}
SGLANG: Answers = {
    "/server_info": lambda server: {"version": "0.5.9"},
    "/metrics": lambda server: exposition(
        'mode="decode",model_name="tiny",tp_rank="0"',
        **{
            "sglang:num_running_reqs": server.most_running,
            "sglang:num_queue_reqs": server.waiting,
            "sglang:realtime_tokens_total": server.tokens,
        },
    ),
}
"""Of a server whose count of what runs stays as it was when nothing is left."""
SILENT: Answers = {}
"""Of a server that reports nothing."""


class ForeignServer:
    """Completes prompts as OpenAI's does, in an event loop and a thread of its own.

    Attributes:
        url: where it answers.
        running, waiting, tokens, prompt_tokens: as it would report them.
        most_running: at a time, since it was made.
        asked: the bodies that it was sent.

    Args:
        step_s: waited for before each token.
        says_done: whether a stream ends with OpenAI's last event.
    """

    def __init__(
        self,
        answers: Answers,
        *,
        places: int = 2,
        token: str | None = None,
        step_s: float = 0.01,
        says_done: bool = True,
    ) -> None:
        self.url = ""
        self.running = self.waiting = self.tokens = self.prompt_tokens = self.most_running = 0
        self.asked: list[dict[str, Any]] = []
        self._answers = answers
        self._token = token
        self._step_s = step_s
        self._places = places
        self._says_done = says_done
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="foreign server")
        self._runner: web.AppRunner | None = None

    def start(self, port: int = 0) -> None:
        if not self._thread.is_alive():
            self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(port), self._loop).result(10)

    def stop(self) -> None:
        """It answers no more; `start` lets it begin anew."""
        if self._runner is not None:
            asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(10)
            self._runner = None

    def end(self) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    async def _listen(self, port: int) -> None:
        self._slots = asyncio.Semaphore(self._places)
        app = web.Application()
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/completions", self._complete)
        for path in self._answers:
            app.router.add_get(path, self._say)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _say(self, request: web.Request) -> web.Response:
        told = self._answers[request.path](self)
        return web.Response(text=told) if isinstance(told, str) else web.json_response(told)

    async def _models(self, request: web.Request) -> web.Response:
        self._check(request)
        return web.json_response({"object": "list", "data": [{"id": "tiny", "max_model_len": 128}]})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        self._check(request)
        body = await request.json()
        self.asked.append(body)
        count, words = body["max_tokens"], len(body["prompt"].split())
        usage = {"prompt_tokens": words, "completion_tokens": count}
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        self.waiting += 1
        async with self._slots:
            self.waiting -= 1
            self.running += 1
            self.most_running = max(self.most_running, self.running)
            self.prompt_tokens += words
            try:
                if not body.get("stream"):
                    await asyncio.sleep(count * self._step_s)
                    self.tokens += count
                    choice = {"text": " a" * count, "finish_reason": "length"}
                    return web.json_response({"choices": [choice], "usage": usage})
                await response.prepare(request)
                for number in range(count):
                    await asyncio.sleep(self._step_s)
                    self.tokens += 1
                    choice = {"text": " a", "finish_reason": "length" if number == count - 1 else None}
                    await response.write(f"data: {json.dumps({'choices': [choice]})}\n\n".encode())
                last = json.dumps({"choices": [], "usage": usage})
                done = "data: [DONE]\n\n" if self._says_done else ""
                await response.write(f"data: {last}\n\n{done}".encode())
                return response
            finally:
                self.running -= 1

    def _check(self, request: web.Request) -> None:
        if self._token is not None and request.headers.get("Authorization") != f"Bearer {self._token}":
            raise web.HTTPUnauthorized


@contextmanager
def foreign_server(answers: Answers, **how: Any) -> Iterator[ForeignServer]:
    server = ForeignServer(answers, **how)
    server.start()
    try:
        yield server
    finally:
        server.end()
