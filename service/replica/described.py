"""The HTTP interface as `GET /openapi.json` describes it: bodies, answers and errors, with their bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
from starlette.responses import Response

from service.messages.life import ServiceAbout
from service.messages.settings import BOUNDS, MEANINGS, SCALE_BOUNDS, Bounds, Scale, Settings
from service.ray_serve.doors import MAX_BODY_BYTES

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
PLAIN: Final = "text/plain"
OBJECT: Final[Mapping[str, Any]] = {"type": "object"}
EVENT: Final[Mapping[str, Any]] = {"type": "object", "properties": {"data": {"type": "string"}}}

ERRORS: Final[Mapping[int, str]] = {
    400: "The body, the query or the prompt is refused; the message says why.",
    401: "The service was started with a token, and the request lacks it.",
    403: "The Host header names another address, or a web page made the request.",
    404: "There is no such route, or no such model.",
    408: "The body did not arrive in time.",
    413: f"The body is larger than {MAX_BODY_BYTES:,} bytes.",
    422: "A setting is refused; nothing has changed.",
    500: "The request has failed; the message says why.",
    503: "The queue is full, or no replica is ready; `Retry-After` says when to come again.",
}


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """What computes, as OpenAI's clients know models."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "batchscope"
    context_length: int | None


class Models(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[Model]


class Version(msgspec.Struct, frozen=True, kw_only=True):
    version: str


class Health(ServiceAbout, frozen=True, kw_only=True):
    """What a replica is that works; `trial` is of a text generator, before any request."""

    status: Literal["ok"] = "ok"


class ErrorDetail(msgspec.Struct):
    message: str
    type: Literal["invalid_request_error", "server_error"]
    param: str | None
    code: str | None


class ErrorAnswer(msgspec.Struct):
    """As OpenAI's clients expect it."""

    error: ErrorDetail


def json_response(value: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(value), media_type=JSON)


def schema_of(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON schema of what `struct` is sent as, in one piece; settings have their bounds and meanings."""
    (schema,), components = msgspec.json.schema_components([struct], ref_template="{name}")
    whole: dict[str, Any] = _whole(schema, components)
    return whole


def answer_of(contents: Mapping[str, Mapping[str, Any]], description: str = "As asked for.") -> dict[str, Any]:
    """An answer of one status in OpenAPI's words, from schemas by media type."""
    return {"description": description, "content": {media: {"schema": schema} for media, schema in contents.items()}}


def described(
    contents: Mapping[str, Mapping[str, Any]],
    *,
    body: Mapping[str, Any] | None = None,
    query: str | None = None,
) -> dict[str, Any]:
    """Of a route that answers with `contents`, what FastAPI cannot know; `body` is a schema, `query` a text's name."""
    extra: dict[str, Any] = {}
    if body is not None:
        extra["requestBody"] = {"required": True, "content": {JSON: {"schema": body}}}
    if query is not None:
        extra["parameters"] = [{"name": query, "in": "query", "schema": {"type": "string"}}]
    return {"responses": {200: answer_of(contents)}, "response_class": Response, "openapi_extra": extra}


def _whole(node: Any, components: Mapping[str, Any]) -> Any:
    """The node with what it refers to in place."""
    if isinstance(node, list):
        return [_whole(each, components) for each in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _whole(components[node["$ref"]], components)
    whole = {name: _whole(each, components) for name, each in node.items()}
    if whole.get("title") in (Settings.__name__, Scale.__name__):
        for name, bounds in {**BOUNDS, **SCALE_BOUNDS}.items():
            if name in whole["properties"]:
                whole["properties"][name] = _bounded(bounds)
        for name in MEANINGS.keys() & whole["properties"].keys():
            whole["properties"][name]["description"] = MEANINGS[name]
    return whole


def _bounded(bounds: Bounds) -> dict[str, Any]:
    kind = "integer" if bounds.integral else "number"
    interval = {"type": kind, "minimum": bounds.least or bounds.low, "maximum": bounds.high}
    return {"anyOf": [{"type": kind, "const": 0}, interval]} if bounds.least else interval


ERROR_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    status: answer_of({JSON: schema_of(ErrorAnswer)}, description) for status, description in ERRORS.items()
}
