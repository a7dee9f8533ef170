"""The doors: which requests enter, which are refused and how, what reaches the application."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, field, replace

import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.server import ServerState

from service.messages.event_stream import ERROR, EventReader
from service.messages.options import is_loopback
from service.ray_serve import doors, patches
from service.ray_serve.doors import MAX_BODY_BYTES, DoorRules, Doors, Headers, Message, Receive, Scope, Send
from service.ray_serve.patches import HeadsInTime

pytestmark = pytest.mark.promise("T27")

TOKEN = "a-token-of-some-length"
OURS = DoorRules(host="127.0.0.1", instance="4711")
ON_THE_NETWORK = DoorRules(host="0.0.0.0", instance="4711", token_sha256=doors.digest(TOKEN.encode()))
PORT = 8000
HOST = (b"host", b"127.0.0.1:8000")


@dataclass
class App:
    """An application that remembers what reached it and answers 200 with the body it got."""

    scopes: list[Scope] = field(default_factory=list)
    body: bytes = b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        if scope["type"] == "http":
            self.body = (await receive())["body"]
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
            await send({"type": "http.response.body", "body": self.body})

    @property
    def headers(self) -> Headers:
        return list(self.scopes[0]["headers"])


@dataclass
class Client:
    """Sends the given messages, keeps the responses, and counts how often it was asked for more before an answer."""

    messages: list[Message]
    asked: int = 0
    sent: list[Message] = field(default_factory=list)

    async def receive(self) -> Message:
        self.asked += not self.sent
        if not self.messages:
            await asyncio.Event().wait()
        return self.messages.pop(0)

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])

    @property
    def error(self) -> dict[str, str | None]:
        error: dict[str, str | None] = json.loads(self.sent[1]["body"])["error"]
        return error


def chunks(*bodies: bytes) -> list[Message]:
    return [
        {"type": "http.request", "body": body, "more_body": number < len(bodies)}
        for number, body in enumerate(bodies, start=1)
    ]


async def ask(
    rules: DoorRules = OURS,
    headers: Iterable[tuple[bytes, bytes]] = (HOST,),
    messages: Iterable[Message] = (),
    port: int = PORT,
) -> tuple[Client, App]:
    app, client = App(), Client(list(messages) or chunks(b""))
    scope = {"type": "http", "method": "POST", "path": "/", "headers": list(headers), "server": ("127.0.0.1", port)}
    await Doors(app, rules)(scope, client.receive, client.send)
    return client, app


@pytest.fixture(autouse=True, scope="module")
def brief() -> Iterator[None]:
    """A client that is silent is not waited for long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(doors, "LINGER_S", 0.01)
        yield


# -- Host -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost:8000", "[::1]:8000", "LOCALHOST:8000", "LocalHost:8000"])
async def test_that_our_own_names_and_port_are_let_in(host: str) -> None:
    client, _ = await ask(headers=[(b"host", host.encode())])
    assert client.status == 200


@pytest.mark.parametrize(
    "hosts",
    [
        [],
        [""],
        ["127.0.0.1"],
        ["localhost"],
        ["127.0.0.1:"],
        ["127.0.0.1:8001"],
        ["127.0.0.1:80"],
        ["127.0.0.1:08000 "],
        ["127.0.0.1:8000:8000"],
        ["127.0.0.1:８０００"],
        ["127.0.0.1:8000/"],
        ["127.0.0.1:8000,evil.example"],
        ["127.0.0.1:8000@evil.example"],
        ["user@127.0.0.1:8000"],
        ["evil.example"],
        ["evil.example:8000"],
        ["127.0.0.1.evil.example:8000"],
        ["localhost.evil.example:8000"],
        ["localhost.:8000"],
        ["evil-localhost:8000"],
        ["0.0.0.0:8000"],
        ["127.0.0.2:8000"],
        ["127.1:8000"],
        ["2130706433:8000"],
        ["0x7f000001:8000"],
        ["[::ffff:127.0.0.1]:8000"],
        ["[::]:8000"],
        ["::1:8000"],
        ["[::1]"],
        ["[0:0:0:0:0:0:0:1]:8000"],
        ["10.0.0.1:8000"],
        ["127.0.0.1:8000\t"],
        [" 127.0.0.1:8000"],
        ["127.0.0.1:8000\x00"],
        ["127.0.0.1:8000\nevil.example"],
        ["localhost:8000\xff"],
        ["127.0.0.1:8000", "127.0.0.1:8000"],
        ["127.0.0.1:8000", "evil.example"],
        ["evil.example", "127.0.0.1:8000"],
        ["*"],
    ],
)
async def test_that_any_other_host_is_refused(hosts: list[str]) -> None:
    client, app = await ask(headers=[(b"host", host.encode("utf-8")) for host in hosts])
    assert (client.status, client.error["code"], app.scopes) == (403, "host_refused", [])


