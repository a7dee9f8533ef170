"""A request that the relay passes on: what its answer, as it comes, says of its tokens and of its end."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from service.load.client import DONE, MOST_ANSWER_BYTES, error_text
from service.messages.event_stream import EventReader, EventTooLongError
from service.probe.contact import Contact
from service.replica.requests import GenerationRequest

LAST_EVENT: Final = b"data: %b\n\n" % DONE


class _Delta(msgspec.Struct, frozen=True):
    content: str | None = None


class _Choice(msgspec.Struct, frozen=True):
    finish_reason: str | None = None
    text: str | None = None
    delta: _Delta | None = None
    message: _Delta | None = None

    @property
    def brings_text(self) -> bool:
        return bool(self.text or (self.delta and self.delta.content) or (self.message and self.message.content))


class _Usage(msgspec.Struct, frozen=True):
    completion_tokens: int | None = None
    prompt_tokens: int | None = None


class _Piece(msgspec.Struct, frozen=True):
    """A completion, or an event of a streamed one, as far as its tokens are counted."""

    choices: tuple[_Choice, ...] = ()
    usage: _Usage | None = None
    error: Any = None


class PassedOn:
    """A request on its way, and what has come of its answer."""

    def __init__(self, contact: Contact, fields: Mapping[str, Any], client_id: str | None, received_s: float) -> None:
        self._contact = contact
        self._streams = fields.get("stream") is True
        asked = fields.get("max_completion_tokens") or fields.get("max_tokens")
        most = asked if isinstance(asked, int) else 0
        self._request: GenerationRequest = contact.begin(
            client_id, streamed=self._streams, max_tokens=most, received_s=received_s
        )
        self._events = EventReader()
        self._whole = bytearray()
        self._tokens = 0
        self._error: str | None = None
        self._has_finished = self._has_last_event = False

    @property
    def lacks_last_event(self) -> bool:
        """Whether it is a stream that is complete but for OpenAI's last event, as transformers serve leaves it out."""
        return self._streams and self._has_finished and not self._has_last_event

    def take(self, chunk: bytes) -> None:
        """The next bytes of the answer."""
        if not self._streams:
            self._whole += chunk[: MOST_ANSWER_BYTES - len(self._whole)]
            return
        with suppress(EventTooLongError):  # its client will say so
            for event in self._events.feed(chunk):
                self._note(event.data)

    def end(self, error: str | None = None, *, cancelled: bool = False) -> None:
        """There is no more of it; what comes after the first end is ignored."""
        if not self._request.is_final and not (error or cancelled) and self._whole:
            self._note_whole()
        self._contact.end(self._request, error or self._error, cancelled=cancelled)

    def _note(self, data: bytes) -> None:
        self._has_last_event = data == DONE
        with suppress(msgspec.MsgspecError, UnicodeDecodeError):  # such as the last event
            piece = msgspec.json.decode(data, type=_Piece)
            if piece.error:
                self._error = error_text(data)
            self._has_finished = self._has_finished or any(choice.finish_reason for choice in piece.choices)
            usage = piece.usage or _Usage()
            if usage.completion_tokens is None:
                self._tokens += any(choice.brings_text for choice in piece.choices)
            else:
                self._tokens = usage.completion_tokens
            if self._tokens:
                self._contact.note_tokens(self._request, self._tokens, usage.prompt_tokens)

    def _note_whole(self) -> None:
        with suppress(msgspec.MsgspecError, UnicodeDecodeError):
            usage = msgspec.json.decode(bytes(self._whole), type=_Piece).usage or _Usage()
            self._contact.note_whole(self._request, usage.completion_tokens or 0, usage.prompt_tokens or 0)
