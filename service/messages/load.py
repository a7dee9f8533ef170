"""The load process: commands on standard input, events on standard output of `python -m service load --control`."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from service.messages.patterns import Count, Length, Pattern


class Fire(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="fire"):
    """Send each prompt `copies` times, now."""

    prompts: tuple[str, ...]
    copies: Count = 1
    max_tokens: Count = 24
    temperature: float = 0.0


class RunLoad(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="run"):
    """Start the load, or change the one that runs: pattern, prompts and lengths apply to the next arrival.

    Attributes:
        seed: of arrivals, prompts and lengths, each with a random stream of its own: the same seed gives the same
            requests in the same order, whatever the rate.
        prompt_words: words that prompts are cut or continued to; ``None`` leaves them as they are.
        stream: whether an answer comes token by token; else nobody knows when its first token was there.
    """

    pattern: Pattern
    prompts: tuple[str, ...]
    max_tokens: Length = 24
    prompt_words: Length | None = None
    temperature: float = 0.0
    stream: bool = True
    seed: int = 0
    max_outstanding: Count = 1024


class StopLoad(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="stop"):
    """No further arrivals; what is under way is let finish."""


class PauseLoad(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="pause"):
    """No arrivals until `ResumeLoad`; what is under way goes on."""


class ResumeLoad(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="resume"):
    """Go on where the pause began: what would have arrived during it comes as much later as it lasted."""


class Cancel(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="cancel"):
    """Break off these requests, or all where `ids` is ``None``."""

    ids: tuple[str, ...] | None = None


LoadCommand: TypeAlias = Fire | RunLoad | StopLoad | PauseLoad | ResumeLoad | Cancel

ClientOutcome: TypeAlias = Literal["ok", "failed", "cancelled", "refused"]


class ClientRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as its sender sees it; each later one of the same `id` replaces the earlier one.

    Attributes:
        id: sent as `X-Request-Id`, so it is the `RequestRecord.client_id` of the same request.
        new_text: what was generated since the last report on this request; the completion is their sum.
        intended_s, sent_s, first_token_s, finished_s: on the sender's monotonic clock.
        tokens: generated so far.
        outcome: ``None`` while under way; `refused` is the service's deliberate 503.
    """

    id: str
    source: Literal["fire", "load"]
    prompt: str
    max_tokens: int
    intended_s: float
    sent_s: float | None = None
    first_token_s: float | None = None
    finished_s: float | None = None
    tokens: int = 0
    new_text: str = ""
    outcome: ClientOutcome | None = None
    error: str | None = None

    @property
    def latency_s(self) -> float | None:
        """From the intended send time to the last token, in seconds."""
        return None if self.finished_s is None else self.finished_s - self.intended_s


class ClientTotals(msgspec.Struct, frozen=True, kw_only=True):
    """The client's ledger: ``sent = ok + refused + failed + cancelled + outstanding``; `dropped` were never sent."""

    sent: int = 0
    ok: int = 0
    refused: int = 0
    failed: int = 0
    cancelled: int = 0
    dropped: int = 0
    outstanding: int = 0


class LoadFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="load"):
    """Everything the load process saw since its frame before, at most about 20 a second.

    Attributes:
        at_s: the sender's monotonic clock.
        clock: identifies that clock, as in `TelemetryFrame`.
        pattern: what runs now, or ``None``.
        lag_p99_ms: how late the generator itself sent, over the last 10 s; ``None`` while it sent nothing.
        is_paused: the load waits for `ResumeLoad`.
    """

    at_s: float
    clock: str
    pattern: Pattern | None
    totals: ClientTotals
    lag_p99_ms: float | None = None
    is_paused: bool = False
    requests: tuple[ClientRequest, ...] = ()


class LoadRefused(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="refused"):
    """A command could not be obeyed; `reason` is a sentence that says why."""

    reason: str


LoadEvent: TypeAlias = LoadFrame | LoadRefused
