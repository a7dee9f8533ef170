"""Whatever goes wrong behind a route, the answer has OpenAI's shape, and its sentence can be sent."""

from __future__ import annotations

import json
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any

import pytest
from fastapi import FastAPI, Request
from hypothesis import given
from hypothesis import strategies as st

from service.batching.batcher import QueueFullError
from service.messages.settings import SettingError
from service.replica.completions import CompletionBody
from service.replica.errors import PromptRefusedError, install_error_handlers, json_object
from service.replica.requests import GenerationError

FAILURES: list[tuple[Exception, int]] = [
    (PromptRefusedError("\ud800 is no prompt"), 400),
    (SettingError("stride_s", "\ud800"), 422),
    (QueueFullError(3, 1), 503),
    (GenerationError("odd \ud800"), 500),
    (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"), 500),
    (RecursionError("deep"), 500),
]

app = FastAPI()
install_error_handlers(app)


@app.post("/object")
async def take_object(request: Request) -> dict[str, int]:
    return {"keys": len(await json_object(request, "anything"))}


@app.post("/completions")
async def take_completion(body: CompletionBody) -> dict[str, int]:
    return {"prompts": len(body.prompts)}


@app.post("/failure/{number}")
async def fail(number: int) -> None:
    raise FAILURES[number][0]


async def post(path: str, body: bytes = b"") -> tuple[int, dict[str, Any]]:
    """The status and the JSON that answers; whatever else answers is an error of the test."""
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": headers}
    with suppress(Exception):  # one that was not expected goes on to the log, after its answer
        await app(scope, receive, send)
    assert dict(sent[0]["headers"])[b"content-type"] == b"application/json"
    return sent[0]["status"], json.loads(b"".join(message["body"] for message in sent[1:]))


def assert_refused(status: int, answer: dict[str, Any]) -> None:
    assert status in (400, 422)
    assert set(answer["error"]) == {"message", "type", "param", "code"}
    assert answer["error"]["message"]
    assert answer["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(("number", "status"), [(number, status) for number, (_, status) in enumerate(FAILURES)])
async def test_that_every_failure_is_told_in_one_shape(number: int, status: int) -> None:
    answered, answer = await post(f"/failure/{number}")

    assert answered == status
    assert answer["error"]["message"]


@pytest.mark.parametrize("path", ["/object", "/completions"])
@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"a": ' * 100_000, b'{"a": ' + b"9" * 5000 + b"}"])
async def test_that_json_beyond_measure_is_refused(path: str, body: bytes) -> None:
    assert_refused(*await post(path, body))


async def test_that_depth_is_named() -> None:
    _, answer = await post("/object", b'{"a": ' * 100_000)

    assert answer["error"]["message"] == "The body is nested too deeply."


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=5,
)
OBJECTS = st.dictionaries(st.sampled_from([*CompletionBody.model_fields, "else"]), VALUES, max_size=3)
DEEP = st.tuples(st.sampled_from([b"[", b'{"a":', b'{"prompt":[']), st.integers(1, 100_000)).map(lambda d: d[0] * d[1])
NEARLY_JSON = st.sampled_from([b'{"prompt": "\\ud800"}', b'{"prompt": ["\\udfff"]}', b'{"seed": ' + b"1" * 9000 + b"}"])
BODIES = OBJECTS.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=200) | DEEP | NEARLY_JSON


@given(path=st.sampled_from(["/object", "/completions"]), body=BODIES)
async def test_that_whatever_body_comes_is_taken_or_refused_in_words(path: str, body: bytes) -> None:
    status, answer = await post(path, body)

    if status != 200:
        assert_refused(status, answer)
