"""Which requests may enter: the checks before every route, as pure ASGI middleware.

Under `python -m service` they stand in Ray Serve's proxy, before Serve's own routes too; under `serve run`, and on an
external cluster, in the application. Their parameters travel in environment variables, because Ray starts the proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import hmac
import ipaddress
import json
import os
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.messages.options import ALLOW_VARIABLE, host_and_port, is_loopback

Headers: TypeAlias = list[tuple[bytes, bytes]]

MAX_BODY_BYTES: Final = 1_000_000
MOST_DIGITS: Final = 20  # of a length; Python converts no number of thousands of them
BODY_TIMEOUT_S: Final = 10.0
LINGER_S: Final = 2.0
LINGER_BYTES: Final = 20 * MAX_BODY_BYTES
INSTANCE_HEADER: Final = "x-batchscope-instance"
PLACES_HEADER: Final = "x-batchscope-places"
"""Of a replica's answers: its id and how many requests it holds at most. The doors take it off."""
QUEUED_PATHS: Final = frozenset({"/", "/v1/completions", "/v1/chat/completions"})  # what waits in a replica's queue
ON_THE_WAY: Final = 512  # requests between the doors and the replicas, or on their way back
HEARD_S: Final = 60.0  # after which a replica that has not answered is not counted
BODY_KEY: Final = "batchscope.body"
"""The key of the whole body in a request's scope, for code that gets the scope alone; it can be received as well."""

PLACE_VARIABLE: Final = "BATCHSCOPE_DOORS"
HOST_VARIABLE: Final = "BATCHSCOPE_DOORS_HOST"
TOKEN_VARIABLE: Final = "BATCHSCOPE_DOORS_TOKEN_SHA256"
INSTANCE_VARIABLE: Final = "BATCHSCOPE_DOORS_INSTANCE"

LOOPBACK_NAMES: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})

_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9_.-]{1,64}")
# With these a caller steers Ray Serve 2.60: time-outs, cancellation, routing. Serve takes "-" and "_" for the same.
_SERVE_HEADERS: Final = frozenset(
    {b"x-request-timeout-seconds", b"x-request-disconnect-disabled", b"x-session-id", b"serve-multiplexed-model-id"}
)
_SERVE_HEADER_PREFIX: Final = b"x-serve-"


@dataclass(frozen=True)
class DoorRules:
    """What a request must show."""

    host: str | None = None  # the address the service listens on; ``None`` where the doors do not know it
    instance: str | None = None  # stamped on every response, so that a caller knows which service answered
    token_sha256: str | None = None  # of the bearer token that every request must carry
    allowed: frozenset[tuple[str, int | None]] = frozenset()  # further names, at this port, or ``None``: at any

    @functools.cached_property
    def host_names(self) -> frozenset[str]:
        """Names by which a client may call us, in the form of the Host header."""
        if self.host is None or is_loopback(self.host):
            return LOOPBACK_NAMES | ({_bracketed(self.host)} if self.host else set())
        return LOOPBACK_NAMES | {_bracketed(self.host), socket.gethostname().lower()}

    def allows(self, name: str, port: int) -> bool:
        """Whether a user allowed that name at that port."""
        return not self.allowed.isdisjoint({(name, port), (name, None)})

    def knows_host(self, name: str) -> bool:
        # Where we listen on the network any literal address will do: what is no name cannot be rebound.
        return name in self.host_names or (not is_loopback(self.host or "127.0.0.1") and _is_address(name))


@dataclass(frozen=True)
class Refusal:
    """An answer that ends a request at the door."""

    status: int
    code: str
    message: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


_WRONG_HOST: Final = Refusal(
    403,
    "host_refused",
    "The Host header must name this service's own address and port, or one given with --allow-host.",
)
_FROM_BROWSER: Final = Refusal(403, "browser_refused", "Requests that a web page makes are not served.")
_NO_TOKEN: Final = Refusal(
    401,
    "token_required",
    "A bearer token is required: send the header 'Authorization: Bearer <token>'.",
    ((b"www-authenticate", b"Bearer"),),
)
_WRONG_TOKEN: Final = Refusal(
    401, "token_refused", "That bearer token is not this service's.", ((b"www-authenticate", b"Bearer"),)
)
# The rest of such a body is not waited for, so the connection cannot be used again.
_CLOSES: Final = (b"connection", b"close")
_TOO_LARGE: Final = Refusal(413, "body_too_large", f"The body is larger than {MAX_BODY_BYTES:,} bytes.", (_CLOSES,))
_TOO_SLOW: Final = Refusal(408, "body_too_slow", f"The body did not arrive within {BODY_TIMEOUT_S:g} s.", (_CLOSES,))
_FULL: Final = Refusal(
    503,
    "queue_full",
    "More requests are under way than the replicas have places for. Send it again later.",
    ((b"retry-after", b"1"),),
)
_LOST: Final = Refusal(
    500, "replica_lost", "The replica that held this request ended before its answer did. Send it again."
)


