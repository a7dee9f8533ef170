"""What is said over HTTP: the request's body, the events of an answer, and errors in the forms servers give them."""

from __future__ import annotations

from typing import Any

import msgspec

from service.load.flight import Flight

MOST_ERROR_CHARS = 500


class _StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool = True


class _CompletionCall(msgspec.Struct, frozen=True, omit_defaults=True):
    prompt: str
    max_tokens: int
    temperature: float | None = None
    model: str | None = None
    ignore_eos: bool | None = None
    stream: bool = False
    stream_options: _StreamOptions | None = None


class _Choice(msgspec.Struct, frozen=True):
    text: str | None = None
    finish_reason: str | None = None


class _Usage(msgspec.Struct, frozen=True):
    completion_tokens: int = 0
    prompt_tokens: int | None = None


class CompletionChunk(msgspec.Struct, frozen=True):
    """A completion, or an event of a streamed one, as far as a load generator wants to know it."""

    choices: tuple[_Choice, ...] = ()
    usage: _Usage | None = None
    error: Any = None

    @property
    def text(self) -> str:
        return "".join([choice.text for choice in self.choices if choice.text])

    @property
    def finish_reason(self) -> str | None:
        return self.choices[0].finish_reason if self.choices else None


class _Model(msgspec.Struct, frozen=True):
    id: str


class _ModelList(msgspec.Struct, frozen=True):
    data: tuple[_Model, ...]


_encode = msgspec.json.Encoder().encode
decode_chunk = msgspec.json.Decoder(CompletionChunk).decode
_decode_models = msgspec.json.Decoder(_ModelList).decode


def completion_body(flight: Flight, model: str | None) -> bytes:
    """The body of `POST /v1/completions`; a load gets exactly the tokens it asks for, a fired prompt ends by itself."""
    return _encode(
        _CompletionCall(
            prompt=flight.prompt,
            max_tokens=flight.max_tokens,
            temperature=flight.temperature,
            model=model,
            ignore_eos=True if flight.source == "load" else None,
            stream=flight.streams,
            stream_options=_StreamOptions() if flight.streams else None,
        )
    )


def first_model(body: bytes) -> str | None:
    """The first id in an answer of `GET /v1/models`, if it is one."""
    try:
        models = _decode_models(body).data
    except msgspec.MsgspecError:
        return None
    return models[0].id if models else None


def error_text(body: bytes) -> str:
    """The message in the body of an error: OpenAI's form, FastAPI's, or plain text; cut where it goes on and on."""
    try:
        return error_message(msgspec.json.decode(body))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _cut(body.decode(errors="replace"))


def error_message(error: object) -> str:
    """The message in an error that was JSON."""
    if isinstance(error, dict):
        for key in ("error", "message", "detail"):
            if error.get(key):
                return error_message(error[key])
    if isinstance(error, str):
        return _cut(error)
    return _cut(_encode(error).decode())


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MOST_ERROR_CHARS else text[:MOST_ERROR_CHARS] + "…"