async def test_that_the_port_is_that_of_the_socket() -> None:
    client, _ = await ask(headers=[(b"host", b"localhost:8017")], port=8017)
    assert client.status == 200


async def test_that_port_80_need_not_be_named() -> None:
    client, _ = await ask(headers=[(b"host", b"localhost")], port=80)
    assert client.status == 200


async def test_that_without_configuration_any_port_on_loopback_is_let_in_and_nothing_is_stamped() -> None:
    client, _ = await ask(DoorRules(), headers=[(b"host", b"localhost:9999")])
    assert (client.status, doors.INSTANCE_HEADER.encode() in client.headers) == (200, False)


async def test_that_without_configuration_other_names_are_refused() -> None:
    client, _ = await ask(DoorRules(), headers=[(b"host", b"evil.example:8000")])
    assert client.status == 403


@pytest.mark.parametrize(
    ("host", "status"),
    [("gpu-box", 200), ("GPU-box:1234", 200), ("localhost:9000", 200), ("localhost:9001", 403), ("evil.example", 403)],
)
async def test_that_names_are_let_in_that_the_user_allowed_at_their_ports(host: str, status: int) -> None:
    rules = replace(OURS, allowed=frozenset({("gpu-box", None), ("localhost", 9000)}))
    client, _ = await ask(rules, headers=[(b"host", host.encode())])
    assert client.status == status


@pytest.mark.parametrize(
    ("host", "status"), [("192.168.1.7:8000", 200), ("[fe80::1]:8000", 200), ("evil.example", 403)]
)
async def test_that_on_the_network_addresses_are_let_in_but_no_strange_names(host: str, status: int) -> None:
    bearer = (b"authorization", f"Bearer {TOKEN}".encode())
    client, _ = await ask(ON_THE_NETWORK, headers=[(b"host", host.encode()), bearer])
    assert client.status == status


# -- browsers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (b"origin", b"http://evil.example"),
        (b"origin", b"http://127.0.0.1:8000"),
        (b"origin", b"null"),
        (b"origin", b""),
        (b"referer", b"http://127.0.0.1:8000/"),
        (b"referer", b""),
        (b"sec-fetch-site", b"same-origin"),
        (b"sec-fetch-site", b"none"),
        (b"sec-fetch-mode", b"navigate"),
        (b"sec-fetch-mode", b"no-cors"),
        (b"sec-fetch-mode", b"same-origin"),
        (b"sec-fetch-dest", b"empty"),
        (b"sec-fetch-user", b"?1"),
        (b"sec-fetch-storage-access", b"none"),
    ],
)
async def test_that_what_a_web_page_sends_is_refused(name: bytes, value: bytes) -> None:
    client, app = await ask(headers=[HOST, (name, value)])
    assert (client.status, client.error["code"], app.scopes) == (403, "browser_refused", [])


NODE_FETCH = {  # of Node 20: what openai-node, LangChain and the Vercel SDK send with
    "connection": "keep-alive",
    "accept": "*/*",
    "accept-language": "*",
    "sec-fetch-mode": "cors",
    "user-agent": "node",
    "accept-encoding": "gzip, deflate",
}
CHROME_FETCH = {
    "sec-ch-ua": '"Chromium";v="130", "Not?A_Brand";v="99"',
    "user-agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/130.0.0.0 Safari/537.36",
    "accept": "*/*",
    "origin": "http://evil.example",
    "sec-fetch-site": "cross-site",
    "sec-fetch-mode": "cors",
    "sec-fetch-dest": "empty",
    "referer": "http://evil.example/",
}
CHROME_SAME_ORIGIN_FETCH = {"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}
CHROME_IMAGE = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}
CHROME_LINK = {
    "sec-fetch-site": "none",
    "sec-fetch-mode": "navigate",
    "sec-fetch-user": "?1",
    "sec-fetch-dest": "document",
}
FIREFOX_FETCH = {
    "user-agent": "Mozilla/5.0 (X11; Linux x86_64; rv:132.0) Gecko/20100101 Firefox/132.0",
    "accept": "*/*",
    "accept-language": "en-US,en;q=0.5",
    "origin": "null",
    "sec-fetch-dest": "empty",
    "sec-fetch-mode": "cors",
    "sec-fetch-site": "cross-site",
}
SAFARI_15_FETCH = {"origin": "http://evil.example", "referer": "http://evil.example/", "accept": "*/*"}


