"""A run of the service that never happened: a discrete simulation that speaks in the service's own messages.

Poisson arrivals meet a queue, a batcher (late, early or continuous) and an engine whose batches take
``steps · (a + b · size)``.
The same seed gives the same run. Used by tests and for looking at the plots.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field, fields
from functools import lru_cache
from itertools import pairwise, takewhile

from service.analysis.observed.history import History
from service.batching.rules import Rules
from service.messages.load import ClientOutcome, ClientRequest, ClientTotals, LoadFrame, Poisson
from service.messages.settings import ReleaseReason, Settings, SettingsChange, VersionedSettings
from service.messages.telemetry import (
    BatchRecord,
    BatchWork,
    ProcessorUse,
    ReplicaStatus,
    RequestRecord,
    RequestState,
    TelemetryFrame,
    TokenGaps,
)
from service.replica.recorder import Recorder
from tests.synthetic_continuous import OpenRun
from tests.synthetic_parts import SyntheticBatch, SyntheticRequest, padded

CLOCK = "synthetic"
FRAME_S = 0.05
HEALTHY = 0.9  # of the processor time that an engine asks for, which it gets beside a window
ENDED_LONG_AGO_S = 1.0  # of what ended before that, no later frame tells
PROMPTS = (
    "Once upon a time",
    "The three laws of robotics are",
    "A batch is a group of",
    "Explain latency to a child:",
    "In the year 2050, computers",
)


@dataclass(frozen=True)
class Step:
    """From `at_s` on the load or the settings are different; ``None`` leaves them."""

    at_s: float
    rate_per_s: float | None = None
    settings: Settings | None = None


@dataclass(frozen=True)
class Slowed:
    """From `start_s` to `end_s` each step that begins takes `factor` times as long, since the engine gets less."""

    start_s: float
    end_s: float
    factor: float


@dataclass
class SyntheticRun:
    """Simulates `duration_s` and then tells it frame by frame.

    Attributes:
        steps: the first must be at 0 and name both load and settings.
        step_s, per_request_s: a decode step takes ``step_s + per_request_s · size``.
        outside_share: of the requests that come from no sender we know.
        tokens_spread: up to so many tokens more or fewer are generated for a request.
        slowed: stretches in which other programs have the cores.
        measures_processor: whether the replica reports the processor time of its engine.
        max_ongoing_requests: that Ray lets the replica hold; ``None`` reports nothing of it.
        prompts: numbers of requests and the tokens of their prompts; those of the others have a few.
    """

    duration_s: float
    steps: tuple[Step, ...] = (Step(0.0, 4.0, Settings()),)
    seed: int = 1
    tokens: int = 24
    step_s: float = 0.030
    per_request_s: float = 0.0018
    outside_share: float = 0.0
    tokens_spread: int = 0
    prompts: tuple[tuple[int, int], ...] = ()
    start_s: float = 1000.0
    slowed: tuple[Slowed, ...] = ()
    measures_processor: bool = False
    max_ongoing_requests: int | None = None
    requests: list[SyntheticRequest] = field(default_factory=list, init=False)
    batches: list[SyntheticBatch] = field(default_factory=list, init=False)
    changes: list[SettingsChange] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self._recorder = Recorder("r1")
        self._random = random.Random(self.seed)
        self._oldest = self._oldest_batch = 0
        self._arrivals()
        self._serve()

    # ----------------------------------------------------------------------------------------------------- simulation

    def _arrivals(self) -> None:
        rate, at_s = 0.0, 0.0
        changes = [step for step in self.steps if step.rate_per_s is not None]
        while at_s < self.duration_s:
            begun = [step for step in changes if step.at_s <= at_s]
            rate = begun[-1].rate_per_s or 0.0
            following = next((step.at_s for step in changes if step.at_s > at_s), self.duration_s)
            gap_s = self._random.expovariate(rate) if rate else float("inf")
            if at_s + gap_s > following:
                at_s = following
                continue
            at_s += gap_s
            outside = self._random.random() < self.outside_share
            self.requests.append(self._next_request(at_s, outside))
        self.requests = [request for request in self.requests if request.received_s < self.duration_s]

    def _next_request(self, at_s: float, outside: bool) -> SyntheticRequest:
        number, spread = len(self.requests) + 1, self.tokens_spread
        tokens = self.tokens + (self._random.randint(-spread, spread) if spread else 0)
        return SyntheticRequest(number, at_s, tokens, outside, dict(self.prompts).get(number, 4 + number % 5))

    def _settings_at(self, at_s: float) -> tuple[int, Settings]:
        versions = [step.settings for step in self.steps if step.settings is not None and step.at_s <= at_s]
        return len(versions), versions[-1]

    def _serve(self) -> None:
        versions = [(step.at_s, step.settings) for step in self.steps if step.settings is not None]
        for number, ((_, before), (changed_s, after)) in enumerate(pairwise(versions), start=2):
            at_s = self.start_s + changed_s
            self.changes.append(
                SettingsChange(
                    version=number,
                    previous=before,
                    settings=after,
                    requested_s=at_s,
                    in_force_s=at_s + 0.003,
                )
            )
        engine_free_s, place = 0.0, 0
        while place < len(self.requests):
            first = self.requests[place]
            _, settings = self._settings_at(first.received_s)
            free_s = max(first.received_s, engine_free_s)
            is_open = self._settings_at(free_s)[1].formation == "continuous"
            batch = self._form(place, first.received_s if settings.formation == "early" and not is_open else free_s)
            place += len(batch.members)
            if is_open:
                run = OpenRun(self.requests, self.batches, place, self._settings_at, self._step_s)
                engine_free_s, place = run.go(batch), run.place
            else:
                engine_free_s = self._run(batch, engine_free_s)

    def _run(self, batch: SyntheticBatch, engine_free_s: float) -> float:
        """All prompts are read at once, and every row that is left gets a token a step; returns when it has ended."""
        batch.started_s = started_s = max(batch.formed_s, engine_free_s)
        batch.finished_s = finished_s = self._end_s(started_s, self._batch_s(batch))
        batch.tokens = [member.tokens for member in batch.members]
        prompts, padding = padded(batch.members)
        read_s = (finished_s - started_s) / max(batch.tokens)
        batch.work = BatchWork(
            steps=max(batch.tokens),
            computed=prompts + sum(batch.tokens) - len(batch.tokens),
            padding=padding,
            vacant=sum(max(batch.tokens) - each for each in batch.tokens),
            prompts=prompts,
            prefill_s=read_s,
        )
        for member in batch.members:
            member.started_s, member.finished_s = started_s, finished_s
            member.first_token_s = started_s + read_s
            gap_s = (finished_s - member.first_token_s) / max(member.tokens - 1, 1)
            member.token_times = [member.first_token_s + n * gap_s for n in range(member.tokens)]
        return finished_s

    def _form(self, place: int, ready_s: float) -> SyntheticBatch:
        """Seal the batch that begins with the request at `place`, once the batcher looks at the queue at `ready_s`."""
        version, settings = self._settings_at(ready_s)
        rules = Rules.of(settings)
        deadline_s = rules.tick_s(ready_s + settings.longest_wait_s)
        coming = self.requests[place : place + settings.max_batch_size]
        members = [request for request in coming if request.received_s <= deadline_s]
        reason: ReleaseReason = "timeout" if settings.longest_wait_s else "drained"
        formed_s = deadline_s
        if len(members) == settings.max_batch_size:
            reason, formed_s = "full", rules.tick_s(max(ready_s, members[-1].received_s))
        batch = SyntheticBatch(len(self.batches) + 1, version, settings, reason, formed_s, members)
        for member in members:
            member.formed_s, member.batch = formed_s, batch
        self.batches.append(batch)
        return batch

    def _batch_s(self, batch: SyntheticBatch) -> float:
        return max(member.tokens for member in batch.members) * self._step_s(len(batch.members))

    def _step_s(self, rows: int, at_s: float = 0.0) -> float:
        work_s = (self.step_s + self.per_request_s * rows) * self._random.uniform(0.96, 1.04)
        return self._end_s(at_s, work_s) - at_s

    def _end_s(self, start_s: float, work_s: float) -> float:
        """When work is done that takes `work_s` of an engine that nothing slows."""
        at_s = start_s
        for slowed in self.slowed:
            if at_s + work_s <= slowed.start_s or at_s >= slowed.end_s:
                continue
            work_s -= max(slowed.start_s - at_s, 0.0)
            at_s = max(at_s, slowed.start_s)
            done_s = min(work_s, (slowed.end_s - at_s) / slowed.factor)
            work_s, at_s = work_s - done_s, at_s + done_s * slowed.factor
        return at_s + work_s

    def _processor_use(self, at_s: float) -> ProcessorUse:
        """An engine that asks for both cores all the time, and gets nine tenths of them where nothing slows it."""
        slowed_s = [(max(min(at_s, each.end_s) - each.start_s, 0.0), each.factor) for each in self.slowed]
        got_s = HEALTHY * (at_s - sum(span_s for span_s, _ in slowed_s))
        got_s += HEALTHY * sum(span_s / factor for span_s, factor in slowed_s)
        return ProcessorUse(got_s=2 * got_s, waited_s=2 * (at_s - got_s))

    # -------------------------------------------------------------------------------------------------------- telling

    def frames(self, until_s: float | None = None) -> Iterator[tuple[TelemetryFrame, LoadFrame]]:
        """The pairs of frames, 20 a second, up to `until_s` after the start."""
        end_s = self.duration_s if until_s is None else until_s
        number, before_s = 0, 0.0
        while before_s < end_s:
            number += 1
            at_s = number * FRAME_S
            yield self._telemetry(number, before_s, at_s), self._load(before_s, at_s)
            before_s = at_s

    def fill(self, history: History, until_s: float | None = None) -> None:
        for telemetry, load in self.frames(until_s):
            history.add_telemetry(telemetry)
            history.add_load(load)

    def _telemetry(self, number: int, before_s: float, at_s: float) -> TelemetryFrame:
        version, settings = self._settings_at(at_s)
        held = self._alive(before_s, at_s)
        states = [self._state(request, at_s) for request in held]
        status = ReplicaStatus(
            replica="r1",
            pid=1,
            at_s=self.start_s + at_s,
            settings_version=version,
            waiting=states.count("waiting"),
            formed=states.count("formed"),
            running=states.count("running"),
            model="synthetic",
            device="cpu",
            dtype="bfloat16",
            cpu_percent=188.0,
            memory_bytes=1_100_000_000,
            max_ongoing_requests=self.max_ongoing_requests,
            engine_processor=self._processor_use(at_s) if self.measures_processor else None,
        )
        return TelemetryFrame(
            number=number,
            at_s=self.start_s + at_s,
            clock=CLOCK,
            in_force=VersionedSettings(version=version, settings=settings),
            changes=tuple(c for c in self.changes if before_s < c.in_force_s - self.start_s <= at_s),
            batches=tuple(self._batch_record(batch, at_s) for batch in self._batches_alive(before_s, at_s)),
            requests=tuple(
                self._request_record(request, at_s) for request in held if self._changed(request, before_s, at_s)
            ),
            gaps=self._gaps(held, before_s, at_s),
            replicas=(status,),
        )

    def _gaps(self, held: list[SyntheticRequest], before_s: float, at_s: float) -> tuple[TokenGaps, ...]:
        ended = [
            (end_s, gap_s, f"q{each.number}") for each in held for gap_s, end_s in each.gaps_between(before_s, at_s)
        ]
        if not before_s:
            self._recorder = Recorder("r1")
        for end_s, gap_s, id in sorted(ended):
            self._recorder.note_gap(id, gap_s, self.start_s + end_s)
        return self._recorder.take_gaps(self.start_s + at_s)

    def _load(self, before_s: float, at_s: float) -> LoadFrame:
        rates = [step.rate_per_s for step in self.steps if step.rate_per_s is not None and step.at_s <= at_s]
        ours = [r for r in self._alive(before_s, at_s) if not r.outside and self._changed(r, before_s, at_s)]
        return LoadFrame(
            at_s=self.start_s + at_s,
            clock=CLOCK,
            pattern=Poisson(rate_per_s=rates[-1]) if rates and rates[-1] else None,
            totals=ClientTotals(),
            requests=tuple(self._client_request(request, at_s) for request in ours),
        )

    def _alive(self, before_s: float, at_s: float) -> list[SyntheticRequest]:
        """Requests that were there at some time of a frame; they come in order, so the oldest alive is remembered."""
        first = self._oldest
        while first < len(self.requests) and self.requests[first].ended_s <= before_s - ENDED_LONG_AGO_S:
            first += 1
        self._oldest = first if before_s else 0
        begun = takewhile(lambda request: request.received_s <= at_s, self.requests[self._oldest :])
        return [request for request in begun if request.ended_s > before_s]

    def _batches_alive(self, before_s: float, at_s: float) -> list[SyntheticBatch]:
        first = self._oldest_batch
        while first < len(self.batches) and self.batches[first].ended_s <= before_s - ENDED_LONG_AGO_S:
            first += 1
        self._oldest_batch = first if before_s else 0
        formed = takewhile(lambda batch: batch.formed_s <= at_s, self.batches[self._oldest_batch :])
        return [batch for batch in formed if batch.ended_s > before_s]

    def _changed(self, request: SyntheticRequest, before_s: float, at_s: float) -> bool:
        is_new = request.received_s > before_s
        formed_s = request.formed_s
        was_formed = formed_s is not None and before_s < formed_s <= at_s
        return is_new or was_formed or self._state(request, at_s) in ("running", "done")

    @staticmethod
    def _state(request: SyntheticRequest, at_s: float) -> RequestState:
        if request.formed_s is None or request.formed_s > at_s:
            return "waiting"
        if request.started_s is None or request.started_s > at_s:
            return "formed"
        return "running" if request.ended_s > at_s else "done"

    def _request_record(self, request: SyntheticRequest, at_s: float) -> RequestRecord:
        state = self._state(request, at_s)
        gaps = request.gaps_between(0.0, at_s) if state == "done" else []
        longest_s, longest_at_s = max(gaps, default=(None, None))
        return RequestRecord(
            id=f"q{request.number}",
            client_id=None if request.outside else f"c{request.number}",
            replica="r1",
            state=state,
            prompt_tokens=request.prompt_tokens,
            max_tokens=request.tokens,
            completion_tokens=request.tokens_at(at_s),
            batch=request.batch.id if request.batch and state != "waiting" else None,
            received_s=self.start_s + request.received_s,
            enqueued_s=self.start_s + request.received_s + 0.0005,
            formed_s=self._past(request.formed_s, at_s),
            started_s=self._past(request.started_s, at_s),
            first_token_s=self._past(request.first_token_s, at_s),
            finished_s=self._past(request.finished_s, at_s),
            longest_gap_s=longest_s,
            longest_gap_at_s=self._past(longest_at_s, at_s),
        )

    def _client_request(self, request: SyntheticRequest, at_s: float) -> ClientRequest:
        state = self._state(request, at_s)
        outcome: ClientOutcome | None = "ok" if state == "done" else None
        return ClientRequest(
            id=f"c{request.number}",
            source="load",
            prompt=PROMPTS[request.number % len(PROMPTS)],
            max_tokens=request.tokens,
            intended_s=self.start_s + request.received_s - 0.002,
            sent_s=self.start_s + request.received_s - 0.001,
            finished_s=self._past(request.finished_s, at_s),
            tokens=request.tokens_at(at_s),
            new_text="there was a king who had three sons" if outcome else "",
            outcome=outcome,
        )

    def _batch_record(self, batch: SyntheticBatch, at_s: float) -> BatchRecord:
        return BatchRecord(
            id=batch.id,
            number=batch.number,
            replica="r1",
            settings_version=batch.version,
            formation="continuous" if batch.is_open else batch.settings.formation,
            size=len(batch.members),
            cap=batch.settings.max_batch_size,
            release_reason=batch.reason,
            formed_s=self.start_s + batch.formed_s,
            started_s=self._past(batch.started_s, at_s),
            finished_s=self._past(batch.finished_s, at_s),
            tokens=batch.tokens_at(at_s),
            members=tuple(f"q{member.number}" for member in batch.members),
            work=batch.work if batch.ended_s <= at_s else None,
        )

    def _past(self, event_s: float | None, at_s: float) -> float | None:
        return None if event_s is None or event_s > at_s else self.start_s + event_s


class FakeClock:
    """Stands still until it is told the time."""

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s

    def wall_time(self) -> float:
        return 1_780_000_000.0 + self.now_s


def filled_history(run: SyntheticRun, until_s: float | None = None) -> tuple[History, FakeClock]:
    """A history that has heard of the run up to `until_s`, with its clock standing there."""
    made = tuple(getattr(run, each.name) for each in fields(run) if each.init)
    return deepcopy(_filled_history(type(run), made, until_s))


@lru_cache(maxsize=32)  # a copy takes a hundredth of the time
def _filled_history(
    kind: Callable[..., SyntheticRun], made: tuple[object, ...], until_s: float | None
) -> tuple[History, FakeClock]:
    run = kind(*made)
    end_s = run.duration_s if until_s is None else until_s
    clock = FakeClock(run.start_s)
    history = History(clock_id=CLOCK, clock=clock, wall_clock=clock.wall_time)
    for telemetry, load in run.frames(end_s):
        clock.now_s = telemetry.at_s
        history.add_telemetry(telemetry)
        history.add_load(load)
    return history, clock


SMALL, LARGE = Settings(max_batch_size=4), Settings(max_batch_size=16)


def picture_run(seed: int = 3) -> SyntheticRun:
    """The story of the pictures: drained, then a cap of 4 that is too small for the load, then one of 16."""
    return SyntheticRun(
        duration_s=62.0,
        seed=seed,
        steps=(
            Step(0.0, 2.6, replace_settings(SMALL, batch_wait_timeout_s=0.0)),
            Step(6.0, settings=SMALL),
            Step(24.0, rate_per_s=6.4),
            Step(40.0, settings=LARGE),
        ),
        step_s=0.029,
        per_request_s=0.0022,
    )


def early_run(seed: int = 3) -> SyntheticRun:
    """A cap of 4, then 16, then Ray's way of forming batches."""
    return SyntheticRun(
        duration_s=62.0,
        seed=seed,
        steps=(
            Step(0.0, 4.2, SMALL),
            Step(15.0, settings=LARGE),
            Step(45.0, settings=replace_settings(LARGE, formation="early")),
        ),
        step_s=0.029,
    )


def continuous_run(seed: int = 3, duration_s: float = 62.0, rate_per_s: float = 4.6, spread: int = 16) -> SyntheticRun:
    """Formed late, then requests that join and leave one by one."""
    return SyntheticRun(
        duration_s=duration_s,
        seed=seed,
        steps=(
            Step(0.0, rate_per_s, LARGE),
            Step(duration_s / 3, settings=replace_settings(LARGE, formation="continuous")),
        ),
        tokens_spread=spread,
        step_s=0.029,
        per_request_s=0.0022,
    )


def replace_settings(settings: Settings, **changes: object) -> Settings:
    return settings.revised(changes)
