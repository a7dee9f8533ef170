"""Errors as OpenAI's clients expect them: {"error": {"message", "type", "param", "code"}}."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from service.batching.batcher import QueueFullError
from service.messages.settings import SettingError
from service.messages.text import encodable
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
    """The engine refuses this prompt; the message says why."""


def install_error_handlers(app: FastAPI) -> None:
    """Answer every error of this service, and the framework's own, in that one shape."""

    @app.exception_handler(RequestValidationError)
    async def _invalid(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"] if part not in ("body", "query"))
        message = f"{field}: {first['msg']}" if field else first["msg"]
        return error_response(400, message, param=field or None, code=first["type"])

    @app.exception_handler(HTTPException)
    async def _http(_: Request, error: HTTPException) -> Response:
        return error_response(error.status_code, str(error.detail), headers=dict(error.headers or {}))

    @app.exception_handler(SettingError)
    async def _setting(_: Request, error: SettingError) -> Response:
        return error_response(422, error.rule, param=error.field, code="setting_refused")

    @app.exception_handler(PromptRefusedError)
    async def _prompt(_: Request, error: PromptRefusedError) -> Response:
        return error_response(400, str(error), param="prompt", code="prompt_refused")

    @app.exception_handler(QueueFullError)
    async def _full(_: Request, error: QueueFullError) -> Response:
        return error_response(503, str(error), code="queue_full", headers={"Retry-After": str(error.retry_after_s)})

    @app.exception_handler(GenerationError)
    async def _failed(_: Request, error: GenerationError) -> Response:
        return error_response(500, str(error), code="generation_failed")

    @app.exception_handler(Exception)
    async def _unexpected(_: Request, error: Exception) -> Response:
        message = f"The service has failed on this request ({type(error).__name__}); its log says why."
        return error_response(500, message, code="internal_error")
