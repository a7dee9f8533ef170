"""The load: carries out commands, launches requests, keeps the ledger.

This module knows neither HTTP nor an event loop. Requests leave through a `Sender`, time comes from a `Clock`, and a
`Journal` receives every change. All calls come from one thread.
"""

from __future__ import annotations

import math
import secrets
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Protocol

from service.load.arrivals import TraceEntry, arrivals_of, read_trace
from service.load.flight import Answer, Flight, Sender
from service.load.loops import Clock, Loop, ScheduleLoop, UserLoop
from service.load.request_sampler import RequestSampler
from service.messages.gaps import LogBins
from service.messages.load import (
    Cancel,
    ClientOutcome,
    ClientTotals,
    ClosedLoop,
    Fire,
    LoadCommand,
    Pattern,
    PauseLoad,
    ResumeLoad,
    RunLoad,
    StopLoad,
    Trace,
)
from service.messages.text import UserError

UNREACHABLE_STOPS_AFTER_S = 2.0
MOST_CONNECTIONS = 20_000  # the range of ports that a client may use towards one server is hardly larger

NO_LOAD = RunLoad(pattern=ClosedLoop(users=1), prompts=())


class Journal(Protocol):
    """Is called with everything that changes."""

    def flight_changed(self, flight: Flight) -> None: ...
    def load_changed(self) -> None: ...
    def refused(self, reason: str) -> None: ...


