"""Writes the frames of a load, throttled at the source."""

from __future__ import annotations

from collections import deque
from typing import Protocol

import msgspec

from service.load.clock import Clock, Timer
from service.load.flight import Flight
from service.messages.load import ClientTotals, LoadFrame, LoadRefused, Pattern

FRAME_INTERVAL_S = 0.05
HEARTBEAT_S = 1.0
MOST_FLIGHTS_A_FRAME = 2_000
MOST_UNREPORTED_FLIGHTS = 20_000
MOST_UNREPORTED_REFUSALS = 100


class Output(Protocol):
    """Where frames go; it takes the next only when it is free, so a slow reader gets fewer frames, not late ones."""

    @property
    def is_free(self) -> bool: ...
    def write(self, lines: bytes) -> None: ...


class State(Protocol):
    """The part of a frame that is not a request."""

    @property
    def pattern(self) -> Pattern | None: ...
    @property
    def is_busy(self) -> bool: ...
    @property
    def is_paused(self) -> bool: ...
    def totals(self) -> ClientTotals: ...
    def lag_p99_ms(self) -> float | None: ...


class Reporter:
    """Writes a `LoadFrame` at most every 50 ms with each changed request once, and a heartbeat while a load runs.

    Memory is bounded whatever the reader does. A flight is forgotten once its end is reported. When the output is not
    read, the oldest unreported flights are lost, and the totals stay right.
    """

    def __init__(self, output: Output, clock: Clock, clock_id: str) -> None:
        self._output = output
        self._clock = clock
        self._clock_id = clock_id
        self._state: State | None = None
        self._changed: dict[str, Flight] = {}
        self._refusals: deque[str] = deque(maxlen=MOST_UNREPORTED_REFUSALS)
        self._has_news = False
        self._last_frame_s = float("-inf")
        self._timer: Timer | None = None
        self._timer_due_s = float("inf")
        self._encode = msgspec.json.Encoder().encode

    def watch(self, state: State) -> None:
        """Report on `state` from now on; the first frame goes out at once."""
        self._state = state
        self.load_changed()

    def flight_changed(self, flight: Flight) -> None:
        self._changed[flight.id] = flight
        if len(self._changed) > MOST_UNREPORTED_FLIGHTS:
            del self._changed[next(iter(self._changed))]
        self._note_news()

    def load_changed(self) -> None:
        self._note_news()

    def refused(self, reason: str) -> None:
        self._refusals.append(reason)
        self._note_news()

    def on_output_free(self) -> None:
        """The output has taken the last frame."""
        if self._state is not None and self._timer is None:
            self._set_next_timer(self._state)

    def write_now(self) -> None:
        """Write the news, if the output is free."""
        if self._state is None or not self._output.is_free:
            return
        refusals = [LoadRefused(reason=reason) for reason in self._refusals]
        self._refusals.clear()
        events = [*refusals, self._frame(self._state)]
        self._last_frame_s = self._clock.now()
        self._has_news = bool(self._changed)
        self._output.write(b"".join(self._encode(event) + b"\n" for event in events))
        self._set_next_timer(self._state)

    def _frame(self, state: State) -> LoadFrame:
        chosen = list(self._changed)[:MOST_FLIGHTS_A_FRAME]
        return LoadFrame(
            at_s=self._clock.now(),
            clock=self._clock_id,
            pattern=state.pattern,
            totals=state.totals(),
            lag_p99_ms=state.lag_p99_ms(),
            is_paused=state.is_paused,
            requests=tuple([self._changed.pop(flight_id).report() for flight_id in chosen]),
        )

    def _note_news(self) -> None:
        if not self._has_news:
            self._has_news = True
            self._set_timer(self._last_frame_s + FRAME_INTERVAL_S)

    def _set_next_timer(self, state: State) -> None:
        if self._has_news:
            self._set_timer(self._last_frame_s + FRAME_INTERVAL_S)
        elif state.is_busy:
            self._set_timer(self._last_frame_s + HEARTBEAT_S)

    def _set_timer(self, due_s: float) -> None:
        if self._timer is not None:
            if self._timer_due_s <= due_s:
                return
            self._timer.cancel()
        self._timer_due_s = due_s
        self._timer = self._clock.call_at(due_s, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        self._timer_due_s = float("inf")
        self.write_now()
