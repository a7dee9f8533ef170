"""The address at which a server that is not ours is seen as a service of ours.

::

    client ──▶ relay (doors, `Contact`) ──▶ server
                 │     ▲
                 ▼     └── /metrics, /slots: four times a second
    window ◀── hub (`/telemetry`, `/batching`, …)
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import aiohttp
import msgspec
import uvicorn
from fastapi import Request
from starlette.responses import Response, StreamingResponse

from service.load.client import MOST_ANSWER_BYTES, error_text, read_at_most
from service.messages.life import Ready
from service.messages.options import LOOPBACK
from service.messages.settings import BOUNDS, Scale, Settings
from service.messages.workload import TEXT
from service.probe.contact import ELSEWHERE, Contact
from service.probe.passed_on import LAST_EVENT, PassedOn
from service.probe.servers import Server, ServerGoneError
from service.ray_serve.doors import DoorRules, digest
from service.ray_serve.redeployer import DeploymentSnapshot
from service.replica.background import start_for_life
from service.replica.described import Health, Model
from service.replica.errors import error_response
from service.replica.hub import Hub
from service.replica.hub_routes import hub_api

POLL_S: Final = 0.25
END_TIMEOUT_S: Final = 1
COMPLETIONS: Final = frozenset({"/v1/completions", "/v1/chat/completions"})
HEADERS_ON: Final = ("Content-Type", "Accept", "X-Request-Id", "traceparent")
HEADERS_BACK: Final = ("Content-Type", "Retry-After")
METHODS: Final = ["GET", "POST"]
NOT_OURS: Final = "Is the server's own affair: nothing of it is deployed from here."
LOST: Final = "The connection to the server broke off before the answer was complete."


@asynccontextmanager
async def relayed(server: Server, token: str | None) -> AsyncIterator[Ready]:
    """What is said of `server` as it is ready to be looked at, at an address of our own, until the block ends.

    Clients of that address need the same `token` as the server's.
    """
    begun_s = time.monotonic()
    relay = Relay(server)
    rules = DoorRules(host=LOOPBACK, token_sha256=None if token is None else digest(token.encode()))
    health = Health(
        model=relay.model,
        device=ELSEWHERE,
        dtype="",
        server=server.title,
        fixed=f"{server.title} forms its batches itself. {server.kind.settings}",
        untold=server.untold,
    )
    model = Model(id=relay.model, owned_by=server.title, context_length=server.context_length)
    api = hub_api(relay.hub, rules, workload=TEXT, model=model, health=health, redeploying=NOT_OURS)
    api.add_api_route("/{path:path}", relay.pass_on, methods=METHODS, include_in_schema=False)
    door = socket.create_server((LOOPBACK, 0))
    config = uvicorn.Config(api, log_config=None, lifespan="off", timeout_graceful_shutdown=END_TIMEOUT_S)
    http = _HttpServer(config)
    watching = start_for_life(relay.watch(), "Watching the server")
    serving = asyncio.create_task(http.serve(sockets=[door]))
    try:
        await relay.heard.wait()
        yield Ready.answered(
            f"http://{LOOPBACK}:{door.getsockname()[1]}",
            "",
            msgspec.to_builtins(health),
            {"data": [{"context_length": server.context_length}]},
            msgspec.to_builtins(TEXT),
            replicas=1,
            started_in_s=round(time.monotonic() - begun_s, 3),
        )
    finally:
        logging.getLogger("uvicorn").setLevel(logging.CRITICAL)  # that streams of telemetry are broken off is meant
        http.should_exit = True
        watching.cancel()
        await serving


class _HttpServer(uvicorn.Server):
    """Ends when its `should_exit` is set; signals are the program's affair."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Relay:
    """Passes requests on to a server, and keeps a hub that knows what is seen of it.

    Attributes:
        model: the name that its clients ask for.
        heard: set when the server has reported for the first time.
    """

    def __init__(self, server: Server) -> None:
        self.model = server.model or server.kind.name
        self.heard = asyncio.Event()
        self._server = server
        self._elsewhere = _Elsewhere()
        self._contact: Contact | None = None
        self._contacts = 0
        most = int(BOUNDS["max_batch_size"].high)
        settings = Settings(formation="continuous", max_batch_size=min(server.places or most, most))
        self.hub = Hub(settings, self._elsewhere, _InMemory(), secrets.token_hex(8))

    async def watch(self) -> None:
        """Report what the server says of itself, for ever; while it does not answer, nothing is reported."""
        while True:
            try:
                gauges = await self._server.gauges()
            except ServerGoneError:
                self._contact = self._elsewhere.present = gauges = None  # the hub finds that there is no replica
            if gauges is not None:
                contact = self._contact or await self._make_contact()
                report = contact.recorder.report(contact.note(gauges))
                await self.hub.report(report)
                contact.recorder.acknowledge(report.number)
                self.heard.set()
            await asyncio.sleep(POLL_S)

    async def _make_contact(self) -> Contact:
        self._contacts += 1
        name = self._elsewhere.present = f"contact {self._contacts}"
        replica, _ = await self.hub.register(name)
        self._contact = Contact(replica, self._server, self.hub.in_force)
        return self._contact

    async def pass_on(self, request: Request) -> Response:
        """Ask the server for the same."""
        received_s = time.monotonic()
        path, body = request.url.path, await request.body()
        fields = _fields(body) if path in COMPLETIONS else {}
        seen = None
        if fields and self._contact is not None:
            seen = PassedOn(self._contact, fields, request.headers.get("x-request-id"), received_s)
            body = self._as_the_server_takes_it(fields)
        headers = {name: request.headers[name] for name in HEADERS_ON if name in request.headers}
        if not self._server.kind.keeps_connections:
            headers["Connection"] = "close"
        url = f"{self._server.url}{path}"
        try:
            answer = await self._server.session.request(
                request.method, url, params=request.query_params, data=body, headers=headers, allow_redirects=False
            )
        except (aiohttp.ClientError, TimeoutError) as error:
            message = f"{self._server.url} cannot be reached: {error}"
            if seen is not None:
                seen.end(message)
            return error_response(502, message, code="server_unreachable")
        except asyncio.CancelledError:
            if seen is not None:
                seen.end(cancelled=True)
            raise
        kept = {name: answer.headers[name] for name in HEADERS_BACK if name in answer.headers}
        return StreamingResponse(_passed_back(answer, seen), answer.status, kept)

    def _as_the_server_takes_it(self, fields: Mapping[str, Any]) -> bytes:
        kept = {name: value for name, value in fields.items() if name not in self._server.kind.refuses}
        if kept.get("model") == self.model and not self._server.model:
            del kept["model"]
        return msgspec.json.encode(kept)


