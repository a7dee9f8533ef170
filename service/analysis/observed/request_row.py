"""One request as the table and its details show it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from service.messages.telemetry import FINAL_STATES, RequestState

Source: TypeAlias = Literal["fire", "load", "other"]


@dataclass(frozen=True)
class RequestRow:
    """A request as one row of the table; times are on the service's clock.

    Attributes:
        key: number of the row.
        source: "other" came from outside the window.
        started_at_s: begin of its latency: the intended send time, or else the time of its reception.
        latency_s: ``None`` while it is under way.
        longest_gap_s, longest_gap_at_s: its longest stall between two tokens, and when that ended, as the service
            reported.
    """

    key: int
    id: str | None
    client_id: str | None
    source: Source
    prompt: str
    text: str
    state: RequestState
    tokens: int
    max_tokens: int
    replica: str | None
    batch: str | None
    error: str | None
    intended_s: float | None
    sent_s: float | None
    received_s: float | None
    enqueued_s: float | None
    formed_s: float | None
    started_s: float | None
    first_token_s: float | None
    finished_s: float | None
    started_at_s: float
    latency_s: float | None
    longest_gap_s: float | None
    longest_gap_at_s: float | None

    @property
    def ttft_s(self) -> float | None:
        """Time to first token, from where `latency_s` counts."""
        return None if self.first_token_s is None else max(self.first_token_s - self.started_at_s, 0.0)

    @property
    def tpot_s(self) -> float | None:
        """Time per output token: (latency − TTFT) / (tokens − 1); ``None`` of one token or under way."""
        if self.finished_s is None or self.first_token_s is None or self.tokens < 2 or self.state != "done":
            return None
        return max(self.finished_s - self.first_token_s, 0.0) / (self.tokens - 1)

    def at(self, at_s: float) -> RequestRow | None:
        """The request as it stood at a moment, without what its text was by then; ``None`` before it began."""
        if self.started_at_s > at_s:
            return None
        if self.state in FINAL_STATES and (self.finished_s is None or self.finished_s <= at_s):
            return self
        has_formed, has_started = (each is not None and each <= at_s for each in (self.formed_s, self.started_s))
        return replace(
            self,
            state="running" if has_started else "formed" if has_formed else "waiting",
            text="",
            tokens=0,
            error=None,
            finished_s=None,
            latency_s=None,
        )