def encoded(headers: dict[str, str]) -> Headers:
    return [HOST, *((name.encode(), value.encode()) for name, value in headers.items())]


async def test_that_node_is_let_in() -> None:
    client, _ = await ask(headers=encoded(NODE_FETCH))
    assert client.status == 200


@pytest.mark.parametrize(
    "headers",
    [CHROME_FETCH, CHROME_SAME_ORIGIN_FETCH, CHROME_IMAGE, CHROME_LINK, FIREFOX_FETCH, SAFARI_15_FETCH],
    ids=["chrome", "chrome-same-origin", "chrome-image", "chrome-link", "firefox", "safari-15"],
)
async def test_that_a_web_page_in_a_browser_is_refused(headers: dict[str, str]) -> None:
    client, app = await ask(headers=encoded(headers))
    assert (client.status, client.error["code"], app.scopes) == (403, "browser_refused", [])


@pytest.mark.parametrize("name", ["origin", "referer", "sec-fetch-site", "sec-fetch-dest", "sec-fetch-user"])
async def test_that_one_more_header_of_a_web_page_is_enough_to_refuse(name: str) -> None:
    client, _ = await ask(headers=encoded(NODE_FETCH | {name: "x"}))
    assert (client.status, client.error["code"]) == (403, "browser_refused")


# -- token ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [f"Bearer {TOKEN}", f"bearer {TOKEN}", f"Bearer  {TOKEN} "])
async def test_that_the_token_lets_in_and_goes_no_further(value: str) -> None:
    client, app = await ask(ON_THE_NETWORK, headers=[HOST, (b"authorization", value.encode())])
    assert (client.status, b"authorization" in dict(app.headers)) == (200, False)


@pytest.mark.parametrize(
    "values",
    [
        [],
        [""],
        ["Bearer"],
        ["Bearer "],
        [TOKEN],
        [f"Basic {TOKEN}"],
        [f"Bearer {TOKEN}x"],
        [f"Bearer {TOKEN[:-1]}"],
        [f"Bearer {TOKEN.upper()}"],
        ["Bearer \xff"],
        [f"Bearer {TOKEN}", f"Bearer {TOKEN}"],
    ],
)
async def test_that_without_the_token_nothing_is_let_in(values: list[str]) -> None:
    client, app = await ask(ON_THE_NETWORK, headers=[HOST, *((b"authorization", v.encode()) for v in values)])
    assert (client.status, client.error["type"], app.scopes) == (401, "authentication_error", [])
    assert client.error["code"] == ("token_refused" if values else "token_required")
    assert client.headers[b"www-authenticate"] == b"Bearer"


# -- bodies ---------------------------------------------------------------------------------------------------------


def length(size: int) -> tuple[bytes, bytes]:
    return (b"content-length", str(size).encode())


CHUNKED = (b"transfer-encoding", b"chunked")


async def test_that_a_body_in_pieces_reaches_the_application_whole() -> None:
    client, app = await ask(headers=[HOST, CHUNKED], messages=chunks(b"one", b"", b"two"))
    assert (client.status, app.body) == (200, b"onetwo")
    assert app.scopes[0][doors.BODY_KEY] == b"onetwo", "for an application that is given the scope alone"


@pytest.mark.parametrize("over", [-1, 0])
async def test_that_a_body_up_to_the_limit_is_let_in(over: int) -> None:
    size = MAX_BODY_BYTES + over
    client, app = await ask(headers=[HOST, length(size)], messages=chunks(b"x" * size))
    assert (client.status, len(app.body)) == (200, size)


async def test_that_a_body_announced_as_too_large_is_refused_unread() -> None:
    client, app = await ask(headers=[HOST, length(MAX_BODY_BYTES + 1)], messages=chunks(b"x"))
    assert (client.status, client.asked, app.scopes) == (413, 0, [])
    assert client.headers[b"connection"] == b"close"


@pytest.mark.parametrize("digits", [b"9" * 21, b"9" * 5000, b"0" * 5000 + b"1000001"])
async def test_that_a_length_of_thousands_of_digits_is_too_large(digits: bytes) -> None:
    client, _ = await ask(headers=[HOST, (b"content-length", digits)])
    assert (client.status, client.error["code"]) == (413, "body_too_large")


