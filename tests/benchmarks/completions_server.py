"""OpenAI's completions for an engine that has no server of its own, run by the Python of the engine's environment."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

from aiohttp import web


class Engine(Protocol):
    """Generates pieces, each of one token."""

    def generate(self, prompt: str, tokens: int) -> AsyncIterator[Sequence[Any]]:
        """As many pieces as `tokens` says, those of a step at a time."""

    def text(self, pieces: Sequence[Any]) -> str: ...


def serve(engine: Engine, port: int) -> None:
    """Until the process is ended."""

    async def complete(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        steps = engine.generate(body["prompt"], body["max_tokens"])
        if body.get("stream"):
            return await _stream(request, engine, steps)
        pieces = [piece async for step in steps for piece in step]
        return web.json_response(_chunk(engine.text(pieces), len(pieces)))

    async def healthy(request: web.Request) -> web.Response:
        return web.Response()

    app = web.Application()
    app.add_routes([web.post("/v1/completions", complete), web.get("/health", healthy)])
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None)


async def _stream(request: web.Request, engine: Engine, steps: AsyncIterator[Sequence[Any]]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    count = 0
    async for pieces in steps:
        count += len(pieces)
        await response.write(f"data: {json.dumps(_chunk(engine.text(pieces), count))}\n\n".encode())
    await response.write(b"data: [DONE]\n\n")
    return response


def _chunk(text: str, tokens: int) -> dict[str, Any]:
    return {"object": "text_completion", "choices": [{"text": text}], "usage": {"completion_tokens": tokens}}
