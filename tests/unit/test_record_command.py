from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from service.analysis.recording.format import RecordingError
from service.analysis.recording.reader import Entries, open_recording
from service.commands import export, record
from service.commands.remote import ServiceUnreachableError
from service.messages.telemetry import TelemetryEvent, TelemetryFrame
from tests.recorded import entries_of, write_recording
from tests.synthetic_run import SyntheticRun


class Told:
    """A service that tells a run of five seconds at once, and then nothing more."""

    def __init__(self) -> None:
        self.entries = [e for e in entries_of(SyntheticRun(5.0)) if isinstance(e.event, TelemetryFrame)]
        self.ends = asyncio.Event()
        self.token: str | None = None
        self.url = ""

    async def telemetry(self, request: web.Request) -> web.StreamResponse:
        if self.token is not None and request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.Response(status=401)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        if "after" not in request.query:
            for entry in self.entries:
                await response.write(b"data: " + msgspec.json.encode(entry.event) + b"\n\n")
        await self.ends.wait()
        return response


class HeardAll(record.Recorder):
    """Knows when it has heard all that there was to tell."""

    def __init__(self, path: Path, told: Told) -> None:
        super().__init__(path, told.url, overwrite=False)
        self.has_heard_all = asyncio.Event()
        self._last = told.entries[-1].event

    def take(self, event: TelemetryEvent, duration_s: float | None) -> None:
        super().take(event, duration_s)
        if event == self._last:
            self.has_heard_all.set()


@pytest.fixture
async def told() -> AsyncIterator[Told]:
    told = Told()
    app = web.Application()
    app.router.add_get("/telemetry", told.telemetry)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    told.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield told
    told.ends.set()
    await runner.cleanup()


async def test_that_all_that_a_service_tells_is_recorded_with_what_it_is(told: Told, tmp_path: Path) -> None:
    path = tmp_path / "a.bsr"
    with record.Recorder(path, told.url, overwrite=False) as recorder:
        await record.record(recorder, None, 0.5)

    assert [e.event for e in Entries(path)][:-1] == [e.event for e in told.entries]
    recording = open_recording(path)
    assert recording.damage is None
    assert recording.header.url == told.url
    assert (recording.model, recording.header.device, recording.header.dtype) == ("synthetic", "cpu", "bfloat16")
    assert recording.duration_s == pytest.approx(0.5, abs=0.2)


def test_that_a_jump_of_the_clock_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, right, ahead_s = tmp_path / "a.bsr", time.time, 0.0
    monkeypatch.setattr(time, "time", lambda: right() + ahead_s)
    frames = [entry.event for entry in entries_of(SyntheticRun(5.0)) if isinstance(entry.event, TelemetryFrame)]
    with record.Recorder(path, "http://127.0.0.1:8000", overwrite=False) as recorder:
        for number, frame in enumerate(frames):
            ahead_s = -60.0 if number >= 50 else 0.0
            recorder.take(frame, None)
    recording = open_recording(path)
    assert recording.damage is None
    [jump] = recording.history.jumps
    assert (jump.start_s, jump.end_s) == (frames[49].at_s, frames[50].at_s)
    assert jump.by_s == pytest.approx(-60.0, abs=0.1)


async def test_that_ctrl_c_ends_it_in_order(told: Told, tmp_path: Path) -> None:
    path = tmp_path / "a.bsr"
    with HeardAll(path, told) as recorder:
        running = asyncio.create_task(record.record(recorder, None, None))
        await recorder.has_heard_all.wait()
        os.kill(os.getpid(), signal.SIGINT)
        await running

    assert open_recording(path).damage is None
    assert len(list(Entries(path))) == len(told.entries) + 1


async def test_that_an_earlier_recording_is_not_overwritten(told: Told, tmp_path: Path) -> None:
    path = tmp_path / "a.bsr"
    path.write_bytes(b"precious")

    recorder = record.Recorder(path, told.url, overwrite=False)
    with recorder, pytest.raises(RecordingError, match="is there already"):
        await record.record(recorder, None, 0.1)
    assert recorder.summary == "Nothing was recorded."
    assert path.read_bytes() == b"precious"


def test_that_it_says_before_it_asks_how_an_earlier_recording_is_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.bsr"
    path.write_bytes(b"precious")
    assert record.main(["--url", "http://127.0.0.1:9", str(path)]) == 2
    assert "replace it with --overwrite" in capsys.readouterr().err


async def test_that_a_service_that_wants_its_token_says_so(told: Told, tmp_path: Path) -> None:
    told.token = "secret"
    with record.Recorder(tmp_path / "a.bsr", told.url, overwrite=False) as recorder:
        with pytest.raises(ServiceUnreachableError, match=r"refuses that bearer token: .* --token-file"):
            await record.record(recorder, "wrong", 0.1)
        await record.record(recorder, "secret", 0.1)
    assert recorder.has_begun


@pytest.mark.parametrize(("what", "lines"), [("requests", 20), ("batches", 6), ("figures", 5)])
def test_that_a_recording_is_exported_without_a_window(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str, lines: int
) -> None:
    path = write_recording(tmp_path / "a.bsr", entries_of(SyntheticRun(5.0)))
    out = tmp_path / "out.csv"

    assert export.main([str(path), str(out), "--what", what]) == 0

    assert len(out.read_text().splitlines()) == lines + 1
    assert f"{lines} {what}" in capsys.readouterr().out


def test_that_a_damaged_recording_is_exported_as_far_as_it_goes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_recording(tmp_path / "a.bsr", entries_of(SyntheticRun(5.0)))
    path.write_bytes(path.read_bytes()[:-200])

    assert export.main([str(path), str(tmp_path / "out.csv")]) == 0
    assert "breaks off" in capsys.readouterr().err


def test_that_a_foreign_file_is_refused_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,2\n")

    assert export.main([str(path), str(tmp_path / "out.csv")]) == 2
    assert "is not a recording of Batchscope" in capsys.readouterr().err
    assert not (tmp_path / "out.csv").exists()
