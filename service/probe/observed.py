"""What becomes of one function's requests in one replica, as telemetry."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from inspect import isasyncgenfunction
from typing import Any, Final

from service.batching.queue import Batch
from service.engine.job import Job, Progress
from service.messages.settings import Settings, VersionedSettings
from service.messages.telemetry import BatchWork, ReplicaStatus
from service.ray_serve.application import max_ongoing_requests_here
from service.ray_serve.batch_queue import Future, OpenQueue
from service.replica.device import DeviceMeter
from service.replica.recorder import Recorder
from service.replica.requests import GenerationRequest, LiveRequests

UNITS: Final = {False: "items", True: "pieces"}
"""What a function gives to a request, by whether it streams."""


class Observed:
    """Listens to the queue of a function, and is kept in step with the function's hub. For one event loop.

    Requests that came before it are not known.
    """

    def __init__(
        self,
        name: str,
        replica: str,
        queue: OpenQueue,
        in_force: VersionedSettings,
        on_tuned: Callable[[Settings], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """The queue goes on under what is `in_force`.

        Args:
            name: the function's.
            on_tuned: gets the settings where the application itself has changed them here.
        """
        self.replica = replica
        self.recorder = Recorder(replica)
        self.requests = LiveRequests(self.recorder, lambda _: None, clock)
        self._on_tuned = on_tuned
        self._name = name
        self._queue = queue
        self._clock = clock
        self._numbers = itertools.count(1)
        self._known: dict[Future, GenerationRequest] = {}
        self._batches: dict[Future, tuple[str, list[GenerationRequest]]] = {}  # under way, by their first members
        self._device = device_in_use()
        self._meter = DeviceMeter(self._device)
        self._streams = isasyncgenfunction(queue.function)
        self.apply(in_force)
        queue.listener = self

    @property
    def in_force(self) -> VersionedSettings:
        return self._in_force

    def apply(self, in_force: VersionedSettings) -> None:
        self._in_force = in_force
        self._queue.apply(in_force)

    def status(self) -> ReplicaStatus:
        counts = self.requests.counts
        return ReplicaStatus(
            replica=self.replica,
            pid=os.getpid(),
            at_s=self._clock(),
            settings_version=self._in_force.version,
            waiting=counts["waiting"],
            formed=counts["formed"],
            running=counts["running"],
            model=self._name,
            device=self._device,
            dtype="",
            ledger=self.recorder.ledger,
            max_ongoing_requests=max_ongoing_requests_here(),
            unit=UNITS[self._streams],
            **self._meter.load()._asdict(),
        )

    # As the queue's listener -----------------------------------------------------------------------------------------

    def on_enqueued(self, request: Future, size: int) -> None:
        now_s = self._clock()
        job = Job(f"{self.replica}-{next(self._numbers)}", prompt_tokens=max(size, 1) - 1)
        seen = GenerationRequest(job, None, self._streams, received_s=now_s, enqueued_s=now_s)
        seen.answered = asyncio.get_running_loop().create_future()
        self.requests.admit(seen)
        seen.timer.cancel()  # how long a request of the application may take is the application's affair
        self._known[request] = seen

    def on_formed(self, requests: Sequence[Future], batch: Batch[Any]) -> None:
        known = [self._known[each] for each in requests if each in self._known]
        if not known:
            return
        sized = replace(batch, cap=max(batch.cap, len(known)))  # a setter may have changed since
        id = self.recorder.begin_batch(sized, [each.job.id for each in known])
        self.requests.form(known, id, batch.formed_s)
        self._batches[requests[0]] = id, known

    def on_started(self, requests: Sequence[Future]) -> None:
        if requests[0] in self._batches:
            id, known = self._batches[requests[0]]
            now_s = self._clock()
            self.requests.start(known, now_s)
            self.recorder.change_batch(id, started_s=now_s)

    def on_ended(self, requests: Sequence[Future]) -> None:
        if requests[0] in self._batches:
            id, known = self._batches.pop(requests[0])
            results = [each.completion_tokens for each in known]
            has_run = any(each.started_s is not None for each in known)
            work = BatchWork(steps=max(*results, 1) if has_run else 0)
            self.recorder.change_batch(id, finished_s=self._clock(), tokens=sum(results), work=work)

    def on_result(self, request: Future, *, is_last: bool) -> None:
        seen = self._known.get(request)
        if seen is None:
            return
        count = seen.completion_tokens + (not (is_last and self._streams))
        self.requests.note_step([Progress(seen.job, "", count, "stop" if is_last else None)], self._clock())
        if is_last:
            del self._known[request]

    def on_failed(self, request: Future, error: BaseException) -> None:
        if (seen := self._known.pop(request, None)) is not None:
            self.requests.finish(seen, "failed", f"{type(error).__name__}: {error}")

    def on_cancelled(self, request: Future) -> None:
        if (seen := self._known.pop(request, None)) is not None:
            self.requests.finish(seen, "cancelled")

    def on_tuned(self, settings: Settings) -> None:
        self._on_tuned(settings)


def device_in_use() -> str:
    """Where the application computes: on a GPU, if torch has one in use here."""
    torch = sys.modules.get("torch")
    return f"cuda:{torch.cuda.current_device()}" if torch is not None and torch.cuda.is_initialized() else "cpu"
