"""The load generator as a process, arranged so that the process itself is not what is measured.

`python -m service load --control --url URL` reads load commands on standard input and writes load events on standard
output.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

import msgspec

from service.load.client import Client, UnreachableError
from service.load.control import MOST_LINE_BYTES, BadCommandError, CommandReader, LineWriter, parse_command
from service.load.flight import Flight
from service.load.generator import MOST_CONNECTIONS, Generator
from service.load.loops import Clock
from service.messages.clock import monotonic_clock_id
from service.messages.heap import set_heap_aside
from service.messages.load import Cancel, LoadFrame, LoadRefused, StopLoad

Result = TypeVar("Result")

STDIN: Final = 0
STDOUT: Final = 1
OTHER_FILES: Final = 64
LAST_WORDS_TIMEOUT_S: Final = 1.0
FRAME_INTERVAL_S = 0.05
HEARTBEAT_S = 1.0
MOST_FLIGHTS_A_FRAME = 2_000
MOST_UNREPORTED_FLIGHTS = 20_000
MOST_UNREPORTED_REFUSALS = 100


def run_undisturbed(work: Coroutine[Any, Any, Result]) -> Result:
    """Run `work` in uvloop where it is installed, for requests are timed there.

    Everything loaded by now is excluded from garbage collection, which would otherwise run meanwhile.
    """
    loop_factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with suppress(ImportError):
        from uvloop import new_event_loop as loop_factory
    set_heap_aside()
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(work)


def allow_connections() -> int:
    """Raise the limit of open files as far as possible; returns how many connections it allows."""
    try:
        import resource
    except ImportError:
        return MOST_CONNECTIONS
    wanted = MOST_CONNECTIONS + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else max(1, soft - OTHER_FILES)


def on_signals(end: Callable[[], None]) -> None:
    """Call `end` in the running loop when the program is asked to end."""
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # Windows
            asyncio.get_running_loop().add_signal_handler(number, end)


def obey_lines(url: str, token: str | None, model: str | None) -> None:
    """Send what the commands on standard input say to the server at `url`, until standard input ends."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="load: %(message)s")
    run_undisturbed(_serve_commands(url, token, model, allow_connections()))


async def _serve_commands(url: str, token: str | None, model: str | None, connections: int) -> None:
    clock = Clock()
    ended = asyncio.Event()
    on_signals(ended.set)
    writer = LineWriter(STDOUT, lambda: reporter.on_output_free(), ended.set)
    reporter = Reporter(writer, clock, monotonic_clock_id())
    async with Client(url, token, model) as client:
        with suppress(UnreachableError):  # each request will say so
            await client.learn_model()
        generator = Generator(client, clock, reporter, connections)
        writer.start()
        reporter.watch(generator)
        CommandReader(STDIN, lambda line: _obey_line(line, generator, reporter), ended.set).start()
        await ended.wait()
        generator.obey(StopLoad())
        generator.obey(Cancel())
        await client.idle()
        await _write_last_words(reporter, writer)


def _obey_line(line: bytes | None, generator: Generator, reporter: Reporter) -> None:
    if line is None:
        reporter.refused(f"A command is longer than {MOST_LINE_BYTES // 1024**2} MiB.")
        return
    if not line.strip():
        return
    try:
        generator.obey(parse_command(line))
    except BadCommandError as e:
        reporter.refused(str(e))


async def _write_last_words(reporter: Reporter, writer: LineWriter) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(LAST_WORDS_TIMEOUT_S):
            await writer.wait_until_free()
            reporter.write_now()
            await writer.wait_until_free()


class Reporter:
    """Writes a `LoadFrame` at most every 50 ms with each changed request once, and a heartbeat while a load runs.

    Memory is bounded whatever the reader does. A flight is forgotten once its end is reported. When the output is not
    read, the oldest unreported flights are lost, and the totals stay right.
    """

    def __init__(self, output: LineWriter, clock: Clock, clock_id: str) -> None:
        self._output = output
        self._clock = clock
        self._clock_id = clock_id
        self._generator: Generator | None = None
        self._changed: dict[str, Flight] = {}
        self._refusals: deque[str] = deque(maxlen=MOST_UNREPORTED_REFUSALS)
        self._has_news = False
        self._last_frame_s = float("-inf")
        self._timer: asyncio.Handle | None = None
        self._timer_due_s = float("inf")
        self._encode = msgspec.json.Encoder().encode

    def watch(self, generator: Generator) -> None:
        """Report on `generator` from now on; the first frame goes out at once."""
        self._generator = generator
        self.load_changed()

    def flight_changed(self, flight: Flight) -> None:
        self._changed[flight.id] = flight
        if len(self._changed) > MOST_UNREPORTED_FLIGHTS:
            del self._changed[next(iter(self._changed))]
        self.load_changed()

    def refused(self, reason: str) -> None:
        self._refusals.append(reason)
        self.load_changed()

    def load_changed(self) -> None:
        if not self._has_news:
            self._has_news = True
            self._set_timer(self._last_frame_s + FRAME_INTERVAL_S)

    def on_output_free(self) -> None:
        """The output has taken the last frame."""
        if self._timer is None:
            self._set_next_timer()

    def write_now(self) -> None:
        """Write the news, if the output is free: a slow reader gets fewer frames, not late ones."""
        if self._generator is None or not self._output.is_free:
            return
        refusals = [LoadRefused(reason=reason) for reason in self._refusals]
        self._refusals.clear()
        events = [*refusals, self._frame(self._generator)]
        self._last_frame_s = self._clock.now()
        self._has_news = bool(self._changed)
        self._output.write(b"".join(self._encode(event) + b"\n" for event in events))
        self._set_next_timer()

    def _frame(self, generator: Generator) -> LoadFrame:
        chosen = list(self._changed)[:MOST_FLIGHTS_A_FRAME]
        return LoadFrame(
            at_s=self._clock.now(),
            clock=self._clock_id,
            pattern=generator.pattern,
            totals=generator.totals(),
            lag_p99_ms=generator.lag_p99_ms(),
            is_paused=generator.is_paused,
            requests=tuple([self._changed.pop(flight_id).report() for flight_id in chosen]),
        )

    def _set_next_timer(self) -> None:
        if self._has_news:
            self._set_timer(self._last_frame_s + FRAME_INTERVAL_S)
        elif self._generator is not None and self._generator.is_busy:
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