async def test_that_zeros_before_a_length_do_not_count() -> None:
    client, _ = await ask(headers=[HOST, (b"content-length", b"0" * 5000 + b"1")], messages=chunks(b"x"))
    assert client.status == 200


NAMES = st.sampled_from(
    [b"host", b"content-length", b"transfer-encoding", b"authorization", b"x-request-id", b"origin"]
)
VALUES = st.sampled_from([HOST[1], b"Bearer " + TOKEN.encode(), b"chunked"]) | st.binary(max_size=30)
DIGITS = st.integers(0, 10_000).map(lambda count: b"7" * count)


@given(
    headers=st.lists(st.tuples(NAMES, VALUES | DIGITS), max_size=6),
    bodies=st.lists(st.binary(max_size=50), min_size=1, max_size=3),
    rules=st.sampled_from([OURS, ON_THE_NETWORK]),
    is_host_known=st.booleans(),
)
async def test_that_whatever_comes_is_let_in_or_refused_in_the_shape_of_openai(
    headers: Headers, bodies: list[bytes], rules: DoorRules, is_host_known: bool
) -> None:
    client, app = await ask(rules, [HOST, *headers] if is_host_known else headers, chunks(*bodies))
    if app.scopes:
        assert client.status == 200
    else:
        assert 400 <= client.status < 500
        assert client.error["message"]


async def test_that_an_endless_body_is_read_no_further_than_the_limit() -> None:
    endless: list[Message] = [{"type": "http.request", "body": b"x" * 400_000, "more_body": True}] * 100
    client, app = await ask(headers=[HOST, CHUNKED], messages=endless)
    assert (client.status, client.asked, app.scopes) == (413, 3, [])
    assert len(client.messages) == 100 - 3 - doors.LINGER_BYTES // 400_000


async def test_that_what_is_still_sent_is_taken_before_the_connection_is_closed() -> None:
    """A connection that is closed with bytes unread is reset, and the answer may be lost with it."""
    client, _ = await ask(headers=[HOST, length(MAX_BODY_BYTES + 1)], messages=chunks(b"x", b"x", b"x"))
    assert client.messages == []
    assert [message.get("more_body", False) for message in client.sent[1:]] == [True, False]


async def test_that_a_body_longer_than_announced_is_counted() -> None:
    client, _ = await ask(headers=[HOST, length(5)], messages=chunks(b"x" * (MAX_BODY_BYTES + 1)))
    assert client.status == 413


async def test_that_a_body_that_does_not_come_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "BODY_TIMEOUT_S", 0.01)
    client, app = await ask(
        headers=[HOST, CHUNKED], messages=[{"type": "http.request", "body": b"", "more_body": True}]
    )
    assert (client.status, app.scopes) == (408, [])


async def test_that_a_client_that_leaves_while_it_sends_bothers_nobody() -> None:
    client, app = await ask(headers=[HOST, CHUNKED], messages=[{"type": "http.disconnect"}])
    assert (client.sent, app.scopes) == ([], [])


async def test_that_the_application_hears_of_a_disconnect_after_the_body() -> None:
    heard: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        heard.extend([(await receive())["type"], (await receive())["type"]])

    client = Client([*chunks(b"body"), {"type": "http.disconnect"}])
    scope = {"type": "http", "path": "/", "headers": [HOST, length(4)], "server": ("127.0.0.1", PORT)}
    await Doors(app, OURS)(scope, client.receive, client.send)
    assert heard == ["http.request", "http.disconnect"]


# -- what passes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        b"x-request-timeout-seconds",
        b"x-request-disconnect-disabled",
        b"x_request_timeout_seconds",
        b"serve_multiplexed_model_id",
        b"serve-multiplexed-model-id",
        b"x-session-id",
        b"x_session_id",
        b"x-serve-router-replica",
    ],
)
async def test_that_headers_which_steer_serve_are_stripped(name: bytes) -> None:
    _, app = await ask(headers=[HOST, (name, b"1"), (b"accept", b"*/*")])
    assert app.headers == [HOST, (b"accept", b"*/*")]


@pytest.mark.parametrize("values", [[b"\xff"], [b"a b"], [b""], [b"x" * 65], [b"one", b"two"]])
async def test_that_a_request_id_which_is_none_is_dropped(values: list[bytes]) -> None:
    _, app = await ask(headers=[HOST, *((b"x-request-id", value) for value in values)])
    assert app.headers == [HOST]


