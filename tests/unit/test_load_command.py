"""`python -m service load` as its user meets it: options in, a table, a report and an exit code out."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from service.commands.cli import Parser
from service.commands.load import main, table
from service.commands.load_options import add_load_options, load_of
from service.load.report import LoadReport
from service.messages.load import (
    USUAL_PROMPTS,
    Burst,
    ClosedLoop,
    ConstantRate,
    GammaArrivals,
    LognormalLength,
    OnOff,
    Pattern,
    Poisson,
    Ramp,
    RunLoad,
    Steps,
    Trace,
    UniformLength,
)
from service.messages.objectives import Objectives
from service.workloads.adder import Adder
from tests.unit.stub_server import StubServer

UNUSED = ("--url", "http://127.0.0.1:9")


class Ended(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
async def server() -> AsyncIterator[StubServer]:
    async with StubServer() as server:
        yield server


async def start(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "service", "load", *arguments, stdout=-1, stderr=-1, stdin=asyncio.subprocess.DEVNULL
    )


async def end(process: asyncio.subprocess.Process) -> Ended:
    out, err = await process.communicate()
    assert process.returncode is not None
    return Ended(process.returncode, out.decode(), err.decode())


def read(path: Path) -> LoadReport:
    return msgspec.json.decode(path.read_bytes(), type=LoadReport)


class TestRun:
    async def test_that_nothing_is_sent_to_a_server_that_refuses_the_token(self, server: StubServer) -> None:
        server.token = "its-own"
        ended = await end(await start("--url", server.url, "--duration", "0.3"))
        assert (ended.code, ended.out, server.requests) == (2, "", [])
        assert "refuses: That token is another's. Name a file that holds it with --token-file." in ended.err

    async def test_that_a_run_ends_with_a_bar_a_table_and_a_report(self, server: StubServer, tmp_path: Path) -> None:
        path = tmp_path / "report.json"
        arguments = ["--pattern", "poisson", "--rate", "100", "--duration", "0.3", "--tokens", "3-5", "--seed", "7"]
        ended = await end(await start("--url", server.url, *arguments, "--json", str(path)))
        assert ended.code == 0, ended.err
        report = read(path)
        assert (report.pattern, report.seed, report.model) == (Poisson(rate_per_s=100), 7, "stub")
        assert report.totals.ok == len(report.requests) == len(server.requests) > 10
        assert {request.tokens for request in report.requests} == {3, 4, 5}
        assert ended.out.rstrip("\n") == table(report)
        assert f"{report.totals.sent} sent" in ended.err

    async def test_that_times_between_tokens_and_goodput_are_reported(self, server: StubServer, tmp_path: Path) -> None:
        path = tmp_path / "report.json"
        wanted = ("--objective", "latency=30", "ttft=20", "--objective", "tpot=5")
        load = ("--pattern", "burst", "--count", "20", "--tokens", "4")
        ended = await end(await start("--url", server.url, *load, *wanted, "--json", str(path)))
        assert ended.code == 0, ended.err
        report = read(path)
        assert (report.good_share, report.goodput_per_s) == (1.0, report.requests_per_s)
        assert report.objectives == Objectives(latency_s=30, ttft_s=20, tpot_s=5)
        assert report.inter_token_latency_s is not None
        assert all(request.gaps is not None and request.gaps.count == 3 for request in report.requests)
        assert "100 % met latency ≤ 30 s, ttft ≤ 20 s, tpot ≤ 5 s; 95 % are to: met" in ended.out
        for line in ("TTFT (s) ", "TPOT (ms) ", "ITL (ms) ", "longest stall "):
            assert f"\n{line}" in ended.out

    async def test_that_the_same_seed_sends_the_same(self, server: StubServer, tmp_path: Path) -> None:
        bodies = []
        for rate in ("50", "500"):
            server.requests.clear()
            arguments = ("--rate", rate, "--duration", "0.5", "--tokens", "1-100", "--prompt-words", "2-9")
            ended = await end(await start("--url", server.url, *arguments))
            assert ended.code == 0, ended.err
            sent = sorted(server.requests, key=lambda request: int(request[1]["X-Request-Id"].split("-")[1]))
            bodies.append([(body["prompt"], body["max_tokens"]) for body, _ in sent])
        shared = min(len(sent) for sent in bodies)
        assert shared > 10
        assert bodies[0][:shared] == bodies[1][:shared]

    async def test_that_a_function_is_asked_its_examples_and_told_of_in_its_unit(
        self, server: StubServer, tmp_path: Path
    ) -> None:
        server.workload = Adder.about()
        path = tmp_path / "report.json"
        burst = ("--url", server.url, "--pattern", "burst", "--count", "20", "--duration", "1")
        ended = await end(await start(*burst, "--json", str(path)))
        assert ended.code == 0, ended.err
        assert {body["prompt"] for body, _ in server.requests} <= set(Adder.examples)
        assert read(path).unit == "numbers"
        assert "numbers/s" in ended.out
        assert "token" not in ended.out
        server.requests.clear()
        await end(await start(*burst, "--prompt", "17"))
        assert {body["prompt"] for body, _ in server.requests} == {"17"}

    async def test_that_an_interrupted_run_still_reports(self, server: StubServer, tmp_path: Path) -> None:
        path = tmp_path / "report.json"
        process = await start("--url", server.url, "--pattern", "closed", "--duration", "600", "--json", str(path))
        await server.has_got(20)
        process.send_signal(signal.SIGINT)
        ended = await end(process)
        assert ended.code == 130, ended.err
        assert read(path).totals.ok > 0
        assert "answered" in ended.out

    async def test_that_a_trace_runs_to_its_end(self, server: StubServer, tmp_path: Path) -> None:
        trace = tmp_path / "trace.jsonl"
        trace.write_text('{"offset_s": 0, "prompt": "a"}\n{"offset_s": 20, "prompt": "b", "max_tokens": 2}\n')
        arguments = ("--pattern", "trace", "--trace", str(trace), "--time-scale", "0.01")
        ended = await end(await start("--url", server.url, *arguments))
        assert ended.code == 0, ended.err
        assert [(body["prompt"], body["max_tokens"]) for body, _ in server.requests] == [("a", 24), ("b", 2)]


class TestWhatCannotBe:
    def test_that_a_server_that_is_not_there_is_said_in_one_sentence(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main([*UNUSED, "--duration", "1"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("http://127.0.0.1:9 cannot be reached: ")

    @pytest.mark.parametrize(
        ("options", "sentence"),
        [
            ((), "--url"),
            (("--url", "ftp://x"), "is not an address such as http://127.0.0.1:8000"),
            ((*UNUSED, "--rate", "fast"), "'fast' is not a number from 0.001 to 10000"),
            ((*UNUSED, "--rate", "nan"), "'nan' is not a number from 0.001 to 10000"),
            ((*UNUSED, "--rate", "0"), "'0' is not a number from 0.001 to 10000"),
            ((*UNUSED, "--users", "1.5", "--pattern", "closed"), "is not a whole number from 1 to 4096"),
            ((*UNUSED, "--users", "4"), "--users does not belong to the pattern poisson, which has --rate"),
            ((*UNUSED, "--pattern", "wave"), "invalid choice: 'wave'"),
            ((*UNUSED, "--pattern", "trace"), "The pattern trace needs --trace"),
            ((*UNUSED, "--pattern", "trace", "--trace", "/nowhere"), "The trace /nowhere cannot be read"),
            ((*UNUSED, "--pattern", "steps", "--rates", "2,,4"), "'' is not a number"),
            ((*UNUSED, "--tokens", "9-3"), "'9-3' is no length: its low end is above its high end"),
            ((*UNUSED, "--prompts-file", "/nowhere"), "the prompts cannot be read from /nowhere"),
            ((*UNUSED, "--json", "/nowhere/report.json"), "There is no folder /nowhere"),
            ((*UNUSED, "--objective", "p42=1"), "p42=1: Must be name=seconds"),
            ((*UNUSED, "--objective", "ttft=1", "--no-stream"), "Without a stream only the latency is known"),
            ((*UNUSED, "--duration", "-1"), "is not a number from 0.1"),
        ],
    )
    def test_that_bad_options_are_said_in_one_sentence(
        self, options: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert exit_code(*options) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert sentence in line


def exit_code(*options: str) -> object:
    try:
        return main(list(options))
    except SystemExit as ended:
        return ended.code


def load(*arguments: str) -> RunLoad:
    parser = Parser("load", "")
    add_load_options(parser)
    return load_of(parser.parse_args(arguments))


class TestOptions:
    @pytest.mark.parametrize(
        ("arguments", "pattern"),
        [
            ("", Poisson(rate_per_s=4)),
            ("--pattern burst --count 9", Burst(count=9)),
            ("--pattern closed --users 3 --think-s 1.5", ClosedLoop(users=3, think_s=1.5)),
            ("--pattern closed --think-s 1 --think exponential", ClosedLoop(users=16, think_s=1, think="exponential")),
            ("--pattern constant --rate 2.5", ConstantRate(rate_per_s=2.5)),
            ("--pattern gamma --shape 0.25", GammaArrivals(rate_per_s=4, shape=0.25)),
            ("--pattern on-off --rate 8 --on-s 2 --off-s 3", OnOff(rate_per_s=8, on_s=2, off_s=3)),
            ("--pattern ramp --rate 1 --rate-to 9 --over-s 60", Ramp(rate_per_s=1, rate_to_per_s=9, over_s=60)),
            ("--pattern steps --rates 2,4,8 --step-s 10", Steps(rates_per_s=(2, 4, 8), step_s=10)),
            ("--pattern trace --trace day.jsonl", Trace(path="day.jsonl")),
        ],
    )
    def test_that_every_pattern_can_be_asked_for(self, arguments: str, pattern: Pattern) -> None:
        assert load(*arguments.split()).pattern == pattern

    def test_that_prompts_and_lengths_are_taken(self, tmp_path: Path) -> None:
        (tmp_path / "prompts").write_text("three\n\nfour\n")
        wanted = load(
            "--prompt", "one", "--prompt", "two", "--prompts-file", str(tmp_path / "prompts"),
            "--tokens", "lognormal(32,0.6,256)", "--prompt-words", "8-16", "--temperature", "0.5", "--seed", "3",
        )  # fmt: skip
        assert wanted.prompts == ("one", "two", "three", "four")
        assert wanted.max_tokens == LognormalLength(median=32, sigma=0.6, cap=256)
        assert wanted.prompt_words == UniformLength(low=8, high=16)
        assert (wanted.temperature, wanted.seed) == (0.5, 3)

    def test_that_there_are_prompts_where_none_is_given(self) -> None:
        assert load().prompts == USUAL_PROMPTS