def is_queued(scope: Scope) -> bool:
    """Whether the request waits in a replica's queue."""
    return (scope["path"].removeprefix(scope.get("root_path", "")) or "/") in QUEUED_PATHS


class Doors:
    """Lets in what keeps the rules, refuses the rest in OpenAI's error shape, and stamps every response.

    Where the application ends without a whole response, as Serve's proxy does when a replica dies, they say so.
    """

    def __init__(self, app: ASGIApp, rules: DoorRules) -> None:
        self._app = app
        self._rules = rules
        self._places = _Places()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": "There are no WebSockets here."})
        elif scope["type"] == "http":
            await self._serve(scope, receive, _Response(send, self._rules.instance, self._places))
        else:
            await self._app(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, response: _Response) -> None:
        headers: Headers = list(scope["headers"])
        server = scope.get("server")  # the socket itself, which needs no configuration
        refusal = refusal_of(headers, server[1] if server else None, self._rules)
        takes_place = is_queued(scope)
        if refusal is None and takes_place and self._places.are_taken:
            refusal = _FULL
        if refusal is not None:
            await _refuse(receive, response.send, refusal)
            return
        body: bytes | Refusal | None = b""
        if _has_body(headers):
            body = await _read_body(receive)
            if body is None:
                return
            if isinstance(body, Refusal):
                await _refuse(receive, response.send, body)
                return
            receive = _replaying(body, receive)
        self._places.taken += takes_place
        try:
            await self._app({**scope, "headers": _cleaned(headers), BODY_KEY: body}, receive, response.send)
        finally:
            self._places.taken -= takes_place
        if not response.has_begun:
            await _refuse(receive, response.send, _LOST)
        elif response.is_open_stream:  # its connection is broken off after that, so that no client takes it for whole
            event = b"event: error\ndata: " + _body_of(_LOST) + b"\n\n"
            await response.send({"type": "http.response.body", "body": event, "more_body": True})


class _Places:
    """How many requests the replicas hold at most, as they say with their answers, and how many are under way.

    Under load Ray Serve's proxy takes requests in before it hands answers on. Where more come than it can carry, as
    soon happens with a fast function, no answer leaves it, and no replica's queue is full. So the doors refuse what no
    replica would have a place for.

    Attributes:
        taken: requests that were let in and not yet answered.
    """

    def __init__(self) -> None:
        self.taken = 0
        self._of_replicas: dict[bytes, tuple[int, float]] = {}

    def note(self, replica: bytes, most: int) -> None:
        now_s = time.monotonic()
        if replica not in self._of_replicas:
            self._of_replicas = {name: each for name, each in self._of_replicas.items() if now_s - each[1] < HEARD_S}
        self._of_replicas[replica] = most, now_s

    @property
    def are_taken(self) -> bool:
        """Whether all are; not as long as no replica is known."""
        now_s = time.monotonic()
        known = [most for most, heard_s in self._of_replicas.values() if now_s - heard_s < HEARD_S]
        return bool(known) and self.taken >= sum(known) + ON_THE_WAY


class _Response:
    """The way back to the client, on which each response is stamped.

    Attributes:
        is_open_stream: it is a stream of events, and has not ended.
    """

    def __init__(self, send: Send, instance: str | None, places: _Places) -> None:
        self.has_begun = False
        self.is_open_stream = False
        self._send = send
        self._places = places
        self._stamps = [] if instance is None else [(INSTANCE_HEADER.encode(), instance.encode())]

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = self._without_places(list(message.get("headers", ())))
            self.has_begun = True
            self.is_open_stream = any(_is_of_events(name, value) for name, value in headers)
            message = {**message, "headers": headers + self._stamps}
        elif not message.get("more_body", False):
            self.is_open_stream = False
        await self._send(message)

    def _without_places(self, headers: Headers) -> Headers:
        """The headers without those that replicas write for the doors, which are read."""
        for value in _values(headers, PLACES_HEADER.encode()):
            replica, _, most = value.rpartition(b" ")
            if most.isdigit():
                self._places.note(replica, int(most))
        return [(name, value) for name, value in headers if name != PLACES_HEADER.encode()]


def rules_from_environment(environment: Mapping[str, str] = os.environ) -> DoorRules:
    """The rules in `environment`; without any of the variables, the rules for an unknown port on loopback."""
    allowed = environment.get(ALLOW_VARIABLE, "")
    return DoorRules(
        host=environment.get(HOST_VARIABLE),
        instance=environment.get(INSTANCE_VARIABLE),
        token_sha256=environment.get(TOKEN_VARIABLE),
        allowed=frozenset(filter(None, (host_and_port(each.strip()) for each in allowed.split(",")))),
    )


def digest(token: bytes) -> str:
    """The digest that the doors keep of a token, which itself reaches no other process."""
    return hashlib.sha256(token).hexdigest()


