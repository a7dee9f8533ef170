"""When a batch leaves, and with how many: rules that the queue goes by, and the simulation of it."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from service.messages.settings import Settings

ReleaseReason = Literal["full", "timeout", "drained", "joined", "left"]


class Waiting(Protocol):
    """A request that waits: since when, and how many tokens a batch needs for it."""

    @property
    def enqueued_s(self) -> float: ...
    @property
    def tokens(self) -> int: ...


Entry = TypeVar("Entry", bound=Waiting)


class Release(NamedTuple):
    """The `size` oldest leave at `at_s`, if nothing changes until then."""

    at_s: float
    reason: ReleaseReason
    size: int


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings that decide when a batch leaves."""

    max_batch_size: int
    batch_wait_timeout_s: float  # that a free engine waits for a batch to fill, from its first request on
    stride_s: float = 0.0  # batches leave only at multiples of it on the queue's clock; 0: at any time
    max_batch_tokens: int = 0  # 0 for no limit; an entry that alone needs more runs alone
    version: int = 0  # the number of these rules, which a batch carries

    @classmethod
    def of(cls, settings: Settings, version: int = 0, memory_tokens: int = 0) -> Rules:
        """`memory_tokens`: what the engine's memory holds, of all batches that run; 0 where that is not known."""
        of_memory = max(memory_tokens // settings.places, 1) if memory_tokens else 0
        budgets = [settings.max_batch_tokens, of_memory]
        return cls(
            max_batch_size=settings.max_batch_size,
            batch_wait_timeout_s=settings.longest_wait_s,
            stride_s=settings.stride_s,
            max_batch_tokens=min(filter(None, budgets), default=0),
            version=version,
        )

    def release(self, waiting: Collection[Waiting], free_since_s: float) -> Release | None:
        """Release time of the queue's head, given when the engine became free.

        Time spent behind a running batch does not count as waiting for others.
        """
        if not waiting:
            return None
        count, filled_s = self.fitting(waiting)
        due_s = max(next(iter(waiting)).enqueued_s, free_since_s) + self.batch_wait_timeout_s
        if filled_s is not None:
            return Release(self.tick_s(min(due_s, max(filled_s, free_since_s))), "full", count)
        return Release(self.tick_s(due_s), self._reason_of_small, count)

    def fitting(self, waiting: Collection[Waiting], running: int = 0, tokens: int = 0) -> tuple[int, float | None]:
        """How many of the oldest fit into a batch, and since when it is full with them, if it is.

        It may be one that runs already, with `running` members that need `tokens`.
        """
        places, budget = self.max_batch_size - running, self.max_batch_tokens
        if not budget and len(waiting) < places:
            return len(waiting), None
        for count, each in enumerate(waiting):
            tokens += each.tokens
            if count >= places or (budget and tokens > budget and running + count):
                return count, each.enqueued_s
            if count + 1 == places:
                return places, each.enqueued_s
        return len(waiting), None

    def divided(self, sealed: Sequence[Entry], *, is_full: bool) -> Iterator[tuple[Sequence[Entry], ReleaseReason]]:
        """Entries that were sealed together, in as many batches as hold their tokens, and why each leaves.

        Args:
            is_full: they were sealed because no more could join them; some may have left since.
        """
        last: ReleaseReason = "full" if is_full else self._reason_of_small
        while sealed:
            count, _ = self.fitting(sealed)
            yield sealed[:count], "full" if count < len(sealed) else last
            sealed = sealed[count:]

    def tick_s(self, ready_s: float) -> float:
        """When what is ready may leave."""
        return math.ceil(ready_s / self.stride_s) * self.stride_s if self.stride_s else ready_s

    @property
    def _reason_of_small(self) -> ReleaseReason:
        return "timeout" if self.batch_wait_timeout_s else "drained"
