"""One request as the load generator sends it, and how it ended."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Literal, Protocol

from service.messages.gaps import Gaps
from service.messages.load import ClientOutcome, ClientRequest

SHOWN_PROMPT_CHARS = 400
"""A report repeats the prompt up to 20 times a second, so it holds this much of it; the prompt is sent whole."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How a request ended.

    Attributes:
        error: a sentence for the user, for every outcome but `ok` and `cancelled`.
        is_unreachable: no server took the connection, so nothing was asked.
        retry_after_s: how long a refusing server asks to be left alone.
    """

    outcome: ClientOutcome
    error: str | None = None
    is_unreachable: bool = False
    retry_after_s: float | None = None


@dataclass(slots=True, eq=False)
class Flight:
    """A request from the moment it is intended; all times are on the sender's monotonic clock."""

    id: str
    source: Literal["fire", "load"]
    prompt: str
    max_tokens: int
    temperature: float
    intended_s: float
    streams: bool = True
    sent_s: float | None = None
    first_token_s: float | None = None
    finished_s: float | None = None
    tokens: int = 0
    prompt_tokens: int | None = None
    outcome: ClientOutcome | None = None
    error: str | None = None
    gaps: Gaps = field(default_factory=Gaps)  # between the chunks that brought tokens
    text_checksum: int = 0
    _last_token_s: float | None = None
    _unreported_text: list[str] = field(default_factory=list)

    def add_text(self, text: str) -> None:
        self._unreported_text.append(text)
        self.text_checksum = zlib.crc32(text.encode(errors="surrogatepass"), self.text_checksum)

    def note_tokens(self, at_s: float) -> None:
        """A chunk has brought tokens: the first, or those that end a gap, which counts once however many they are.

        So count vLLM's `bench serve` (its ITL) and AIPerf (its inter-chunk latency).
        """
        if self._last_token_s is None:
            self.first_token_s = at_s
        else:
            self.gaps.add(at_s - self._last_token_s)
        self._last_token_s = at_s

    def forget_text(self) -> None:
        self._unreported_text.clear()

    def report(self) -> ClientRequest:
        """The request as it stands, with the text since the report before."""
        new_text = "".join(self._unreported_text)
        self._unreported_text.clear()
        shown = self.prompt
        if len(shown) > SHOWN_PROMPT_CHARS:
            shown = shown[:SHOWN_PROMPT_CHARS] + "…"
        return ClientRequest(
            id=self.id,
            source=self.source,
            prompt=shown,
            max_tokens=self.max_tokens,
            intended_s=self.intended_s,
            sent_s=self.sent_s,
            first_token_s=self.first_token_s,
            finished_s=self.finished_s,
            tokens=self.tokens,
            new_text=new_text,
            outcome=self.outcome,
            error=self.error,
        )


class Observer(Protocol):
    """Is called at the stages of a flight; each flight is `concluded` exactly once, whatever happens."""

    def sent(self, flight: Flight) -> None: ...
    def progressed(self, flight: Flight) -> None: ...
    def concluded(self, flight: Flight, answer: Answer) -> None: ...


class Sender(Protocol):
    """Takes flights to the server."""

    def start(self, flight: Flight, observer: Observer) -> None: ...
    def cancel(self, flight: Flight) -> None: ...
