"""Which replica a request fits, by what a router sent to each and what has ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from service.batching.rules import Rules
from service.messages.settings import Settings

FREE_SHARE: Final = 1 / 3
ON_ITS_WAY_S: Final = 0.01
"""A batch that leaves within this time is one that a request does not reach any more."""


class Sent(NamedTuple):
    """A request as `Rules` see it; of its tokens a router knows nothing."""

    enqueued_s: float
    tokens: int = 1


class Standing(NamedTuple):
    """What stands before a request that is sent to a replica now.

    Attributes:
        is_busy: a batch runs, or leaves before the request could reach it.
        batches: full ones that wait.
        members: of the batch that waits to be filled.
    """

    is_busy: bool
    batches: int
    members: int

    @property
    def is_free(self) -> bool:
        """Whether nothing does."""
        return not (self.is_busy or self.batches or self.members)


class Mirror:
    """A replica's queue and engine in late formation.

    A router does not hear when a batch starts. The mirror takes a batch to start as the rules say, and to end when all
    of its members have ended.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, Sent] = {}
        self._running: set[str] = set()
        self._free_since_s = 0.0

    @property
    def held(self) -> int:
        """How many requests it holds."""
        return len(self._waiting) + len(self._running)

    def send(self, request: str, at_s: float) -> None:
        self._waiting[request] = Sent(at_s)

    def end(self, request: str, at_s: float) -> None:
        """It was answered, or has left."""
        self._waiting.pop(request, None)
        if request in self._running:
            self._running.remove(request)
            if not self._running:
                self._free_since_s = at_s

    def standing(self, rules: Rules | None, at_s: float) -> Standing:
        """How it stands at that time; without `rules` each request counts as a batch."""
        if rules is None:
            return Standing(False, self.held, 0)
        release = None if self._running else rules.release(self._waiting.values(), self._free_since_s)
        if release is not None and release.at_s <= at_s + ON_ITS_WAY_S:
            for request in list(self._waiting)[: release.size]:
                del self._waiting[request]
                self._running.add(request)
        return Standing(bool(self._running), *divmod(len(self._waiting), rules.max_batch_size))


def ranks(standings: Sequence[Standing]) -> list[tuple[int, int, int, int]]:
    """The rank of each replica for a request, the best least.

    As long as a third of the engines are free, a free one. Then the fullest batch that waits for members before an
    engine at rest, or a free engine; and where all are busy, the fewest batches, and of these the fullest last one.
    Each member that joins a batch makes it longer, which at little load costs more than it gains.
    """
    gets_its_own = sum(each.is_free for each in standings) >= FREE_SHARE * len(standings)
    return [(gets_its_own and not each.is_free, each.is_busy, each.batches, -each.members) for each in standings]


def fitted_rules(settings: Settings) -> Rules | None:
    """The rules by which requests fit batches; ``None`` where no batch waits for members that one could fit.

    In `continuous` a request joins a batch that runs. In `early` a batch is sealed whatever the engine does. Where
    batches run side by side, an engine is not free when one of them has ended.
    """
    return Rules.of(settings) if settings.formation == "late" and settings.places == 1 else None
