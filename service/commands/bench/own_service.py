"""`python -m service` as a child, for as long as something is measured on it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import msgspec

from service.messages.life import Failed, Ready, ServiceState, StageProgress
from service.messages.options import ServiceOptions


class NotStartedError(Exception):
    """The service did not start; the text is a sentence that says why."""


@asynccontextmanager
async def own_service(
    options: ServiceOptions, on_stage: Callable[[StageProgress], None] = lambda _: None
) -> AsyncIterator[Ready]:
    """That service on a free port. It ends with the block, and with this process: then its standard input ends."""
    pipe, nowhere = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*_command(options), stdin=pipe, stdout=pipe, stderr=nowhere)
    try:
        yield await _ready(process, on_stage)
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.communicate()


def _command(options: ServiceOptions) -> list[str]:
    place = ["--port", "0", "--model", options.model, "--device", options.device, "--dtype", options.dtype]
    return [sys.executable, "-m", "service", *place, "--formation", options.settings.formation]


async def _ready(process: asyncio.subprocess.Process, on_stage: Callable[[StageProgress], None]) -> Ready:
    assert process.stdout is not None
    async for line in process.stdout:
        match msgspec.json.decode(line, type=ServiceState):
            case Ready() as ready:
                return ready
            case Failed(reason=reason):
                raise NotStartedError(reason)
            case StageProgress() as stage:
                on_stage(stage)
    raise NotStartedError("The service ended before it was ready. Start it alone to see why: python -m service")
