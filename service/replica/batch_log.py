"""Tells the recorder what becomes of each batch."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from service.batching.queue import Batch
from service.messages.settings import Formation, ReleaseReason
from service.messages.telemetry import BatchRecord
from service.replica.recorder import Recorder


class BatchLog:
    """Numbers the batches of one replica and keeps the records of those under way."""

    def __init__(self, replica: str, recorder: Recorder) -> None:
        self._replica = replica
        self._recorder = recorder
        self._numbers = itertools.count(1)
        self._open: dict[str, BatchRecord] = {}

    def formed(self, batch: Batch[Any], members: Sequence[str]) -> str:
        """A batch was sealed; returns its id."""
        return self._begin(
            batch.formation, members, batch.cap, batch.rules_version, batch.release_reason, batch.formed_s
        )

    def resumed(self, members: Sequence[str], reason: ReleaseReason, cap: int, version: int) -> str:
        """An open batch goes on with other members; returns the id of this stretch, which begins now."""
        now_s = time.monotonic()
        stretch = self._begin("continuous", members, cap, version, reason, now_s)
        self.note(stretch, started_s=now_s)
        return stretch

    def note(self, id: str, **changes: Any) -> None:
        """Something about a batch under way changed; with `finished_s` it is the last."""
        record = msgspec.structs.replace(self._open[id], **changes)
        self._open[id] = record
        self._recorder.note_batch(record)
        if record.finished_s is not None:
            del self._open[id]

    def _begin(
        self, formation: Formation, members: Sequence[str], cap: int, version: int, reason: ReleaseReason, at_s: float
    ) -> str:
        number = next(self._numbers)
        record = BatchRecord(
            id=f"{self._replica}-b{number}",
            number=number,
            replica=self._replica,
            settings_version=version,
            formation=formation,
            size=len(members),
            cap=cap,
            release_reason=reason,
            formed_s=at_s,
            members=tuple(members),
        )
        self._open[record.id] = record
        self._recorder.note_batch(record)
        return record.id