class Generator:
    """Carries out load commands; at most one load runs at a time, and fired prompts run beside it.

    The arrivals of an open loop end `lasts_s` after its start, a closed loop when it is stopped.
    """

    def __init__(
        self,
        sender: Sender,
        clock: Clock,
        journal: Journal,
        max_connections: int = MOST_CONNECTIONS,
        id_prefix: str = "",
        lasts_s: float = math.inf,
    ) -> None:
        self._sender = sender
        self._clock = clock
        self._journal = journal
        self._max_connections = min(max_connections, MOST_CONNECTIONS)
        self._lasts_s = lasts_s
        self._run_id = id_prefix + secrets.token_hex(4)
        self._under_way: dict[str, Flight] = {}
        self._load_under_way = 0
        self._sent = 0
        self._dropped = 0
        self._outcomes: dict[ClientOutcome, int] = {"ok": 0, "refused": 0, "failed": 0, "cancelled": 0}
        self._lag = LagWindow()
        self._answers = RepeatedAnswers()
        self._load: RunLoad | None = None
        self._trace: Sequence[TraceEntry] = ()
        self._loop: Loop | None = None
        self.is_paused = False
        self._sampler = RequestSampler(NO_LOAD)
        self._unreachable_since_s: float | None = None

    # What stands -----------------------------------------------------------------------------------------------------

    @property
    def pattern(self) -> Pattern | None:
        return None if self._load is None else self._load.pattern

    @property
    def is_busy(self) -> bool:
        """A load runs or a request is under way."""
        return self._load is not None or bool(self._under_way)

    def totals(self) -> ClientTotals:
        return ClientTotals(
            sent=self._sent,
            dropped=self._dropped,
            outstanding=len(self._under_way),
            repeated=self._answers.repeated,
            differing=self._answers.differing,
            **self._outcomes,
        )

    def lag_p99_ms(self) -> float | None:
        return self._lag.p99_ms(self._clock.now())

    # Commands --------------------------------------------------------------------------------------------------------

    def obey(self, command: LoadCommand) -> None:
        """Carry out `command`, or report to the journal in words why that is refused."""
        match command:
            case Fire():
                self._fire(command)
            case RunLoad():
                self._run(command)
            case StopLoad():
                self._stop()
            case PauseLoad():
                self._set_paused(True)
            case ResumeLoad():
                self._set_paused(False)
            case Cancel(ids=ids):
                self._cancel(ids)

    def _fire(self, fire: Fire) -> None:
        count = len(fire.prompts) * fire.copies
        if not count:
            self._journal.refused("There is no prompt to fire.")
            return
        free = self._max_connections - len(self._under_way)
        if count > free:
            self._journal.refused(
                f"{count:,} requests at once are too many: {max(free, 0):,} more connections can be open."
            )
            return
        now = self._clock.now()
        for _ in range(fire.copies):
            for prompt in fire.prompts:
                self._launch(Flight(self._next_id(), "fire", prompt, fire.max_tokens, fire.temperature, now))

    def _run(self, load: RunLoad) -> None:
        try:
            trace = self._checked_trace(load)
        except UserError as refusal:
            self._journal.refused(str(refusal))
            return
        before, self._load, self._trace = self._load, load, trace
        if before is None:
            self._answers = RepeatedAnswers()
        if before is None or not self._goes_on(before, load):
            self._start_loop(load, trace)
        self._journal.load_changed()

    def _checked_trace(self, load: RunLoad) -> Sequence[TraceEntry]:
        """The arrivals that `load` replays, if it does; raises `UserError` where it cannot be run."""
        trace = self._trace_of(load.pattern)
        if not load.prompts and not (trace and all(entry.prompt is not None for entry in trace)):
            raise UserError("A load needs at least one prompt.")
        if isinstance(load.pattern, ClosedLoop) and load.pattern.users > self._max_connections:
            raise UserError(
                f"{load.pattern.users:,} users are too many: {self._max_connections:,} connections can be open."
            )
        return trace

    def _trace_of(self, pattern: Pattern) -> Sequence[TraceEntry]:
        """A file is not read again while it is replayed."""
        if not isinstance(pattern, Trace):
            return ()
        running = self.pattern
        return self._trace if isinstance(running, Trace) and running.path == pattern.path else read_trace(pattern.path)

    def _goes_on(self, before: RunLoad, load: RunLoad) -> bool:
        """Whether the loop that runs could take the change; open loops begin anew with another seed."""
        if self._loop is None or (before.seed != load.seed and not isinstance(load.pattern, ClosedLoop)):
            return False
        self._sampler = self._sampler.revised(before, load)
        return self._loop.change(load.pattern)

    def _start_loop(self, load: RunLoad, trace: Sequence[TraceEntry]) -> None:
        if self._loop is not None:
            self._loop.stop()
        self._unreachable_since_s = None
        self._sampler = RequestSampler(load, trace)
        if isinstance(load.pattern, ClosedLoop):
            self._loop = UserLoop(load.pattern, load.seed, self._clock, self._arrive)
        else:
            arrivals = arrivals_of(load, trace)
            self._loop = ScheduleLoop(arrivals, self._lasts_s, self._clock, self._arrive, self._stop)
        if self.is_paused:
            self._loop.pause()
        self._loop.start()

    def _stop(self) -> None:
        if self._loop is not None:
            self._loop.stop()
        self._load = self._loop = None
        self.is_paused = False
        self._journal.load_changed()

    def _set_paused(self, is_paused: bool) -> None:
        if self._loop is None or self.is_paused == is_paused:
            return
        self.is_paused = is_paused
        if is_paused:
            self._loop.pause()
        else:
            self._loop.resume()
        self._journal.load_changed()

    def _cancel(self, ids: tuple[str, ...] | None) -> None:
        for flight_id in tuple(self._under_way) if ids is None else ids:
            if flight := self._under_way.get(flight_id):
                self._sender.cancel(flight)

    # Requests --------------------------------------------------------------------------------------------------------

    def _arrive(self, intended_s: float) -> Flight | None:
        load = self._load
        if load is None:
            return None
        # Drawn for a dropped arrival too, so that the n-th arrival always asks for the same.
        spec = self._sampler.draw(load)
        if not isinstance(load.pattern, ClosedLoop) and self._is_full(load):
            self._dropped += 1
            self._journal.load_changed()
            return None
        tokens, temperature = spec.max_tokens, load.temperature
        flight = Flight(self._next_id(), "load", spec.prompt, tokens, temperature, intended_s, load.stream)
        self._launch(flight)
        return flight

    def _is_full(self, load: RunLoad) -> bool:
        return self._load_under_way >= load.max_outstanding or len(self._under_way) >= self._max_connections

    def _next_id(self) -> str:
        self._sent += 1
        return f"{self._run_id}-{self._sent}"

    def _launch(self, flight: Flight) -> None:
        self._under_way[flight.id] = flight
        self._load_under_way += flight.source == "load"
        self._journal.flight_changed(flight)
        self._sender.start(flight, self)

    # Reports of the sender -------------------------------------------------------------------------------------------

    def sent(self, flight: Flight) -> None:
        if flight.sent_s is not None:
            self._lag.record(flight.sent_s, flight.sent_s - flight.intended_s)
        self._journal.flight_changed(flight)

    def progressed(self, flight: Flight) -> None:
        self._journal.flight_changed(flight)

    def concluded(self, flight: Flight, answer: Answer) -> None:
        if self._under_way.pop(flight.id, None) is None:
            return
        self._load_under_way -= flight.source == "load"
        self._outcomes[answer.outcome] += 1
        flight.outcome, flight.error = answer.outcome, answer.error
        self._answers.note(flight)
        if flight.finished_s is None:
            flight.finished_s = self._clock.now()
        self._journal.flight_changed(flight)
        if isinstance(self._loop, UserLoop):
            self._loop.concluded(flight, answer)
        self._watch_reachability(answer)

    def _watch_reachability(self, answer: Answer) -> None:
        """Stop a load that has found no server for two seconds: it would only pile up failures."""
        if answer.outcome == "cancelled":
            return
        if not answer.is_unreachable:
            self._unreachable_since_s = None
            return
        self._answers = RepeatedAnswers()  # another service may answer next
        now = self._clock.now()
        if self._unreachable_since_s is None:
            self._unreachable_since_s = now
        elif self._load is not None and now - self._unreachable_since_s >= UNREACHABLE_STOPS_AFTER_S:
            self._stop()
            self._journal.refused(f"The load was stopped. {answer.error}")


