"""Short names for replicas: r1, r2, and so on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from service.batching.queue import wait_for_change

logger = logging.getLogger(__name__)

POLL_S: Final = 0.1
"""A replica that ends instead of reporting is noticed as soon as this."""

PATIENCE_S: Final = 60.0
"""Longer than Serve takes to replace a replica that hangs."""


class ReplicaNames:
    """Gives each replica a name that no other has or had.

    A hub that Serve has restarted knows none of the names that were given before. Each replica reports its own as soon
    as it finds the new hub; until all of them have, no name is given.
    """

    def __init__(self, living: Callable[[], Awaitable[frozenset[str]]]) -> None:
        """`living` returns the replicas that have started and not ended, by Serve's names for them."""
        self._living = living
        self._names: dict[str, str] = {}  # by those of Serve's
        self._last = 0
        self._reported = asyncio.Event()

    async def give(self, replica: str) -> str:
        """A new name for a replica that starts."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while await self._living() - self._names.keys():
                    await wait_for_change(self._reported, deadline_s=POLL_S, now_s=0.0)
        except TimeoutError:
            logger.warning("Not every replica has reported its name within %g s; one may be given twice", PATIENCE_S)
        name = f"r{self._last + 1}"
        self.note(replica, name)
        return name

    def note(self, replica: str, name: str) -> None:
        """A replica has this name."""
        self._names[replica] = name
        self._last = max(self._last, int(name.removeprefix("r")))
        self._reported.set()

    def forget(self, replica: str) -> str | None:
        """A replica has gone; returns the name it had."""
        return self._names.pop(replica, None)