def doors_from_environment(app: ASGIApp) -> ASGIApp:
    """`app` behind doors, or `app` itself where they stand in the proxy already."""
    if os.environ.get(PLACE_VARIABLE) == "proxy":
        return app
    return Doors(app, rules_from_environment())


def refusal_of(headers: Headers, port: int | None, rules: DoorRules) -> Refusal | None:
    """Why a request with these headers is not let in, or ``None``."""
    if not _is_host_ours(_values(headers, b"host"), port, rules):
        return _WRONG_HOST
    if any(_is_of_web_page(name, value) for name, value in headers):
        return _FROM_BROWSER
    given = _values(headers, b"authorization")
    if rules.token_sha256 is not None and not _is_token(given, rules.token_sha256):
        return _WRONG_TOKEN if given else _NO_TOKEN
    length = next(iter(_values(headers, b"content-length")), b"0").lstrip(b"0")
    if length.isdigit() and (len(length) > MOST_DIGITS or int(length) > MAX_BODY_BYTES):
        return _TOO_LARGE
    return None


async def _read_body(receive: Receive) -> bytes | Refusal | None:
    """The body, or why it is not taken; ``None`` if the client has gone.

    All of it is read before the application sees the request: so a refusal is still possible, and a client that sends
    slowly holds no place in the queue.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                body += message.get("body", b"")
                if len(body) > MAX_BODY_BYTES:
                    return _TOO_LARGE
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        return _TOO_SLOW


def _replaying(body: bytes, receive: Receive) -> Receive:
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_replayed() -> Message:
        return pending.pop() if pending else await receive()

    return receive_replayed


def _body_of(refusal: Refusal) -> bytes:
    """As OpenAI's clients expect it."""
    kinds = {401: "authentication_error", 500: "server_error", 503: "server_error"}
    kind = kinds.get(refusal.status, "invalid_request_error")
    error = {"message": refusal.message, "type": kind, "param": None, "code": refusal.code}
    return json.dumps({"error": error}).encode()


async def _refuse(receive: Receive, send: Send, refusal: Refusal) -> None:
    body = _body_of(refusal)
    lengths = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": refusal.status, "headers": [*lengths, *refusal.headers]})
    await send({"type": "http.response.body", "body": body, "more_body": True})
    if _CLOSES in refusal.headers:
        await _drain(receive)
    await send({"type": "http.response.body"})


async def _drain(receive: Receive) -> None:
    """Drop what the client still sends, for a while: a connection closed under it would take the answer with it."""
    dropped = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LINGER_S):
            while dropped < LINGER_BYTES:
                message = await receive()
                if not message.get("more_body", False):
                    return
                dropped += len(message.get("body", b""))


def _cleaned(headers: Headers) -> Headers:
    """The headers without the token, and without headers by which a client would steer Ray Serve."""
    kept = [(name, value) for name, value in headers if not _is_for_serve(name) and name != b"authorization"]
    ids = _values(kept, b"x-request-id")
    if len(ids) == 1 and _REQUEST_ID.fullmatch(ids[0]):
        return kept
    # WORKAROUND ray 2.60: the proxy decodes the id as UTF-8 and answers 500 where it is none.
    return [(name, value) for name, value in kept if name != b"x-request-id"]


def _is_for_serve(name: bytes) -> bool:
    dashed = name.replace(b"_", b"-")
    return dashed in _SERVE_HEADERS or dashed.startswith(_SERVE_HEADER_PREFIX)


def _is_host_ours(hosts: list[bytes], port: int | None, rules: DoorRules) -> bool:
    host = host_and_port(hosts[0].decode("latin-1")) if len(hosts) == 1 else None
    if host is None:
        return False
    name, given_port = host[0], host[1] or 80
    return rules.allows(name, given_port) or (rules.knows_host(name) and (rules.host is None or given_port == port))


def _is_of_web_page(name: bytes, value: bytes) -> bool:
    # Node's fetch sends this one header of its kind. A browser sends Sec-Fetch-Site beside it.
    if (name, value) == (b"sec-fetch-mode", b"cors"):
        return False
    return name in (b"origin", b"referer") or name.startswith(b"sec-fetch-")


def _is_of_events(name: bytes, value: bytes) -> bool:
    return name.lower() == b"content-type" and value.startswith(b"text/event-stream")


def _is_token(authorizations: list[bytes], token_sha256: str) -> bool:
    if len(authorizations) != 1:
        return False
    scheme, _, given = authorizations[0].partition(b" ")
    return hmac.compare_digest(digest(given.strip()), token_sha256) and scheme.lower() == b"bearer"


def _has_body(headers: Headers) -> bool:
    return any(name == b"transfer-encoding" or (name == b"content-length" and value != b"0") for name, value in headers)


def _values(headers: Headers, name: bytes) -> list[bytes]:
    return [value for given, value in headers if given == name]


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host.lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
