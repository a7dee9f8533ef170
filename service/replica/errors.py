"""Errors as OpenAI's clients expect them: {"error": {"message", "type", "param", "code"}}; and the check of a body."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from service.batching.batcher import QueueFullError
from service.messages.settings import SettingError
from service.messages.text import encodable
from service.replica.bodies import NOT_OFFERED
from service.replica.requests import GenerationError


def error_body(message: str, kind: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": encodable(message), "type": kind, "param": param, "code": code}}


def error_response(
    status: int,
    message: str,
    *,
    param: str | None = None,
    code: str | None = None,
    headers: dict[str, str] | None = None,
) -> JSONResponse:
    kind = "invalid_request_error" if status < 500 else "server_error"
    return JSONResponse(error_body(message, kind, param, code), status, headers)


class PromptRefusedError(Exception):
    """The engine refuses this prompt, or what is asked of it; the message says why.

    Attributes:
        param: of the request's body.
    """

    def __init__(self, message: str, param: str = "prompt") -> None:
        super().__init__(message)
        self.param = param


def install_error_handlers(app: FastAPI) -> None:
    """Answer every error of this service, and the framework's own, in that one shape."""
    ours = (SettingError, PromptRefusedError, QueueFullError, GenerationError)
    for kind in (RequestValidationError, HTTPException, *ours, Exception):
        app.add_exception_handler(kind, _answer)


async def _answer(request: Request, error: Exception) -> Response:
    match error:
        case RequestValidationError():
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"] if part not in ("body", "query"))
            if first["type"] == "json_invalid":
                return error_response(400, f"The body is no JSON: {first['ctx']['error']}.", code=first["type"])
            if first["loc"] == ("body",) and "json" not in request.headers.get("content-type", ""):
                message = "Send the body with the header 'Content-Type: application/json'."
                return error_response(400, message, code=first["type"])
            if first["type"] == "extra_forbidden" or NOT_OFFERED & set(first["loc"]):
                message = f"This service does not offer that {field}: leave it out."
                return error_response(400, message, param=field, code="unsupported_parameter")
            message = f"{field}: {first['msg']}" if field else first["msg"]
            return error_response(400, message, param=field or None, code=first["type"])
        case HTTPException(status_code=404):
            what = f"{request.method} {request.url.path}"
            return error_response(404, f"There is no {what} here; GET /openapi.json describes what there is.")
        case HTTPException():
            return error_response(error.status_code, str(error.detail), headers=dict(error.headers or {}))
        case SettingError():
            return error_response(422, error.rule, param=error.field, code="setting_refused")
        case PromptRefusedError():
            return error_response(400, str(error), param=error.param, code="prompt_refused")
        case QueueFullError():
            retry = {"Retry-After": str(error.retry_after_s)}
            return error_response(503, str(error), code="queue_full", headers=retry)
        case GenerationError():
            return error_response(500, str(error), code="generation_failed")
    message = f"The service has failed on this request ({type(error).__name__}); its log says why."
    return error_response(500, message, code="internal_error")


async def json_object(request: Request, content: str) -> dict[str, Any]:
    """The body, which must be an object with `content`; raises the `HTTPException` that says what is wrong with it."""
    try:
        return msgspec.json.decode(await request.body(), type=dict[str, Any])
    except RecursionError as error:
        raise HTTPException(400, "The body is nested too deeply.") from error
    except ValueError as error:  # no JSON, no object, no UTF-8
        raise HTTPException(400, f"The body must be a JSON object with {content}: {error}") from error
