"""The load process as the window runs it: over its real standard input and output."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec
import pytest

from service.commands.load import main
from service.messages.load import (
    Burst,
    Cancel,
    ClientRequest,
    ClientTotals,
    ClosedLoop,
    Fire,
    LoadCommand,
    LoadEvent,
    LoadFrame,
    LoadRefused,
    Pattern,
    PauseLoad,
    Poisson,
    ResumeLoad,
    RunLoad,
    StopLoad,
    Trace,
)
from tests.unit.stub_server import StubServer, answers, token_event

PIPE = asyncio.subprocess.PIPE
LONGEST_LINE = 2**26
ROOT = Path(__file__).parents[2]
decode = msgspec.json.Decoder(LoadEvent).decode


class LoadProcess:
    """A child and what it has told so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.output = process.stdout
        self.frames: list[LoadFrame] = []
        self.refusals: list[str] = []
        self.requests: dict[str, ClientRequest] = {}
        self.texts: dict[str, str] = {}

    def send(self, command: LoadCommand) -> None:
        self.send_bytes(msgspec.json.encode(command) + b"\n")

    def send_bytes(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    async def read_until(self, is_enough: Callable[[], bool]) -> None:
        while not is_enough():
            assert await self._read_event(), "the process ended"

    async def end(self) -> int:
        """Close its standard input, read what it still says, and return its exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        while await self._read_event():
            pass
        return await self.process.wait()

    @property
    def totals(self) -> ClientTotals:
        return self.frames[-1].totals if self.frames else ClientTotals()

    @property
    def pattern(self) -> Pattern | None:
        return self.frames[-1].pattern if self.frames else None

    def outcomes(self) -> list[str | None]:
        return [request.outcome for request in self.requests.values()]

    async def _read_event(self) -> bool:
        assert self.output is not None
        line = await self.output.readline()
        if line:
            self._take(decode(line))
        return bool(line)

    def _take(self, told: LoadEvent) -> None:
        if isinstance(told, LoadRefused):
            self.refusals.append(told.reason)
            return
        self.frames.append(told)
        totals = told.totals
        assert totals.sent == totals.ok + totals.refused + totals.failed + totals.cancelled + totals.outstanding
        for request in told.requests:
            self.requests[request.id] = request
            self.texts[request.id] = self.texts.get(request.id, "") + request.new_text


@asynccontextmanager
async def load_process(*options: str, stdout: int = PIPE) -> AsyncIterator[LoadProcess]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "service", "load", *options), stdin=PIPE, stdout=stdout, cwd=ROOT, limit=LONGEST_LINE
    )
    try:
        yield LoadProcess(process)
    finally:
        if process.returncode is None:
            process.kill()
        assert process.stdin is not None
        process.stdin.close()
        await process.communicate()


@asynccontextmanager
async def pipe_of_its_own(server: StubServer) -> AsyncIterator[tuple[LoadProcess, BinaryIO]]:
    """A process whose output nobody reads unless the test does: asyncio would read its own pipes ahead."""
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as output:
        async with load_process("--control", "--url", server.url, stdout=write_end) as load:
            os.close(write_end)
            yield load, output


async def reader_of(pipe: BinaryIO) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=LONGEST_LINE)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader


@pytest.fixture
async def server() -> AsyncIterator[StubServer]:
    async with StubServer() as server:
        yield server


@pytest.fixture
async def load(server: StubServer) -> AsyncIterator[LoadProcess]:
    async with load_process("--control", "--url", server.url) as load:
        yield load


async def test_that_fired_prompts_are_answered_and_the_end_is_orderly(server: StubServer, load: LoadProcess) -> None:
    load.send(Fire(prompts=("a", "b"), copies=2, max_tokens=3))
    await load.read_until(lambda: load.totals.ok == 4)
    assert await load.end() == 0
    assert load.outcomes() == ["ok"] * 4
    assert {request.tokens for request in load.requests.values()} == {3}
    assert set(load.texts.values()) == {" 1 2 3"}
    assert {headers["X-Request-Id"] for _, headers in server.requests} == load.requests.keys()
    assert server.requests[0][0]["model"] == "stub"


async def test_that_the_first_frame_tells_its_clock_before_any_command(load: LoadProcess) -> None:
    await load.read_until(lambda: bool(load.frames))
    assert load.frames[0].clock
    assert load.frames[0].pattern is None


async def test_that_a_line_it_cannot_obey_is_answered_in_words_and_it_goes_on(load: LoadProcess) -> None:
    load.send_bytes(b'\n  \nnonsense\n{"do": "fire", "prompts": []}\n')
    load.send(Fire(prompts=("a",)))
    await load.read_until(lambda: load.outcomes() == ["ok"])
    assert len(load.refusals) == 2
    assert load.refusals[0].startswith("The load process did not understand a command: ")
    assert load.refusals[1] == "There is no prompt to fire."


async def test_that_a_load_is_paused_and_goes_on(load: LoadProcess) -> None:
    load.send(RunLoad(pattern=ClosedLoop(users=4), prompts=("a",)))
    await load.read_until(lambda: load.totals.ok >= 20)
    load.send(PauseLoad())
    await load.read_until(lambda: load.frames[-1].is_paused and not load.totals.outstanding)
    before = load.totals.sent
    load.send(Fire(prompts=("b",)))
    await load.read_until(lambda: load.totals.sent > before)
    assert (load.totals.sent, load.pattern) == (before + 1, ClosedLoop(users=4))
    load.send(ResumeLoad())
    await load.read_until(lambda: load.totals.ok >= before + 20)
    assert not load.frames[-1].is_paused


async def test_that_a_trace_is_replayed(load: LoadProcess, server: StubServer, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text('{"offset_s": 0.01, "prompt": "a", "max_tokens": 2}\n{"offset_s": 0.02, "prompt_words": 3}\n')
    load.send(RunLoad(pattern=Trace(path=str(path)), prompts=("b",)))
    await load.read_until(lambda: load.totals.ok == 2 and load.pattern is None)
    assert [(body["prompt"], body["max_tokens"]) for body, _ in server.requests] == [("a", 2), ("b b b", 24)]
    load.send(RunLoad(pattern=Trace(path=str(tmp_path)), prompts=("b",)))
    await load.read_until(lambda: bool(load.refusals))
    assert load.refusals == [f"The trace {tmp_path} is not a file."]


async def test_that_a_load_runs_changes_and_stops(load: LoadProcess) -> None:
    load.send(RunLoad(pattern=ClosedLoop(users=4), prompts=("a",)))
    await load.read_until(lambda: load.totals.ok >= 50)
    assert load.pattern == ClosedLoop(users=4)
    load.send(RunLoad(pattern=Poisson(rate_per_s=200), prompts=("a",)))
    await load.read_until(lambda: load.pattern == Poisson(rate_per_s=200))
    after = load.totals.ok + 50
    await load.read_until(lambda: load.totals.ok >= after)
    assert load.frames[-1].lag_p99_ms is not None
    load.send(StopLoad())
    await load.read_until(lambda: load.pattern is None and load.totals.outstanding == 0)
    assert await load.end() == 0
    assert set(load.outcomes()) == {"ok"}
    assert load.totals.ok == len(load.requests)


async def test_that_the_end_of_its_input_breaks_everything_off(server: StubServer, load: LoadProcess) -> None:
    server.behaviour = server.stalls(token_event("so far", 1))
    load.send(RunLoad(pattern=ClosedLoop(users=20), prompts=("a",)))
    await load.read_until(lambda: sum(request.tokens for request in load.requests.values()) == 20)
    assert await load.end() == 0
    assert load.outcomes() == ["cancelled"] * 20
    assert set(load.texts.values()) == {"so far"}


async def test_that_a_signal_ends_it_as_well(server: StubServer, load: LoadProcess) -> None:
    server.behaviour = server.stalls()
    load.send(Fire(prompts=("a",)))
    await server.has_got(1)
    load.process.send_signal(signal.SIGTERM)
    await server.gone.wait()
    assert await load.end() == 0
    assert load.outcomes() == ["cancelled"]


async def test_that_requests_are_cancelled_by_id(server: StubServer, load: LoadProcess) -> None:
    server.behaviour = server.stalls()
    load.send(Fire(prompts=("a", "b", "c")))
    await server.has_got(3)
    await load.read_until(lambda: len(load.requests) == 3)
    chosen = next(iter(load.requests))
    load.send(Cancel(ids=(chosen, "unknown")))
    await load.read_until(lambda: load.requests[chosen].outcome == "cancelled")
    assert load.outcomes() == ["cancelled", None, None]


async def test_that_refusals_are_no_failures(server: StubServer, load: LoadProcess) -> None:
    server.behaviour = answers(503, b'{"error": {"message": "The queue is full."}}')
    load.send(RunLoad(pattern=Burst(count=100), prompts=("a",), max_outstanding=60))
    await load.read_until(lambda: load.totals.refused == 60)
    assert load.totals.dropped == 40
    assert {request.error for request in load.requests.values()} == {"The queue is full."}


async def test_that_a_service_that_dies_is_told_for_each_request_and_ends_the_load(
    server: StubServer, load: LoadProcess
) -> None:
    server.behaviour = server.stalls(token_event("a", 1))
    load.send(RunLoad(pattern=ClosedLoop(users=3), prompts=("a",)))
    await server.has_got(3)
    await server.stop()
    await load.read_until(lambda: bool(load.refusals))
    assert load.refusals == [f"The load was stopped. {server.url} cannot be reached: connection refused."]
    assert await load.end() == 0
    assert load.pattern is None
    assert set(load.outcomes()) == {"failed"}
    assert all(request.error for request in load.requests.values())


async def test_that_a_reader_that_does_not_read_holds_nothing_up(server: StubServer) -> None:
    async with pipe_of_its_own(server) as (load, output):
        load.send(RunLoad(pattern=ClosedLoop(users=64), prompts=("x" * 300,)))
        await server.has_got(1000)  # its reports are by now far more than the pipe takes
        load.send(StopLoad())
        load.output = await reader_of(output)
        await load.read_until(lambda: load.totals.sent >= 1000 and not load.totals.outstanding)
        assert load.outcomes() == ["ok"] * load.totals.sent
        assert await load.end() == 0


async def test_that_the_end_of_its_reader_ends_it(server: StubServer) -> None:
    async with pipe_of_its_own(server) as (load, output):
        output.close()
        assert await load.process.wait() == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--control",), "--url"),
        (("--control", "--url", "ftp://x"), "is not an address such as http://127.0.0.1:8000"),
        (("--control", "--url", "http://x:99999"), "is not an address"),
        (("--control", "--url", "http://x", "--token-file", "/nowhere"), "the token cannot be read from /nowhere"),
    ],
)
def test_that_wrong_options_are_said_in_words(
    options: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:

    with pytest.raises(SystemExit) as end:
        main(list(options))
    assert end.value.code == 2
    assert message in capsys.readouterr().err


async def test_that_the_token_file_is_obeyed(server: StubServer, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    async with load_process("--control", "--url", server.url, "--token-file", str(tmp_path / "token")) as load:
        load.send(Fire(prompts=("a",)))
        await load.read_until(lambda: load.outcomes() == ["ok"])
    assert server.requests[0][1]["Authorization"] == "Bearer secret"
