"""`python -m service record`: writes the telemetry of a running service to a file that can be opened without it."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

from service.analysis.observed.annotations import ClockJumps
from service.analysis.recording.format import ClockJumped, RecordingHeader, ServiceStarted
from service.analysis.recording.writer import RecordingWriter
from service.commands import cli
from service.commands.remote import RemoteService, ServiceUnreachableError
from service.load.process import on_signals
from service.messages.clock import monotonic_clock_id
from service.messages.installation import VERSION
from service.messages.life import Ready
from service.messages.pipes import ExitCode
from service.messages.telemetry import FINAL_STATES, TelemetryEvent, TelemetryFrame


@cli.command
def main(argv: list[str]) -> int:
    """0 when it was recorded, also until Ctrl-C; 2 if it could not be; 130 if it was broken off before it began."""
    options = _parser().parse_args(argv)
    if options.out.exists() and not options.overwrite:
        raise cli.UsageError(f"{options.out} is there already. Choose another name, or replace it with --overwrite.")
    recorder = Recorder(options.out, options.url, options.overwrite)
    try:
        with recorder:
            asyncio.run(record(recorder, options.token, options.seconds))
    finally:
        print(recorder.summary, file=sys.stderr)
    return ExitCode.DONE if recorder.has_begun else ExitCode.INTERRUPTED


async def record(recorder: Recorder, token: str | None, duration_s: float | None) -> None:
    """Let the recorder hear everything until the time is up or the program is asked to end."""
    loop = asyncio.get_running_loop()
    async with RemoteService(recorder.url, token) as remote:
        try:
            async with asyncio.timeout(None) as limit:
                on_signals(lambda: limit.reschedule(loop.time()))
                with suppress(ServiceUnreachableError):  # then the telemetry says what is wrong, or begins anew
                    recorder.ready = await remote.ready()
                async for event in remote.telemetry():
                    if not recorder.has_begun and duration_s is not None:
                        limit.reschedule(loop.time() + duration_s)
                    recorder.take(event, duration_s)
        except TimeoutError:
            recorder.finish(duration_s)


class Recorder:
    """The file and the progress bar, both from the first event on."""

    def __init__(self, path: Path, url: str, overwrite: bool) -> None:
        self.url = url
        self.ready: Ready | None = None  # what the service says of itself
        self._path = path
        self._overwrite = overwrite
        self._writer: RecordingWriter | None = None
        self._jumps = ClockJumps()
        self._bar = cli.ProgressBar(cli.ProgressBar.SECONDS)
        self._requests = 0
        self._began_s = self._last_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._bar.close()
        if self._writer is not None:
            self._writer.close()

    @property
    def has_begun(self) -> bool:
        return self._writer is not None

    @property
    def summary(self) -> str:
        if self._writer is None:
            return "Nothing was recorded."
        lasted_s = self._last_s - self._began_s
        return f"{self._path}: {lasted_s:.1f} s, {self._requests:,} requests, {self._writer.bytes_written:,} bytes"

    def take(self, event: TelemetryEvent, duration_s: float | None) -> None:
        """Record an event that was heard just now."""
        self._last_s = time.monotonic()
        if self._writer is None:
            self._began_s = self._last_s
            self._writer = RecordingWriter(self._path, self._header(event), overwrite=self._overwrite)
            if self.ready is not None:
                self._writer.add(self._last_s, ServiceStarted(ready=self.ready))
        self._writer.add(self._last_s, event)
        if isinstance(event, TelemetryFrame):
            self._requests += sum(record.state in FINAL_STATES for record in event.requests)
            jump = self._jumps.note(time.time() - self._last_s, event.at_s)
            if jump is not None:
                self._writer.add(self._last_s, ClockJumped(jump=jump))
        self._show_progress(duration_s)

    def finish(self, duration_s: float | None) -> None:
        """The time is over, or Ctrl-C was pressed."""
        if self._writer is not None:
            self._last_s = time.monotonic()
            self._show_progress(duration_s)
            self._writer.close(self._last_s)

    def _header(self, event: TelemetryEvent) -> RecordingHeader:
        replica = event.replicas[0] if isinstance(event, TelemetryFrame) and event.replicas else None
        return RecordingHeader(
            at_s=self._began_s,
            clock=monotonic_clock_id(),
            recorded_at=time.time(),
            program_version=VERSION,
            url=self.url,
            model=replica.model if replica else None,
            device=replica.device if replica else None,
            dtype=replica.dtype if replica else None,
        )

    def _show_progress(self, duration_s: float | None) -> None:
        assert self._writer is not None
        remark = f"{self._requests:,} requests, {self._writer.bytes_written:,} bytes"
        self._bar.show(self._last_s - self._began_s, duration_s, "recording", remark)


def _parser() -> argparse.ArgumentParser:
    parser = cli.Parser(
        "record",
        "Record the telemetry of a running service, for the window, explain and export. The recording can be read up "
        "to its last second, however it ends.",
        "--url http://127.0.0.1:8000 --seconds 60 run.bsr",
    )
    cli.add_address_options(parser)
    parser.add_argument("--seconds", type=cli.seconds, help="how long (default: until Ctrl-C)")
    parser.add_argument("--overwrite", action="store_true", help="replace a file that is there already")
    parser.add_argument("out", type=Path, metavar="OUT", help="the file, such as run.bsr")
    return parser
