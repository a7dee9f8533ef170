"""A request as the table shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from service.messages.telemetry import FINAL_STATES, RequestState

Filter: TypeAlias = Literal["all", "waiting", "running", "done", "failed"]
FILTERS: Final[tuple[Filter, ...]] = ("all", "waiting", "running", "failed", "done")

_FILTER_OF: Final[dict[RequestState, Filter]] = {
    "waiting": "waiting",
    "formed": "waiting",
    "running": "running",
    "done": "done",
    "cancelled": "done",
    "failed": "failed",
    "refused": "failed",
}


@dataclass(frozen=True, slots=True)
class RequestRow:
    """What client and service together know of a request.

    Attributes:
        intended_s, formed_s, finished_s: on the service's clock; its age counts from `intended_s`.
        text: generated so far.
        key: what the history calls it.
    """

    id: str
    prompt: str
    text: str
    state: RequestState
    intended_s: float
    tokens: int
    max_tokens: int
    formed_s: float | None = None
    finished_s: float | None = None
    error: str | None = None
    key: int | None = None

    @property
    def is_live(self) -> bool:
        return self.state not in FINAL_STATES

    @property
    def filter(self) -> Filter:
        """The filter beside `all` that shows it."""
        return _FILTER_OF[self.state]

    def seconds(self, now_s: float) -> float:
        """From the intended send time to the end, or to now."""
        end = self.finished_s if self.finished_s is not None else now_s
        return max(0.0, end - self.intended_s)

    def second_line(self, now_s: float) -> str:
        """What stands below the prompt."""
        match self.state:
            case "waiting":
                return "waiting"
            case "formed":
                return f"formed {max(0.0, now_s - (self.formed_s or now_s)):.1f} s ago"
            case "failed" | "refused":
                return self.error or self.state
            case "cancelled":
                return f"cancelled · {self.text}" if self.text else "cancelled"
            case _:
                return " ".join(self.text.split())

    @property
    def token_count(self) -> str:
        if self.max_tokens == 1:
            return ""
        if self.state == "done":
            return f"{self.tokens} tok"
        return f"{self.tokens}/{self.max_tokens}" if self.tokens else ""
