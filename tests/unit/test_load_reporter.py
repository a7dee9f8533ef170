"""Reports are throttled at the source and bounded in memory."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest

from service.load.flight import SHOWN_PROMPT_CHARS, Flight
from service.load.process import MOST_FLIGHTS_A_FRAME, MOST_UNREPORTED_FLIGHTS, Reporter
from service.messages.load import ClientRequest, ClientTotals, LoadEvent, LoadFrame, LoadRefused, Pattern, Poisson
from tests.unit.load_fakes import FakeClock, FakeOutput

decode = msgspec.json.Decoder(LoadEvent).decode


class FakeState:
    def __init__(self) -> None:
        self.pattern: Pattern | None = None
        self.is_busy = False
        self.is_paused = False
        self.sent = 0

    def totals(self) -> ClientTotals:
        return ClientTotals(sent=self.sent)

    def lag_p99_ms(self) -> float | None:
        return 1.5


class Bench:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.output = FakeOutput()
        self.state = FakeState()
        self.reporter = Reporter(self.output, self.clock, "boot-1")
        self.reporter.watch(self.state)
        self.clock.advance(0)

    def frames(self) -> list[LoadFrame]:
        return [event for event in self.output.events(decode) if isinstance(event, LoadFrame)]

    def requests(self) -> list[ClientRequest]:
        return [request for frame in self.frames() for request in frame.requests]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def flight(number: int = 1, prompt: str = "hello") -> Flight:
    return Flight(id=f"f-{number}", source="load", prompt=prompt, max_tokens=24, temperature=0.0, intended_s=1.0)


def test_that_the_first_frame_tells_the_clock_and_that_nothing_runs(bench: Bench) -> None:
    assert bench.frames() == [
        LoadFrame(at_s=100.0, clock="boot-1", pattern=None, totals=ClientTotals(), lag_p99_ms=1.5),
    ]


def test_that_nothing_is_said_while_nothing_happens(bench: Bench) -> None:
    bench.clock.advance(60)
    assert len(bench.frames()) == 1


def test_that_a_frame_holds_each_changed_request_once_with_the_text_since_the_last(bench: Bench) -> None:
    one = flight()
    bench.clock.advance(1)
    for text in ("a", "b", "c"):
        one.add_text(text)
        bench.reporter.flight_changed(one)
        bench.clock.advance(0.01)
    one.add_text("d")
    bench.reporter.flight_changed(one)
    bench.clock.advance(0.05)
    one.outcome = "ok"
    bench.reporter.flight_changed(one)
    bench.clock.advance(1)
    assert [(r.new_text, r.outcome) for r in bench.requests()] == [("a", None), ("bcd", None), ("", "ok")]


def test_that_a_thousand_changes_a_second_make_twenty_frames_a_second(bench: Bench) -> None:
    bench.clock.advance(1)
    for number in range(3000):
        bench.reporter.flight_changed(flight(number % 100))
        bench.clock.advance(0.001)
    times_s = [frame.at_s for frame in bench.frames()[1:]]
    assert 58 <= len(times_s) <= 61
    assert min(b - a for a, b in pairwise(times_s)) >= 0.05 - 1e-9


def test_that_a_running_load_has_a_heartbeat(bench: Bench) -> None:
    bench.state.pattern, bench.state.is_busy = Poisson(rate_per_s=0.001), True
    bench.reporter.load_changed()
    bench.clock.advance(10.5)
    assert len(bench.frames()) == 12
    assert bench.frames()[-1].pattern == Poisson(rate_per_s=0.001)


def test_that_the_heartbeat_survives_a_slow_reader(bench: Bench) -> None:
    bench.state.is_busy = True
    bench.reporter.load_changed()
    bench.clock.advance(0.5)
    bench.output.is_free = False
    bench.clock.advance(5)
    bench.output.is_free = True
    bench.reporter.on_output_free()
    before = len(bench.frames())
    bench.clock.advance(2.5)
    assert len(bench.frames()) - before == 3


def test_that_a_refusal_is_an_event_of_its_own(bench: Bench) -> None:
    bench.reporter.refused("No.")
    bench.clock.advance(1)
    assert LoadRefused(reason="No.") in bench.output.events(decode)


def test_that_a_large_change_is_spread_over_frames(bench: Bench) -> None:
    for number in range(MOST_FLIGHTS_A_FRAME + 10):
        bench.reporter.flight_changed(flight(number))
    bench.clock.advance(1)
    assert [len(frame.requests) for frame in bench.frames()] == [0, MOST_FLIGHTS_A_FRAME, 10]


def test_that_a_slow_reader_gets_fewer_frames_and_no_less_text(bench: Bench) -> None:
    one = flight()
    bench.output.is_free = False
    for _ in range(100):
        one.add_text("x")
        bench.reporter.flight_changed(one)
        bench.clock.advance(0.1)
    assert len(bench.frames()) == 1
    bench.output.is_free = True
    bench.reporter.on_output_free()
    bench.clock.advance(0.1)
    assert [request.new_text for request in bench.requests()] == ["x" * 100]


def test_that_memory_is_bounded_though_nobody_reads(bench: Bench) -> None:
    bench.output.is_free = False
    for number in range(MOST_UNREPORTED_FLIGHTS + 500):
        bench.reporter.flight_changed(flight(number))
        bench.reporter.refused("No.")
    bench.state.sent = MOST_UNREPORTED_FLIGHTS + 500
    bench.clock.advance(1)
    bench.output.is_free = True
    bench.reporter.on_output_free()
    bench.clock.advance(5)
    assert len(bench.requests()) == MOST_UNREPORTED_FLIGHTS
    assert bench.frames()[-1].totals.sent == MOST_UNREPORTED_FLIGHTS + 500
    assert sum(isinstance(event, LoadRefused) for event in bench.output.events(decode)) == 100


def test_that_a_long_prompt_is_cut_in_reports(bench: Bench) -> None:
    bench.reporter.flight_changed(flight(prompt="é" * 100_000))
    bench.clock.advance(1)
    assert bench.requests()[0].prompt == "é" * SHOWN_PROMPT_CHARS + "…"
