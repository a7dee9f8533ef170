"""A stretch of time in which a server answers, reported as a replica reports itself."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from msgspec import structs

from service.engine.job import Job, Progress
from service.messages.telemetry import BatchRecord, BatchWork, ReplicaStatus, RequestState
from service.probe.servers import Gauges, Server
from service.replica.recorder import Recorder
from service.replica.requests import GenerationRequest, LiveRequests

SETTINGS_VERSION: Final = 1
ELSEWHERE: Final = ""
"""The device of a server that does not say what it computes on."""


class Contact:
    """What is seen of a server: the requests that pass on their way to it, and what it reports of all.

    A server reports how many requests run, and not which. So what lies between two reports is a batch without members.
    Where it does not report even that, all requests that passed here and are not answered count as running.
    Which of the requests that passed here still wait is inferred: the newest, as many as the server's queue holds, or
    all beyond those that it runs. For one event loop.
    """

    def __init__(self, replica: str, server: Server, cap: int, clock: Callable[[], float] = time.monotonic) -> None:
        """`cap`: as many requests as the server runs at a time, or more where that is not known."""
        self.recorder = Recorder(replica)
        self.requests = LiveRequests(self.recorder, lambda _: None, clock)
        self._replica = replica
        self._server = server
        self._cap = cap
        self._clock = clock
        self._numbers = itertools.count(1)
        self._batch_numbers = itertools.count(1)
        self._running: int | None = None  # as the server has reported last
        self._before: Gauges | None = None
        self._reported_s = 0.0  # when that was
        self._stretch: BatchRecord | None = None  # under way
        self._has_changed = self._has_joined = False  # since it began: a request has started or ended, or started
        self._tokens = 0  # that came through here
        self._unstarted: dict[GenerationRequest, bool] = {}  # oldest first, and whether it was seen waiting

    # Requests on their way -------------------------------------------------------------------------------------------

    def begin(self, client_id: str | None, *, streamed: bool, max_tokens: int, received_s: float) -> GenerationRequest:
        """A request is passed on now."""
        job = Job(f"{self._replica}-{next(self._numbers)}", max_tokens=max_tokens)
        request = GenerationRequest(job, client_id, streamed, received_s, enqueued_s=self._clock())
        request.answered = asyncio.get_running_loop().create_future()
        self.requests.admit(request)
        request.timer.cancel()  # how long it may take is the server's affair
        if self._server.reports:
            self._unstarted[request] = False
        else:
            self._start(request)
        return request

    def note_tokens(self, request: GenerationRequest, tokens: int, prompt_tokens: int | None = None) -> None:
        """So many tokens of its answer have come by now."""
        if request.is_final:
            return
        self._start(request)
        request.job.prompt_tokens = prompt_tokens or request.job.prompt_tokens
        self._tokens += max(tokens - request.completion_tokens, 0)
        self.requests.note_step([Progress(request.job, "", tokens)], self._clock())

    def note_whole(self, request: GenerationRequest, tokens: int, prompt_tokens: int) -> None:
        """Its answer has come in one piece: when its first token was there is not known."""
        request.job.prompt_tokens, request.completion_tokens = prompt_tokens, tokens
        self._tokens += tokens

    def end(self, request: GenerationRequest, error: str | None = None, *, cancelled: bool = False) -> None:
        """Its answer is complete, or there will be none."""
        if not (error or cancelled or request.is_final):
            self._start(request)
        has_run = request.state == "running"
        self._unstarted.pop(request, None)
        state: RequestState = "cancelled" if cancelled else "failed" if error else "done"
        self.requests.finish(request, state, error)
        self._has_changed = self._has_changed or has_run
        if has_run:
            self._release(sum(self._unstarted.values()))  # the oldest takes its place

    def _start(self, request: GenerationRequest) -> None:
        """It runs, from now on where it was seen waiting, else since it was passed on; or has done so before."""
        at_s = self._clock() if self._unstarted.pop(request, False) else request.enqueued_s
        if request.state == "waiting":
            self.requests.form([request], None, at_s)
            self.requests.start([request], at_s)
            self._has_changed = self._has_joined = True

    # What the server reports -----------------------------------------------------------------------------------------

    def note(self, gauges: Gauges) -> ReplicaStatus:
        """The server has reported this now."""
        now_s = self._clock()
        self._running = gauges.running
        self._release(len(self._unstarted) - (gauges.waiting or 0))
        self._unstarted = dict.fromkeys(self._unstarted, True)
        counts = self.requests.counts
        if gauges.running is None:
            gauges = replace(gauges, running=counts["running"], tokens=self._tokens)
        elif self._server.slots is not None:  # which forget a request's last tokens when it ends between two reports
            gauges = replace(gauges, tokens=max(gauges.tokens or 0, self._tokens))
        if self._before is not None:
            self._note_batch(self._before, gauges, now_s)
        self._before, self._reported_s = gauges, now_s
        return ReplicaStatus(
            replica=self._replica,
            pid=0,
            at_s=now_s,
            settings_version=SETTINGS_VERSION,
            waiting=counts["waiting"] if gauges.waiting is None else gauges.waiting,
            formed=0,
            running=gauges.running or 0,
            model=self._server.model,
            device=ELSEWHERE,
            dtype="",
            ledger=self.recorder.ledger,
            cache_share=gauges.cache_share,
        )

    def _release(self, most: int) -> None:
        """The oldest run, at most so many, and no more of ours than the server runs at all."""
        free = (self._running or 0) - self.requests.counts["running"]
        for request in list(self._unstarted)[: max(min(most, free), 0)]:
            self._start(request)

    def _note_batch(self, earlier: Gauges, gauges: Gauges, now_s: float) -> None:
        """As of a continuous batch of ours, a stretch ends where requests join or leave, as far as that is seen."""
        tokens, prompts, steps = (
            _more(getattr(earlier, name), getattr(gauges, name)) for name in ("tokens", "prompt_tokens", "steps")
        )
        rows, before = gauges.running or 0, self._stretch
        if before is None and tokens:  # it came and went between two reports
            before = self._begin_stretch(max(rows, 1), self._reported_s)
        if before is not None:
            work = before.work or BatchWork()
            work = BatchWork(
                steps=work.steps + steps,
                prompts=work.prompts + prompts,
                computed=work.computed + tokens + prompts,
            )
            before = self._stretch = structs.replace(before, tokens=before.tokens + tokens, work=work)
            if rows == before.size and not self._has_changed:
                self.recorder.note_batch(before)
                return
            self.recorder.note_batch(structs.replace(before, finished_s=now_s))
        self._stretch = self._begin_stretch(rows, now_s) if rows else None
        self._has_changed = False

    def _begin_stretch(self, rows: int, at_s: float) -> BatchRecord:
        number = next(self._batch_numbers)
        joined = self._stretch is None or rows > self._stretch.size or self._has_joined
        record = BatchRecord(
            id=f"{self._replica}-b{number}",
            number=number,
            replica=self._replica,
            settings_version=SETTINGS_VERSION,
            formation="continuous",
            size=rows,
            cap=max(self._cap, rows),
            release_reason="joined" if joined else "left",
            formed_s=at_s,
            started_s=at_s,
        )
        self._has_joined = False
        self.recorder.note_batch(record)
        return record


def _more(before: float | None, now: float | None) -> int:
    """By how much a count has grown; one of a server that was started anew begins at 0."""
    if now is None:
        return 0
    return int(now if before is None or now < before else now - before)
