"""What a simulated run is made of: its requests, and the batches that they ran in."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from service.messages.settings import ReleaseReason, Settings
from service.messages.telemetry import BatchWork


@dataclass
class SyntheticRequest:
    """Times count from the beginning of the run; ``None`` is a stage that it did not reach.

    Attributes:
        batch: in `continuous`, the stretch in which it joined.
    """

    number: int
    received_s: float
    tokens: int
    outside: bool
    prompt_tokens: int
    formed_s: float | None = None
    started_s: float | None = None
    first_token_s: float | None = None
    finished_s: float | None = None
    batch: SyntheticBatch | None = None
    token_times: list[float] = field(default_factory=list)

    @property
    def ended_s(self) -> float:
        return float("inf") if self.finished_s is None else self.finished_s

    def gaps_between(self, before_s: float, at_s: float) -> list[tuple[float, float]]:
        """The gaps between its tokens that ended in (before, at]: how long, and when they ended."""
        first = max(bisect_right(self.token_times, before_s), 1)
        last = bisect_right(self.token_times, at_s)
        return [(self.token_times[n] - self.token_times[n - 1], self.token_times[n]) for n in range(first, last)]

    def tokens_at(self, at_s: float) -> int:
        return int(self.tokens * share(at_s, self.started_s, self.finished_s))


@dataclass
class SyntheticBatch:
    """
    Attributes:
        tokens: that each member got in it.
        is_open: others could join the running batch, of which this is a stretch.
    """

    number: int
    version: int
    settings: Settings
    reason: ReleaseReason
    formed_s: float
    members: list[SyntheticRequest]
    started_s: float | None = None
    finished_s: float | None = None
    tokens: list[int] = field(default_factory=list)
    work: BatchWork = field(default_factory=BatchWork)
    is_open: bool = False

    @property
    def id(self) -> str:
        return f"r1-{self.number}"

    @property
    def ended_s(self) -> float:
        return float("inf") if self.finished_s is None else self.finished_s

    def tokens_at(self, at_s: float) -> int:
        done = share(at_s, self.started_s, self.finished_s)
        return sum(int(tokens * done) for tokens in self.tokens)


def share(at_s: float, started_s: float | None, finished_s: float | None) -> float:
    """How much of a span is over."""
    if started_s is None or finished_s is None or at_s <= started_s:
        return 0.0
    return min((at_s - started_s) / (finished_s - started_s), 1.0)


def padded(requests: list[SyntheticRequest]) -> tuple[int, int]:
    """Tokens of the prompts when they are read together, and how many of these are padding."""
    prompts = [request.prompt_tokens for request in requests]
    whole = max(prompts, default=0) * len(prompts)
    return whole, whole - sum(prompts)
