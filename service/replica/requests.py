"""The requests of one replica: their states, their stages, and the only place where a request changes its state."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from service.engine.job import Job, Progress
from service.messages.options import REQUEST_TIMEOUT_S
from service.messages.telemetry import FINAL_STATES, RequestRecord, RequestState
from service.replica.recorder import Recorder

FinishReason = Literal["stop", "length"]

NEXT_STATES: Final[Mapping[RequestState, frozenset[RequestState]]] = {
    "waiting": frozenset({"formed", "failed", "cancelled", "refused"}),
    "formed": frozenset({"running", "failed", "cancelled"}),
    "running": frozenset({"done", "failed", "cancelled"}),
}
"""The states that may follow each state of a request; none follows a final one."""


class GenerationError(Exception):
    """The engine could not complete this one request; the message says why."""


@dataclass(frozen=True, slots=True)
class TextChunk:
    """Text generated since the chunk before; the last one of a request carries `finish_reason`."""

    text: str
    prompt_tokens: int
    completion_tokens: int
    finish_reason: FinishReason | None


@dataclass(eq=False, slots=True)
class GenerationRequest:
    """One input from its admission to its end: the engine's job, the text that is still unread, and its stages.

    `answered` is resolved when it has ended; cancelling that takes it out of the queue.
    """

    job: Job
    client_id: str | None
    streamed: bool  # every step is news to the client, not the end alone
    received_s: float
    enqueued_s: float
    state: RequestState = "waiting"
    batch: str | None = None
    formed_s: float | None = None
    started_s: float | None = None
    first_token_s: float | None = None
    finished_s: float | None = None
    last_token_s: float | None = None
    longest_gap_s: float | None = None
    longest_gap_at_s: float | None = None
    completion_tokens: int = 0
    error: str | None = None
    finish_reason: FinishReason | None = None
    answered: asyncio.Future[None] = field(init=False)
    timer: asyncio.TimerHandle = field(init=False)  # ends the request after `REQUEST_TIMEOUT_S`
    unread: list[str] = field(default_factory=list)  # by the client
    news: asyncio.Event = field(default_factory=asyncio.Event)  # set when there is something to read

    @property
    def is_final(self) -> bool:
        return self.state in FINAL_STATES

    def enter(self, state: RequestState) -> None:
        """Change the state to `state`. Only this method does, so a request that has ended stays as it ended."""
        assert state in NEXT_STATES.get(self.state, ()), f"{self.job.id} was {self.state} and cannot become {state}"
        self.state = state

    @property
    def tokens(self) -> int:
        """Token budget: prompt tokens + max_tokens."""
        return self.job.prompt_tokens + self.job.max_tokens

    @property
    def stages_s(self) -> list[float]:
        """When each stage that the request has reached began."""
        reached = (self.received_s, self.enqueued_s, self.formed_s, self.started_s, self.first_token_s, self.finished_s)
        return [at_s for at_s in reached if at_s is not None]

    def record(self, replica: str) -> RequestRecord:
        return RequestRecord(
            id=self.job.id,
            client_id=self.client_id,
            replica=replica,
            state=self.state,
            prompt_tokens=self.job.prompt_tokens,
            max_tokens=self.job.max_tokens,
            completion_tokens=self.completion_tokens,
            batch=self.batch,
            received_s=self.received_s,
            enqueued_s=self.enqueued_s,
            formed_s=self.formed_s,
            started_s=self.started_s,
            first_token_s=self.first_token_s,
            finished_s=self.finished_s,
            error=self.error,
            longest_gap_s=self.longest_gap_s,
            longest_gap_at_s=self.longest_gap_at_s,
        )

    def note_tokens(self, at_s: float) -> float | None:
        """A step has given the request tokens; returns the gap that this ended, ``None`` with its first."""
        gap_s = None if self.last_token_s is None else at_s - self.last_token_s
        if gap_s is not None and (self.longest_gap_s is None or gap_s > self.longest_gap_s):
            self.longest_gap_s, self.longest_gap_at_s = gap_s, at_s
        self.last_token_s = at_s
        return gap_s

    def read(self) -> TextChunk:
        """The text since the last reading; raises `GenerationError` if the request failed."""
        self.news.clear()
        if self.error is not None:
            raise GenerationError(self.error)
        text = "".join(self.unread)
        self.unread.clear()
        return TextChunk(text, self.job.prompt_tokens, self.completion_tokens, self.finish_reason)


class LiveRequests:
    """The requests that have not ended, of which the engine is computing `running`; for one event loop."""

    def __init__(
        self, recorder: Recorder, on_ran: Callable[[float], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`on_ran` gets how many seconds a request ran when it ends."""
        self.running = 0
        self._recorder = recorder
        self._on_ran = on_ran
        self._clock = clock
        self._live: dict[str, GenerationRequest] = {}

    def end_all(self, state: Literal["failed", "cancelled"], error: str | None = None) -> None:
        """End every request that has not ended."""
        for request in list(self._live.values()):
            request.job.cancel()
            self.finish(request, state, error)

    @property
    def live(self) -> int:
        """How many have not ended."""
        return len(self._live)

    @property
    def counts(self) -> Counter[RequestState]:
        """How many there are in each state, also of those on their way from the queue to the engine."""
        return Counter(request.state for request in self._live.values())

    def admit(self, request: GenerationRequest) -> None:
        """The queue has taken `request`, whose future is `request.answered`."""
        request.answered.add_done_callback(lambda answered: self._on_answered(request, answered))
        request.timer = asyncio.get_running_loop().call_later(REQUEST_TIMEOUT_S, self._on_overdue, request)
        self._live[request.job.id] = request
        self._recorder.count(received=1, admitted=1)
        self._recorder.note_request(request)

    def refuse(self, request: GenerationRequest, error: str) -> None:
        """The queue has not taken `request`."""
        self._recorder.count(received=1, refused=1)
        request.enter("refused")
        request.error, request.finished_s = error, request.enqueued_s
        self._recorder.note_request(request)

    def form(self, requests: Iterable[GenerationRequest], batch: str | None, at_s: float) -> None:
        """The requests are in the batch with that id; ``None`` where it has none that is known."""
        for request in requests:
            request.enter("formed")
            request.formed_s, request.batch = at_s, batch
            self._recorder.note_request(request)

    def start(self, requests: Iterable[GenerationRequest], at_s: float) -> list[GenerationRequest]:
        """The requests run since `at_s`; returns the ones that had not ended before."""
        present = [request for request in requests if not request.is_final]
        for request in present:
            request.enter("running")
            request.started_s = at_s
            self._recorder.note_request(request)
        self.running += len(present)
        return present

    def note_step(self, progress: Iterable[Progress], at_s: float) -> None:
        """The engine has made one step for each of these jobs."""
        for p in progress:
            request = self._live.get(p.job.id)
            if request is not None:
                self._note_progress(request, p, at_s)

    def finish(self, request: GenerationRequest, state: RequestState, error: str | None = None) -> None:
        """End `request` in a final state; one that has ended stays as it ended."""
        if request.is_final:
            return
        if request.state == "running":
            assert request.started_s is not None
            self.running -= 1
            self._on_ran(self._clock() - request.started_s)
        request.enter(state)
        request.error, request.finished_s = error, self._clock()
        request.timer.cancel()
        del self._live[request.job.id]
        self._recorder.count(completed=state == "done", failed=state == "failed", cancelled=state == "cancelled")
        self._recorder.note_request(request)
        request.news.set()
        if not request.answered.done():
            request.answered.set_result(None)
        ledger = self._recorder.ledger
        assert ledger.admitted == len(self._live) + ledger.completed + ledger.failed + ledger.cancelled, ledger
        assert request.stages_s == sorted(request.stages_s), request.stages_s
        assert self.running >= 0

    def _note_progress(self, request: GenerationRequest, progress: Progress, at_s: float) -> None:
        if progress.tokens > request.completion_tokens:
            gap_s = request.note_tokens(at_s)
            if gap_s is None:
                request.first_token_s = at_s
                self._recorder.note_request(request)
            else:
                self._recorder.note_gap(request.job.id, gap_s, at_s)
        request.completion_tokens = progress.tokens
        request.unread.append(progress.text)
        if progress.finish_reason is None:
            if request.streamed and progress.tokens:  # before its first token there is nothing to read
                request.news.set()
        elif progress.finish_reason == "cancelled":
            self.finish(request, "cancelled")
        elif progress.finish_reason == "error":
            self.finish(request, "failed", progress.error)
        else:
            request.finish_reason = progress.finish_reason
            self.finish(request, "done")

    def _on_answered(self, request: GenerationRequest, answered: asyncio.Future[None]) -> None:
        """The future has ended: here, by cancellation, or because Ray's decorator failed."""
        if answered.cancelled():
            if request.state != "running":
                self.finish(request, "cancelled")
        elif error := answered.exception():
            self.finish(request, "failed", f"{type(error).__name__}: {error}")

    def _on_overdue(self, request: GenerationRequest) -> None:
        request.job.cancel()
        self.finish(request, "failed", f"The request was not complete after {REQUEST_TIMEOUT_S:.0f} s.")
