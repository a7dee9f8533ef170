"""A stretch of time in which a server answers, reported as a replica reports itself."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from service.analysis.observed.stretches import Stretches
from service.engine.job import Job, Progress
from service.messages.settings import VersionedSettings
from service.messages.telemetry import BatchWork, ReplicaStatus, RequestState
from service.probe.servers import Gauges, Server
from service.replica.recorder import Recorder
from service.replica.requests import GenerationRequest, LiveRequests

ELSEWHERE: Final = ""
"""The device of a server that does not say what it computes on."""
IDLE_S: Final = 1.0
"""A server counts as idle when its figures have not grown for this time. It is a guess: a step may take longer."""


class Contact:
    """What is seen of a server: the requests that pass on their way to it, and what it reports of all.

    A server reports how many requests run, and not which. So what lies between two reports is a batch without members.
    Where it does not report even that, all requests that passed here and are not answered count as running.
    Which of the requests that passed here still wait is inferred: the newest, as many as the server's queue holds, or
    all beyond those that it runs. For one event loop.
    """

    def __init__(
        self,
        replica: str,
        server: Server,
        in_force: VersionedSettings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.recorder = Recorder(replica)
        self.requests = LiveRequests(self.recorder, lambda _: None, clock)
        self._replica = replica
        self._server = server
        self._in_force = in_force
        self._clock = clock
        self._numbers = itertools.count(1)
        self._stretches = Stretches(replica, in_force)
        self._running: int | None = None  # as the server has reported last
        self._before: Gauges | None = None
        self._reported_s = 0.0  # when that was
        self._progress_s = 0.0  # when its count of progress last grew; now, where it has none
        self._joined = self._left = False  # since then: a request has started, or ended
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
        """`tokens` tokens of its answer have come by now."""
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
        if has_run:
            self._left = True
            self._release(sum(self._unstarted.values()))  # the oldest takes its place

    def _start(self, request: GenerationRequest) -> None:
        """It runs, from now on where it was seen waiting, else since it was passed on; or has done so before."""
        at_s = self._clock() if self._unstarted.pop(request, False) else request.enqueued_s
        if request.state == "waiting":
            self.requests.form([request], None, at_s)
            self.requests.start([request], at_s)
            self._joined = True

    # What the server reports -----------------------------------------------------------------------------------------

    def note(self, gauges: Gauges) -> ReplicaStatus:
        """The server has reported this now."""
        now_s = self._clock()
        if self._only_seems_busy(gauges, now_s):
            gauges = replace(gauges, waiting=0, running=0)
        self._running = gauges.running
        self._release(len(self._unstarted) - (gauges.waiting or 0))
        self._unstarted = dict.fromkeys(self._unstarted, True)
        counts = self.requests.counts
        if gauges.running is None:
            gauges = replace(gauges, running=counts["running"], tokens=self._tokens)
        elif self._server.slots is not None:  # which forget a request's last tokens when it ends between two reports
            gauges = replace(gauges, tokens=max(gauges.tokens or 0, self._tokens))
        if self._before is not None:
            self._note_batches(self._before, gauges, now_s)
        self._before, self._reported_s = gauges, now_s
        return ReplicaStatus(
            replica=self._replica,
            pid=0,
            at_s=now_s,
            settings_version=self._in_force.version,
            waiting=counts["waiting"] if gauges.waiting is None else gauges.waiting,
            formed=0,
            running=gauges.running or 0,
            model=self._server.model,
            device=ELSEWHERE,
            dtype="",
            ledger=self.recorder.ledger,
            cache_share=gauges.cache_share,
        )

    def _only_seems_busy(self, gauges: Gauges, now_s: float) -> bool:
        """Whether it has computed nothing for a while, by what it counts, and no request that passed here is left."""
        if gauges.progress is None or self._before is None or gauges.progress != self._before.progress:
            self._progress_s = now_s
        return not self.requests.live and now_s - self._progress_s >= IDLE_S

    def _release(self, most: int) -> None:
        """Start the oldest that wait: at most `most`, and no more than the server says that it runs."""
        free = (self._running or 0) - self.requests.counts["running"]
        for request in list(self._unstarted)[: max(min(most, free), 0)]:
            self._start(request)

    def _note_batches(self, earlier: Gauges, gauges: Gauges, now_s: float) -> None:
        tokens, prompts, steps = (
            _more(getattr(earlier, name), getattr(gauges, name)) for name in ("tokens", "prompt_tokens", "steps")
        )
        work = BatchWork(steps=steps, computed=tokens + prompts, prompts=prompts)
        rows, changes = gauges.running or 0, {"joined": self._joined, "left": self._left}
        for record in self._stretches.until(self._reported_s, now_s, rows, work, **changes):
            self.recorder.note_batch(record)
        self._joined = self._left = False


def _more(before: float | None, now: float | None) -> int:
    """By how much a count has grown; one of a server that was started anew begins at 0."""
    if now is None:
        return 0
    return int(now if before is None or now < before else now - before)