MOST_PROMPTS = 10_000  # whose answers are compared


class RepeatedAnswers:
    """Compares the greedy answers to prompts that are sent more than once.

    Attributes:
        repeated: answers to prompts that were answered more than once.
        differing: of these, those that are not their prompt's most frequent answer.
    """

    def __init__(self) -> None:
        self.repeated = self.differing = 0
        self._texts: dict[tuple[str, int], Counter[int]] = {}

    def note(self, flight: Flight) -> None:
        if flight.outcome != "ok" or flight.temperature > 0:
            return
        key = flight.prompt, flight.max_tokens
        if key not in self._texts and len(self._texts) == MOST_PROMPTS:
            return
        texts = self._texts.setdefault(key, Counter())
        repeated, differing = _repetition(texts)
        texts[flight.text_checksum] += 1
        repeated_now, differing_now = _repetition(texts)
        self.repeated += repeated_now - repeated
        self.differing += differing_now - differing


def _repetition(texts: Counter[int]) -> tuple[int, int]:
    answers = texts.total()
    return (answers, answers - max(texts.values())) if answers > 1 else (0, 0)


LAG_SPAN_S = 10
LAG_BINS = LogBins(1e-6, 300.0)


class LagWindow:
    """The 99th percentile over the last 10 s, to 5 %; memory and work do not grow with the rate."""

    def __init__(self) -> None:
        self._bins_of_second: defaultdict[int, Counter[int]] = defaultdict(Counter)

    def record(self, at_s: float, lag_s: float) -> None:
        if int(at_s) not in self._bins_of_second:
            self._forget(at_s)
        self._bins_of_second[int(at_s)][LAG_BINS.of(lag_s)] += 1

    def p99_ms(self, now_s: float) -> float | None:
        """The upper edge of the bin that holds the percentile, or ``None`` if nothing was recorded."""
        self._forget(now_s)
        counts = Counter[int]()
        for bins in self._bins_of_second.values():
            counts.update(bins)
        below = math.ceil(counts.total() * 0.99)
        for bin in sorted(counts):
            below -= counts[bin]
            if below <= 0:
                return LAG_BINS.upper_s(bin) * 1e3
        return None

    def _forget(self, now_s: float) -> None:
        for second in [second for second in self._bins_of_second if second <= now_s - LAG_SPAN_S - 1]:
            del self._bins_of_second[second]
