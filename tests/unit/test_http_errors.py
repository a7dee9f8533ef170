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
from service.replica.bodies import NOT_OFFERED, ChatBody, CompletionBody
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


@app.post("/chat")
async def take_chat(body: ChatBody) -> dict[str, int]:
    return {"messages": len(body.messages)}


@app.post("/failure/{number}")
async def fail(number: int) -> None:
    raise FAILURES[number][0]


async def post(path: str, body: bytes = b"", content_type: bytes = b"application/json") -> tuple[int, dict[str, Any]]:
    """The status and the JSON that answers; whatever else answers is an error of the test."""
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    headers = [(b"content-type", content_type)]
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


async def test_that_a_body_that_is_no_json_or_not_said_to_be_is_refused_in_words() -> None:
    _, of_a_form = await post("/completions", b'{"prompt": "x"}', b"application/x-www-form-urlencoded")
    assert of_a_form["error"]["message"] == "Send the body with the header 'Content-Type: application/json'."
    _, broken = await post("/completions", b"{")
    assert broken["error"]["message"].startswith("The body is no JSON: ")
    assert broken["error"]["param"] is None


@pytest.mark.parametrize(("number", "status"), [(number, status) for number, (_, status) in enumerate(FAILURES)])
async def test_that_every_failure_is_told_in_one_shape(number: int, status: int) -> None:
    answered, answer = await post(f"/failure/{number}")

    assert answered == status
    assert answer["error"]["message"]


PROMPT, MESSAGES = {"prompt": "x"}, {"messages": [{"role": "user", "content": "x"}]}
ASKS_FOR_NOTHING: dict[str, Any] = {
    "n": 1,
    "frequency_penalty": 0,
    "presence_penalty": 0.0,
    "repetition_penalty": 1.0,
    "logit_bias": {},
    "top_k": -1,
    "min_p": 0,
    "min_tokens": 0,
    "store": False,
    "service_tier": "auto",
    "user": "me",
    "metadata": {"a": "b"},
    "safety_identifier": "me",
    "prompt_cache_key": "k",
    "parallel_tool_calls": True,
}
FOR_NOTHING_OF_TEXTS = {"best_of": 1, "suffix": "", "echo": False, "logprobs": None}
FOR_NOTHING_OF_CHATS = {
    "modalities": ["text"],
    "tools": [],
    "tool_choice": "auto",
    "functions": [],
    "function_call": "none",
    "response_format": {"type": "text"},
    "reasoning_effort": "none",
    "verbosity": "medium",
    "top_logprobs": 0,
    "audio": None,
    "web_search_options": None,
    "logprobs": False,
}
REFUSED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    *(
        (base, {name: value})
        for base in (PROMPT, MESSAGES)
        for name, value in {
            "n": 2,
            "frequency_penalty": 0.5,
            "presence_penalty": -1,
            "repetition_penalty": 1.1,
            "min_p": 0.1,
            "logit_bias": {"7": 1},
            "top_k": 40,
            "min_tokens": 3,
            "store": True,
            "service_tier": "flex",
            "guided_json": {},
            "max_token": 3,
        }.items()
    ),
    (PROMPT, {"best_of": 2}),
    (PROMPT, {"suffix": "end"}),
    (PROMPT, {"max_completion_tokens": 5}),
    *(
        (MESSAGES, {name: value})
        for name, value in {
            "tools": [{"type": "function"}],
            "tool_choice": "required",
            "response_format": {"type": "json_object"},
            "modalities": ["audio"],
            "reasoning_effort": "high",
            "web_search_options": {},
            "audio": {"voice": "a"},
            "echo": True,
            "prompt": "x",
            "functions": [{}],
            "prediction": {},
        }.items()
    ),
    (MESSAGES, {"messages": [{"role": "assistant", "content": "x", "tool_calls": [{"id": "1"}]}]}),
    (MESSAGES, {"stream": True, "stream_options": {"include_obfuscation": True, "include_all": True}}),
]


def path_of(body: dict[str, Any]) -> str:
    return "/chat" if "messages" in body else "/completions"


@pytest.mark.parametrize("body", [PROMPT | FOR_NOTHING_OF_TEXTS, MESSAGES | FOR_NOTHING_OF_CHATS], ids=path_of)
async def test_that_parameters_that_ask_for_nothing_are_taken(body: dict[str, Any]) -> None:
    assert (await post(path_of(body), json.dumps(body | ASKS_FOR_NOTHING).encode()))[0] == 200
    assert (await post(path_of(body), json.dumps(body | dict.fromkeys(NOT_OFFERED)).encode()))[0] == 200


@pytest.mark.parametrize(("base", "more"), REFUSED, ids=[f"{path_of(base)} {more}" for base, more in REFUSED])
async def test_that_what_is_not_offered_is_refused_by_its_name(base: dict[str, Any], more: dict[str, Any]) -> None:
    status, answer = await post(path_of(base), json.dumps(base | more).encode())
    assert status == 400
    assert answer["error"]["code"] == "unsupported_parameter"
    assert answer["error"]["param"].startswith(list(more)[-1])
    assert answer["error"]["message"].startswith(f"This service does not offer that {list(more)[-1]}")


@pytest.mark.parametrize(
    ("body", "param", "sentence"),
    [
        (MESSAGES | {"top_logprobs": 3}, "top_logprobs", "with logprobs true alone"),
        (PROMPT | {"stream_options": {"include_usage": True}}, "stream_options", "Only a stream has options"),
        ({"messages": []}, "messages", "at least 1 item"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role", "'user' or 'assistant'"),
        ({"messages": [{"role": "user"}]}, "messages.0.content", "required"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages.0.content", "'text'"),
        ({"prompt": [1, "a"]}, "prompt.tokens.1", "valid integer"),
        ({"prompt": [[1], []]}, "prompt.lists of tokens.1", "at least 1 item"),
        ({"prompt": [-1]}, "prompt.tokens.0", "greater than or equal to 0"),
        (PROMPT | {"logprobs": 21}, "logprobs", "less than or equal to 20"),
    ],
)
async def test_that_what_cannot_be_is_refused_where_it_stands(body: dict[str, Any], param: str, sentence: str) -> None:
    status, answer = await post(path_of(body), json.dumps(body).encode())
    assert status == 400
    assert answer["error"]["param"].startswith(param)
    assert sentence in answer["error"]["message"]


@pytest.mark.parametrize("path", ["/object", "/completions", "/chat"])
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
NAMES = [*CompletionBody.model_fields, *ChatBody.model_fields, "else"]
OBJECTS = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=3)
OPENINGS = [b"[", b'{"a":', b'{"prompt":[', b'{"messages":[']
DEEP = st.tuples(st.sampled_from(OPENINGS), st.integers(1, 100_000)).map(lambda d: d[0] * d[1])
NEARLY_JSON = st.sampled_from([b'{"prompt": "\\ud800"}', b'{"prompt": ["\\udfff"]}', b'{"seed": ' + b"1" * 9000 + b"}"])
BODIES = OBJECTS.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=200) | DEEP | NEARLY_JSON


@given(path=st.sampled_from(["/object", "/completions", "/chat"]), body=BODIES)
async def test_that_whatever_body_comes_is_taken_or_refused_in_words(path: str, body: bytes) -> None:
    status, answer = await post(path, body)

    if status != 200:
        assert_refused(status, answer)
