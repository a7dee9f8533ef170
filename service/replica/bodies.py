"""A request's body as a JSON object, or a refusal in words."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request


async def json_object(request: Request, content: str) -> dict[str, Any]:
    """The body, which must be an object with `content`; raises the `HTTPException` that says what is wrong with it."""
    try:
        return msgspec.json.decode(await request.body(), type=dict[str, Any])
    except RecursionError as error:
        raise HTTPException(400, "The body is nested too deeply.") from error
    except ValueError as error:  # no JSON, no object, no UTF-8
        raise HTTPException(400, f"The body must be a JSON object with {content}: {error}") from error
