"""Batches without members, of a server of which only the number of requests that run is known from time to time."""

from __future__ import annotations

import msgspec

from service.messages.settings import VersionedSettings
from service.messages.telemetry import BatchRecord, BatchWork


class Stretches:
    """The records of such batches. As of a continuous batch, one ends where requests join or leave."""

    def __init__(self, replica: str, in_force: VersionedSettings) -> None:
        self._replica = replica
        self._in_force = in_force
        self._number = 0
        self._present: BatchRecord | None = None

    def until(
        self, since_s: float, now_s: float, rows: int, work: BatchWork, *, joined: bool = False, left: bool = False
    ) -> tuple[BatchRecord, ...]:
        """What there is to record of the time between two moments, at the end of which `rows` requests run.

        Args:
            work: of that time; what it computed beyond the prompts are the tokens of answers.
            joined, left: whether requests have, though as many may run as before.
        """
        tokens, before = work.computed - work.prompts, self._present
        if before is None and tokens:  # all came and went meanwhile
            before = self._begin(since_s, max(rows, 1), joined=True)
        ended: tuple[BatchRecord, ...] = ()
        if before is not None:
            before = msgspec.structs.replace(before, tokens=before.tokens + tokens, work=_sum(before.work, work))
            if rows == before.size and not (joined or left):
                self._present = before
                return (before,)
            ended = (msgspec.structs.replace(before, finished_s=now_s),)
        has_grown = before is None or rows > before.size
        self._present = self._begin(now_s, rows, joined=joined or has_grown) if rows else None
        return ended if self._present is None else (*ended, self._present)

    def _begin(self, at_s: float, rows: int, *, joined: bool) -> BatchRecord:
        self._number += 1
        return BatchRecord(
            id=f"{self._replica}-b{self._number}",
            number=self._number,
            replica=self._replica,
            settings_version=self._in_force.version,
            formation=self._in_force.settings.formation,
            size=rows,
            cap=max(self._in_force.settings.max_batch_size, rows),
            release_reason="joined" if joined else "left",
            formed_s=at_s,
            started_s=at_s,
        )


def _sum(before: BatchWork | None, more: BatchWork) -> BatchWork:
    if before is None:
        return more
    names = ("steps", "computed", "prompts")
    return BatchWork(**{name: getattr(before, name) + getattr(more, name) for name in names})