async def test_that_a_good_request_id_passes() -> None:
    _, app = await ask(headers=[HOST, (b"x-request-id", b"load-1.2_3")])
    assert (b"x-request-id", b"load-1.2_3") in app.headers


@pytest.mark.parametrize("headers", [[HOST], [], [HOST, (b"origin", b"x")], [HOST, length(MAX_BODY_BYTES + 1)]])
async def test_that_every_response_says_which_service_gave_it(headers: Headers) -> None:
    client, _ = await ask(headers=headers)
    assert client.headers[b"x-batchscope-instance"] == b"4711"


async def test_that_refusals_have_the_shape_of_openai() -> None:
    client, _ = await ask(headers=[])
    assert set(client.error) == {"message", "type", "param", "code"}
    assert client.headers[b"content-length"] == str(len(client.sent[1]["body"])).encode()


# -- more than can be answered ----------------------------------------------------------------------------------------

REPLICAS = {b"one": 3, b"two": 5}  # and how many requests each holds
ALL = sum(REPLICAS.values()) + doors.ON_THE_WAY


class Busy:
    """An application of `REPLICAS`, which answers `/` only once it is `free`, and anything else at once."""

    def __init__(self) -> None:
        self.free = asyncio.Event()
        self._names = itertools.cycle(REPLICAS)

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        if scope["path"] == "/":
            await self.free.wait()
        replica = next(self._names)
        places = (b"x-batchscope-places", b"%b %d" % (replica, REPLICAS[replica]))
        await send({"type": "http.response.start", "status": 200, "headers": [places]})
        await send({"type": "http.response.body"})


@pytest.fixture
def busy() -> Busy:
    return Busy()


@pytest.fixture
def crowded(busy: Busy) -> Doors:
    return Doors(busy, OURS)


async def come(through: Doors, path: str = "/") -> Client:
    client = Client([])
    scope = {"type": "http", "method": "GET", "path": path, "headers": [HOST], "server": ("127.0.0.1", PORT)}
    await through(scope, client.receive, client.send)
    return client


@pytest.mark.promise("T02")
async def test_that_what_no_replica_would_have_a_place_for_is_refused_at_once(busy: Busy, crowded: Doors) -> None:
    for _ in REPLICAS:
        assert (await come(crowded, "/healthz")).headers == {b"x-batchscope-instance": b"4711"}, (
            "it is the doors' alone"
        )
    async with asyncio.TaskGroup() as group:
        under_way = [group.create_task(come(crowded)) for _ in range(ALL)]
        await asyncio.sleep(0)
        refused = await come(crowded)
        assert (refused.status, refused.error["code"]) == (503, "queue_full")
        assert refused.headers[b"retry-after"] == b"1"
        assert (await come(crowded, "/batching")).status == 200, "settings can be changed"
        busy.free.set()
    assert {task.result().status for task in under_way} == {200}
    assert (await come(crowded)).status == 200, "what was answered has left its place"


@pytest.mark.promise("T02")
async def test_that_nothing_is_refused_as_long_as_no_replica_has_said_what_it_holds(busy: Busy, crowded: Doors) -> None:
    async with asyncio.TaskGroup() as group:
        under_way = [group.create_task(come(crowded)) for _ in range(2 * ALL)]
        await asyncio.sleep(0)
        busy.free.set()
    assert {task.result().status for task in under_way} == {200}


# -- a replica that dies ----------------------------------------------------------------------------------------------