async def _passed_back(answer: aiohttp.ClientResponse, seen: PassedOn | None) -> AsyncIterator[bytes]:
    """The body as it comes."""
    try:
        if seen is None or answer.status != 200:
            whole = await read_at_most(answer, MOST_ANSWER_BYTES)
            if seen is not None:
                seen.end(f"{error_text(whole) or answer.reason} (HTTP {answer.status})")
            yield whole
        else:
            async for chunk in answer.content.iter_any():
                seen.take(chunk)
                yield chunk
            if seen.lacks_last_event:
                yield LAST_EVENT
            seen.end()
    except (aiohttp.ClientError, TimeoutError):
        if seen is not None:
            seen.end(LOST)
        raise
    finally:  # the client may have left
        if seen is not None:
            seen.end(cancelled=True)
        answer.close()


def _fields(body: bytes) -> dict[str, Any]:
    """Of a request; none where the body is no JSON object, which the server will say."""
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return {}


class _Elsewhere:
    """What the hub takes for the application: one replica as long as the server answers, which others deploy.

    Attributes:
        present: the name of the contact, if there is one.
    """

    def __init__(self) -> None:
        self.present: str | None = None

    def look(self) -> DeploymentSnapshot:
        return DeploymentSnapshot(
            wanted=Scale(),
            running=frozenset() if self.present is None else frozenset({self.present}),
            starting=frozenset(),
            leaving=frozenset(),
            resources={},
            is_autoscaled=False,
            is_settled=True,
        )

    def deploy(self, scale: Scale, drain_timeout_s: float) -> None:
        raise NotImplementedError(NOT_OURS)

    def free_resources(self) -> Mapping[str, float]:
        return {}

    def is_on_one_machine(self) -> bool:
        return True


class _InMemory:
    """The hub's memory, which ends with it."""

    def __init__(self) -> None:
        self._state: bytes | None = None

    def load(self) -> bytes | None:
        return self._state

    def save(self, state: bytes) -> None:
        self._state = state
