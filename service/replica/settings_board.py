"""The settings of all replicas: one value, numbered, followed by each replica and changed from anywhere."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from service.messages.settings import SettingsChange, VersionedSettings

FOLLOW_TIMEOUT_S = 10.0
"""A follower is answered at least this often, so that it notices when the board is gone."""

ADOPTION_TIMEOUT_S = 1.0
"""A replica that has not adopted a change by then is not waited for: it adopts it when it can."""


class SettingsBoard:
    """Replicas call `follow` again and again, each time with what they hold: that call is the acknowledgement.

    So a change reaches every waiting replica at once, and one that comes late, or missed an answer, gets the settings
    in force with the next call; there is no list of recipients that could be out of date.
    """

    def __init__(
        self,
        in_force: VersionedSettings,
        keep: Callable[[VersionedSettings], Awaitable[None]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`keep` is awaited with what is to be in force before any replica hears of it."""
        self.in_force = in_force
        self._keep = keep
        self._held: dict[str, int] = {}
        self._gone: set[str] = set()
        self._moved = asyncio.Condition()
        self._one_at_a_time = asyncio.Lock()
        self._clock = clock

    async def follow(self, replica: str, held: VersionedSettings) -> VersionedSettings:
        """Wait until there is something newer than `held`, or for `FOLLOW_TIMEOUT_S`; return what is in force."""
        async with self._moved:
            assert held.version <= self.in_force.version, (
                "what a replica holds was in force here, or on the board before"
            )
            if replica not in self._gone:  # it may still ask while it ends
                self._held[replica] = held.version
            self._moved.notify_all()
            with suppress(TimeoutError):
                async with asyncio.timeout(FOLLOW_TIMEOUT_S):
                    await self._moved.wait_for(lambda: self.in_force.version != held.version)
            return self.in_force

    async def revise(
        self, changes: Mapping[str, object], reason: str = "", upon: int | None = None
    ) -> SettingsChange | None:
        """Put changed settings in force for this reason, and wait for the replicas; ``None`` if they change nothing.

        Where another version than `upon` is in force by then, nothing is changed. Raises `SettingError`, and then
        nothing has changed.
        """
        requested_s = self._clock()
        async with self._one_at_a_time:
            previous = self.in_force
            is_upon = upon is None or upon == previous.version
            settings = previous.settings.revised(changes) if is_upon else previous.settings
            if settings == previous.settings:
                await self._adopted(previous.version)
                return None
            version = previous.version + 1
            in_force = VersionedSettings(version=version, settings=settings)
            await self._keep(in_force)
            self.in_force = in_force
            await self._adopted(version)
            return SettingsChange(
                version=version,
                previous=previous.settings,
                settings=settings,
                requested_s=requested_s,
                in_force_s=self._clock(),
                reason=reason,
            )

    async def _adopted(self, version: int) -> None:
        """Return when every replica holds `version`, or has had the time to."""
        with suppress(TimeoutError):
            async with asyncio.timeout(ADOPTION_TIMEOUT_S), self._moved:
                self._moved.notify_all()
                await self._moved.wait_for(lambda: all(held >= version for held in self._held.values()))

    def join(self, replica: str) -> VersionedSettings:
        """A replica starts with what is returned; a change waits for it from now on.

        A call that comes twice says nothing of what the replica holds: it may have got the first answer.
        """
        self._held.setdefault(replica, self.in_force.version)
        return self.in_force

    def expect(self, replica: str) -> None:
        """There is a replica, of which it is not known what it holds; a change waits for it from now on."""
        self._held[replica] = 0

    def forget(self, replica: str) -> None:
        """Do not wait for this replica any more."""
        self._gone.add(replica)
        self._held.pop(replica, None)
