"""Records a real run: a load of our generator on a service, with the telemetry and what the generator saw."""

from __future__ import annotations

import asyncio
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import msgspec

from service.analysis.recording.format import RecordingHeader
from service.analysis.recording.writer import RecordingWriter
from service.commands.remote import RemoteService, ServiceWatch
from service.messages.clock import monotonic_clock_id
from service.messages.installation import VERSION
from service.messages.life import Ready
from service.messages.load import Cancel, LoadCommand, LoadEvent, LoadFrame, StopLoad

MOST_LINE_BYTES = 16 * 2**20
Change = tuple[float, dict[str, Any] | LoadCommand]  # so many seconds after the beginning: settings, or a command


async def record_run(ready: Ready, path: Path, changes: Sequence[Change], seconds: float) -> None:
    """Start with an idle service, do what `changes` say, record for `seconds`, and leave the service idle."""
    async with RemoteService(ready.url) as remote, _load_process(ready.url) as load:
        await _settle(remote)
        with closing(RecordingWriter(path, _header(ready), overwrite=True)) as writer:
            listening = [
                asyncio.create_task(_record_telemetry(remote, writer)),
                asyncio.create_task(_record_load(load, writer)),
            ]
            begin_s = time.monotonic()
            for at_s, change in sorted(changes, key=lambda change: change[0]):
                await asyncio.sleep(begin_s + at_s - time.monotonic())
                if isinstance(change, dict):
                    await remote.change(change)
                else:
                    _command(load, change)
            await asyncio.sleep(begin_s + seconds - time.monotonic())
            for task in listening:
                task.cancel()
            await asyncio.gather(*listening, return_exceptions=True)
        _command(load, StopLoad())
        _command(load, Cancel())


async def _settle(remote: RemoteService) -> None:
    async with ServiceWatch(remote) as watch:
        await watch.until_idle()


async def _record_telemetry(remote: RemoteService, writer: RecordingWriter) -> None:
    async for event in remote.telemetry():
        writer.add(time.monotonic(), event)


async def _record_load(load: Process, writer: RecordingWriter) -> None:
    assert load.stdout is not None
    async for line in load.stdout:
        event = msgspec.json.decode(line, type=LoadEvent)
        if isinstance(event, LoadFrame):
            writer.add(time.monotonic(), event)


@asynccontextmanager
async def _load_process(url: str) -> AsyncIterator[Process]:
    command = ("-m", "service", "load", "--control", "--url", url)
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdin=PIPE, stdout=PIPE, limit=MOST_LINE_BYTES
    )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()  # at which it ends
        await process.communicate()


def _command(load: Process, command: LoadCommand) -> None:
    assert load.stdin is not None
    load.stdin.write(msgspec.json.encode(command) + b"\n")


def _header(ready: Ready) -> RecordingHeader:
    return RecordingHeader(
        at_s=time.monotonic(),
        clock=monotonic_clock_id(),
        recorded_at=time.time(),
        program_version=VERSION,
        url=ready.url,
        model=ready.model,
        device=ready.device,
        dtype=ready.dtype,
    )
