"""The load: carries out commands, launches requests, keeps the ledger.

This module knows neither HTTP nor an event loop. Requests leave through a `Sender`, time comes from a `Clock`, and a
`Journal` receives every change. All calls come from one thread.
"""

from __future__ import annotations

import secrets
from typing import Literal, Protocol

from service.load.clock import Clock
from service.load.flight import Answer, Flight, Sender
from service.load.lag import LagWindow
from service.load.loop_factory import CannotRunError, Plan, make_loop, plan
from service.load.loops import Loop
from service.load.request_sampler import RequestSampler
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
)

UNREACHABLE_STOPS_AFTER_S = 2.0
MOST_CONNECTIONS = 20_000  # the range of ports that a client may use towards one server is hardly larger

NO_LOAD = RunLoad(pattern=ClosedLoop(users=1), prompts=())


class Journal(Protocol):
    """Is called with everything that changes."""

    def flight_changed(self, flight: Flight) -> None: ...
    def load_changed(self) -> None: ...
    def refused(self, reason: str) -> None: ...


class Generator:
    """Carries out load commands; at most one load runs at a time, and fired prompts run beside it."""

    def __init__(self, sender: Sender, clock: Clock, journal: Journal, max_connections: int = MOST_CONNECTIONS) -> None:
        self._sender = sender
        self._clock = clock
        self._journal = journal
        self._max_connections = min(max_connections, MOST_CONNECTIONS)
        self._run_id = secrets.token_hex(4)
        self._under_way: dict[str, Flight] = {}
        self._load_under_way = 0
        self._sent = 0
        self._dropped = 0
        self._outcomes: dict[ClientOutcome, int] = {"ok": 0, "refused": 0, "failed": 0, "cancelled": 0}
        self._lag = LagWindow()
        self._plan: Plan | None = None
        self._loop: Loop | None = None
        self._is_paused = False
        self._sampler = RequestSampler(NO_LOAD)
        self._unreachable_since_s: float | None = None

    # What stands -----------------------------------------------------------------------------------------------------

    @property
    def pattern(self) -> Pattern | None:
        return None if self._plan is None else self._plan.load.pattern

    @property
    def is_paused(self) -> bool:
        return self._is_paused

    @property
    def is_busy(self) -> bool:
        """A load runs or a request is under way."""
        return self._plan is not None or bool(self._under_way)

    def totals(self) -> ClientTotals:
        return ClientTotals(sent=self._sent, dropped=self._dropped, outstanding=len(self._under_way), **self._outcomes)

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
                self._pause()
            case ResumeLoad():
                self._resume()
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
                self._launch("fire", prompt, fire.max_tokens, fire.temperature, now)

    def _run(self, load: RunLoad) -> None:
        before = self._plan
        try:
            self._plan = plan(load, before, self._max_connections)
        except CannotRunError as e:
            self._journal.refused(str(e))
            return
        if not (before is not None and self._goes_on(before.load, load)):
            self._start_loop(self._plan)
        self._journal.load_changed()

    def _goes_on(self, before: RunLoad, load: RunLoad) -> bool:
        """Whether the loop that runs could take the change; open loops begin anew with another seed."""
        if self._loop is None or (before.seed != load.seed and not isinstance(load.pattern, ClosedLoop)):
            return False
        self._sampler = self._sampler.revised(before, load)
        return self._loop.change(load.pattern)

    def _start_loop(self, planned: Plan) -> None:
        if self._loop is not None:
            self._loop.stop()
        self._unreachable_since_s = None
        self._sampler = RequestSampler(planned.load, planned.trace)
        self._loop = make_loop(planned, self._clock, self._arrive, self._stop)
        if self._is_paused:
            self._loop.pause()
        self._loop.start()

    def _stop(self) -> None:
        if self._loop is not None:
            self._loop.stop()
        self._plan = self._loop = None
        self._is_paused = False
        self._journal.load_changed()

    def _pause(self) -> None:
        if self._loop is not None and not self._is_paused:
            self._is_paused = True
            self._loop.pause()
            self._journal.load_changed()

    def _resume(self) -> None:
        if self._loop is not None and self._is_paused:
            self._is_paused = False
            self._loop.resume()
            self._journal.load_changed()

    def _cancel(self, ids: tuple[str, ...] | None) -> None:
        chosen = tuple(self._under_way) if ids is None else ids
        for flight_id in chosen:
            flight = self._under_way.get(flight_id)
            if flight is not None:
                self._sender.cancel(flight)

    # Requests --------------------------------------------------------------------------------------------------------

    def _arrive(self, intended_s: float) -> Flight | None:
        if self._plan is None:
            return None
        load = self._plan.load
        # Drawn for a dropped arrival too, so that the n-th arrival always asks for the same.
        spec = self._sampler.draw(load)
        if not isinstance(load.pattern, ClosedLoop) and self._is_full(load):
            self._dropped += 1
            self._journal.load_changed()
            return None
        return self._launch("load", spec.prompt, spec.max_tokens, load.temperature, intended_s, load.stream)

    def _is_full(self, load: RunLoad) -> bool:
        return self._load_under_way >= load.max_outstanding or len(self._under_way) >= self._max_connections

    def _launch(
        self,
        source: Literal["fire", "load"],
        prompt: str,
        max_tokens: int,
        temperature: float,
        intended_s: float,
        streams: bool = True,
    ) -> Flight:
        self._sent += 1
        flight = Flight(
            id=f"{self._run_id}-{self._sent}",
            source=source,
            prompt=prompt,
            max_tokens=max_tokens,
            temperature=temperature,
            intended_s=intended_s,
            streams=streams,
        )
        self._under_way[flight.id] = flight
        self._load_under_way += source == "load"
        self._journal.flight_changed(flight)
        self._sender.start(flight, self)
        return flight

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
        if flight.finished_s is None:
            flight.finished_s = self._clock.now()
        self._journal.flight_changed(flight)
        if self._loop is not None:
            self._loop.concluded(flight, answer)
        self._watch_reachability(answer)

    def _watch_reachability(self, answer: Answer) -> None:
        """Stop a load that has found no server for two seconds: it would only pile up failures."""
        if answer.outcome == "cancelled":
            return
        if not answer.is_unreachable:
            self._unreachable_since_s = None
            return
        now = self._clock.now()
        if self._unreachable_since_s is None:
            self._unreachable_since_s = now
        elif self._plan is not None and now - self._unreachable_since_s >= UNREACHABLE_STOPS_AFTER_S:
            self._stop()
            self._journal.refused(f"The load was stopped. {answer.error}")
