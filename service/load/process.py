"""The load generator as a process, arranged so that the process itself is not what is measured.

`python -m service load --control --url URL` reads load commands on standard input and writes load events on standard
output.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from service.load.client import Client, UnreachableError
from service.load.clock import LoopClock
from service.load.control import MOST_LINE_BYTES, BadCommandError, CommandReader, LineWriter, parse_command
from service.load.generator import MOST_CONNECTIONS, Generator
from service.load.reporter import Reporter
from service.messages.clock import monotonic_clock_id
from service.messages.load import Cancel, StopLoad

STDIN: Final = 0
STDOUT: Final = 1
OTHER_FILES: Final = 64
LAST_WORDS_TIMEOUT_S: Final = 1.0


def fastest_loop() -> Callable[[], asyncio.AbstractEventLoop]:
    """Returns the factory of event loops: uvloop's where uvloop is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def spare_collector() -> None:
    """Exclude everything loaded by now from garbage collection, which would otherwise run while requests are timed."""
    gc.collect()
    gc.freeze()


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


def on_signals(loop: asyncio.AbstractEventLoop, end: Callable[[], None]) -> None:
    """Call `end` in the loop when the program is asked to end."""
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # Windows
            loop.add_signal_handler(number, end)


def obey_lines(url: str, token: str | None, model: str | None) -> None:
    """Send what the commands on standard input say to the server at `url`, until standard input ends."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="load: %(message)s")
    connections = allow_connections()
    spare_collector()
    with asyncio.Runner(loop_factory=fastest_loop()) as runner:
        runner.run(_serve_commands(url, token, model, connections))


async def _serve_commands(url: str, token: str | None, model: str | None, connections: int) -> None:
    loop = asyncio.get_running_loop()
    clock = LoopClock(loop)
    ended = asyncio.Event()
    on_signals(loop, ended.set)
    writer = LineWriter(STDOUT, loop, lambda: reporter.on_output_free(), ended.set)
    reporter = Reporter(writer, clock, monotonic_clock_id())
    async with Client(url, token, model) as client:
        with suppress(UnreachableError):  # each request will say so
            await client.learn_model()
        generator = Generator(client, clock, reporter, connections)

        def on_line(line: bytes | None) -> None:
            _obey_line(line, generator, reporter)

        writer.start()
        reporter.watch(generator)
        CommandReader(STDIN, loop, on_line, ended.set).start()
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