async def ask_a_dying_one(*sent: Message) -> list[Message]:
    """What the client gets of an application that sends this and no more."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for message in sent:
            await send(message)

    client = Client(chunks(b""))
    scope = {"type": "http", "method": "POST", "path": "/", "headers": [HOST], "server": ("127.0.0.1", PORT)}
    await Doors(app, OURS)(scope, client.receive, client.send)
    return client.sent


def begin(content_type: bytes) -> Message:
    return {"type": "http.response.start", "status": 200, "headers": [(b"content-type", content_type)]}


EVENT: Message = {"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True}


@pytest.mark.promise("T06")
async def test_that_a_request_without_an_answer_gets_an_error_in_words() -> None:
    start, body, end = await ask_a_dying_one()
    assert (start["status"], end.get("more_body", False)) == (500, False)
    assert dict(start["headers"])[b"x-batchscope-instance"] == b"4711"
    assert json.loads(body["body"])["error"]["code"] == "replica_lost"


@pytest.mark.promise("T06")
async def test_that_a_stream_that_ends_early_says_why_and_is_never_whole() -> None:
    *heard, last = await ask_a_dying_one(begin(b"text/event-stream; charset=utf-8"), EVENT)
    assert heard[1:] == [EVENT]
    assert last["more_body"]
    (event,) = EventReader().feed(last["body"])
    assert event.name == ERROR
    assert json.loads(event.data)["error"]["code"] == "replica_lost"


@pytest.mark.promise("T06")
@pytest.mark.parametrize(
    "sent",
    [
        [begin(b"text/event-stream"), EVENT, {"type": "http.response.body"}],
        [begin(b"application/json"), {"type": "http.response.body", "body": b"{", "more_body": True}],
    ],
    ids=["whole", "no stream"],
)
async def test_that_nothing_is_added_to_another_answer(sent: list[Message]) -> None:
    assert (await ask_a_dying_one(*sent))[1:] == sent[1:]


async def test_that_websockets_are_closed() -> None:
    app, client = App(), Client([{"type": "websocket.connect"}])
    await Doors(app, OURS)({"type": "websocket", "headers": [HOST]}, client.receive, client.send)
    assert ([message["type"] for message in client.sent], app.scopes) == (["websocket.close"], [])


async def test_that_the_lifespan_passes() -> None:
    app, client = App(), Client([])
    await Doors(app, OURS)({"type": "lifespan"}, client.receive, client.send)
    assert app.scopes == [{"type": "lifespan"}]


# -- configuration ----------------------------------------------------------------------------------------------------


def test_that_rules_come_from_the_environment() -> None:
    variables = {
        doors.HOST_VARIABLE: "0.0.0.0",
        doors.INSTANCE_VARIABLE: "4711",
        doors.TOKEN_VARIABLE: doors.digest(TOKEN.encode()),
    }
    assert doors.rules_from_environment(variables) == ON_THE_NETWORK


def test_that_an_empty_environment_gives_rules_for_loopback() -> None:
    assert doors.rules_from_environment({}) == DoorRules()


def test_that_doors_stand_once(monkeypatch: pytest.MonkeyPatch) -> None:
    app = App()
    monkeypatch.delenv(doors.PLACE_VARIABLE, raising=False)
    assert isinstance(doors.doors_from_environment(app), Doors)
    monkeypatch.setenv(doors.PLACE_VARIABLE, "proxy")
    assert doors.doors_from_environment(app) is app


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("example.org", False),
    ],
)
def test_which_addresses_are_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


# -- connections ------------------------------------------------------------------------------------------------------

WHOLE = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
SLOW = b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n"
SHORT_S = 0.2


@pytest.fixture
async def port(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    """Of a server that waits `SHORT_S` for heads of requests, and takes longer to answer `/slow`."""
    monkeypatch.setattr(patches, "HEAD_TIMEOUT_S", SHORT_S)

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        if scope["path"] == "/slow":
            await asyncio.sleep(3 * SHORT_S)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    config = uvicorn.Config(app, lifespan="off", log_config=None)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: HeadsInTime(config, ServerState(), {}), "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()


async def received(port: int, *sent: bytes) -> bytes:
    """All that comes until the server closes the connection, each piece sent after the answer to the one before."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answers = b""
    for number, piece in enumerate(sent):
        if number:
            answers += await reader.readuntil(b"ok")
        writer.write(piece)
    answers += await reader.read()
    writer.close()
    await writer.wait_closed()
    return answers


@pytest.mark.parametrize("sent", [b"", b"GET / HT", WHOLE[:-2]], ids=["nothing", "half a line", "no end of the head"])
async def test_that_a_connection_is_closed_whose_first_head_is_not_complete_in_time(port: int, sent: bytes) -> None:
    assert await received(port, sent) == b""


async def test_that_a_connection_is_closed_whose_next_head_is_not_complete_in_time(port: int) -> None:
    assert (await received(port, WHOLE, WHOLE, WHOLE[:-2])).count(b"200 OK") == 2


@pytest.mark.parametrize("method", [b"GET", b"POST"])
async def test_that_a_connection_is_closed_that_asks_for_a_websocket_of_which_there_are_none(
    port: int, method: bytes
) -> None:
    wish = b"Upgrade: websocket\r\nConnection: Upgrade, close\r\nContent-Length: 2\r\n\r\n{}"
    assert (await received(port, method + b" / HTTP/1.1\r\nHost: localhost\r\n" + wish)).startswith(b"HTTP/1.1 200 OK")


async def test_that_an_answer_may_take_longer_than_a_head(port: int) -> None:
    assert (await received(port, SLOW, SLOW, WHOLE[:-2])).count(b"200 OK") == 2
