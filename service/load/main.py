"""`python -m service load --control --url URL`: load commands on standard input, load events on standard output."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from service.clock import monotonic_clock_id
from service.load.client import Client, UnreachableError
from service.load.clock import LoopClock
from service.load.control import MOST_LINE_BYTES, BadCommandError, CommandReader, LineWriter, parse_command
from service.load.generator import MOST_CONNECTIONS, Generator
from service.load.reporter import Reporter
from service.messages import Cancel, StopLoad

STDIN, STDOUT = 0, 1
OTHER_FILES = 64
LAST_WORDS_TIMEOUT_S = 1.0


def main(argv: list[str]) -> int:
    """Run until standard input ends; 0 after an orderly end, 2 if the options are wrong."""
    options = _parse(argv)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="load: %(message)s")
    connections = _allow_connections()
    gc.collect()
    gc.freeze()  # what is loaded by now stays: no need to look through it again and again while requests are timed
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve_commands(options.url, options.token, options.model, connections))
    return 0


async def _serve_commands(url: str, token: str | None, model: str | None, connections: int) -> None:
    loop = asyncio.get_running_loop()
    clock = LoopClock(loop)
    ended = asyncio.Event()
    _on_signals(loop, ended.set)
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


def _on_signals(loop: asyncio.AbstractEventLoop, end: Callable[[], None]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # Windows
            loop.add_signal_handler(number, end)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def _allow_connections() -> int:
    """Raise the limit of open files as far as it goes; the connections that it leaves room for."""
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


class _Options(argparse.Namespace):
    control: bool
    url: str
    token: str | None
    model: str | None


def _parse(argv: list[str]) -> _Options:
    parser = argparse.ArgumentParser(prog="python -m service load", description="Send load to a completion server.")
    parser.add_argument("--control", action="store_true", required=True, help="obey JSON lines on standard input")
    parser.add_argument("--url", type=_url, required=True, help="the server, such as http://127.0.0.1:8000")
    parser.add_argument("--token-file", type=_token, dest="token", help="file that holds the server's bearer token")
    parser.add_argument("--model", help="name of the model to ask for (default: the first one the server lists)")
    return parser.parse_args(argv, namespace=_Options())


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable:
        raise argparse.ArgumentTypeError(f"{text!r} is not an address such as http://127.0.0.1:8000")
    return text.rstrip("/").removesuffix("/v1")


def _token(path: str) -> str:
    try:
        token = Path(path).read_text(encoding="ascii").strip()
    except (OSError, ValueError) as e:
        raise argparse.ArgumentTypeError(f"the token cannot be read from {path}: {e}") from e
    if not token:
        raise argparse.ArgumentTypeError(f"{path} holds no token")
    return token
