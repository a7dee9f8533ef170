"""`python -m service bench`: its options, its order of work, and what is told at the end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, ClassVar, cast

import msgspec
import pytest

from service.analysis.compare.comparison import ServiceFacts
from service.analysis.compare.progress import Progress
from service.commands.bench import command as bench
from service.commands.bench import work as bench_work
from service.commands.bench.other_work import OtherWork
from service.commands.bench.report import BenchPlan, BenchReport, MeasuredOn, Subject, Weights
from service.commands.bench.work import Bench, BenchWork, ThroughHttp, own_service, run_of
from service.commands.bench.worker import WorkerError
from service.commands.cli import Server
from service.commands.runs import MeasuredService, MeasuringError
from service.load.report import LoadReport
from service.messages.load import ClientTotals, ClosedLoop, RunLoad
from service.messages.options import ServiceOptions
from service.messages.settings import Settings
from service.messages.telemetry import BatchRecord, BatchWork
from tests.unit.bench_fakes import WEIGHTS, FakeMeasurer, FakeReference
from tests.unit.test_compare_runs import batch, report

ON = MeasuredOn(model="tiny", device="cpu", dtype="float32")
PLAN = BenchPlan(sizes=(1, 4), tokens=8, rounds=2, run_s=3.0)


class FakeBench(Bench):
    """An engine at 200 tokens/s beside generate at 50."""

    def __init__(self) -> None:
        self.engine, self.generate = FakeMeasurer("engine", 200.0), FakeReference("generate", 50.0)
        measurers: Any = {"engine": self.engine, "generate": self.generate}
        super().__init__(ON, measurers, cast(Any, self.generate), WEIGHTS)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> FakeBench:
    fake = FakeBench()

    async def start(*_: object) -> Bench:
        return fake

    monkeypatch.setattr(bench_work, "started", start)
    return fake


def carried_out(tell: list[Progress] | None = None) -> BenchReport:
    work = BenchWork(PLAN, ("engine",))
    asyncio.run(work.carry_out((tell if tell is not None else []).append))
    result = work.report()
    assert result is not None
    return result


def test_that_each_size_is_warmed_up_and_only_the_rounds_count(started: FakeBench) -> None:
    result = carried_out()

    assert started.engine.asked == [(1, 4, 0.0), (4, 4, 0.0), *[(1, 8, 3.0), (4, 8, 3.0)] * 2]
    assert len(result.runs) == 2 * 2 * 2
    assert {each.rounds for each in result.reached} == {2}


def test_that_the_ratios_to_generate_and_the_floor_are_concluded(started: FakeBench) -> None:
    engine = carried_out().at(4, "engine")

    assert engine is not None
    assert engine.over_generate == pytest.approx(4.0)
    assert engine.over_floor == pytest.approx(4 / 200 / (WEIGHTS.bytes / 3e9))


def test_that_the_best_rates_that_were_measured_set_the_floors(started: FakeBench) -> None:
    rates = carried_out().rates

    assert rates is not None
    assert (started.generate.times_asked, rates.bytes_per_s) == (3, 3e9)  # before each round, and at the end


def test_that_progress_is_told_before_each_run(started: FakeBench) -> None:
    told: list[Progress] = []
    carried_out(told)

    in_rounds = [each for each in told if each.total]
    assert [each.done for each in in_rounds] == list(range(8))
    assert in_rounds[0].doing == "round 1 of 2: engine, batch of 1"
    assert told[0].doing == "warming up: engine, batch of 1"


def test_that_other_programs_at_work_are_named(started: FakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OtherWork, "share", 0.25)

    assert "Other programs used 25 % of the processor meanwhile" in carried_out().notes[0]


def test_that_what_was_measured_before_a_failure_can_be_concluded(
    started: FakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(size: int, tokens: int, run_s: float) -> None:
        if run_s == PLAN.run_s:
            raise WorkerError("It died.")

    monkeypatch.setattr(started.generate, "run", run)
    work = BenchWork(PLAN, ("engine",))

    with pytest.raises(WorkerError, match="It died"):
        asyncio.run(work.carry_out(lambda _: None))

    result = work.report()
    assert result is not None
    assert [each.subject for each in result.reached] == ["engine"]


def test_that_the_table_is_printed_and_the_result_written(
    started: FakeBench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bench.json"

    assert bench.main(["engine", "--quick", "--tokens", "8", "--json", str(path)]) == 0

    result = msgspec.json.decode(path.read_bytes(), type=BenchReport)
    assert (result.plan.rounds, result.plan.sizes, result.plan.tokens) == (1, (1, 16), 8)
    assert "× generate" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--batch-sizes", "1,0"], "from 1 to 256"),
        (["--batch-sizes", "1,,4"], "no sizes"),
        (["--tokens", "0"], "from 1 to"),
        (["everything"], "invalid choice"),
    ],
)
def test_that_an_option_that_will_not_do_is_refused_in_a_sentence(
    capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        bench.main(arguments)

    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["engine", "--url", "http://127.0.0.1:9"], "has no address"),
        (["engine", "--json", "/no/such/folder/x.json"], "/no/such/folder"),
        (["http", "--url", "http://127.0.0.1:9"], "Start it with: python -m service"),
    ],
)
def test_that_what_cannot_be_measured_is_said_in_a_sentence(
    capfd: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    assert bench.main(arguments) == 2
    assert sentence in capfd.readouterr().err


def test_that_neither_ray_nor_torch_is_imported_to_measure_in_workers() -> None:
    check = "import sys, service.commands.bench.command; sys.exit(bool({'ray', 'torch'} & set(sys.modules)))"

    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


class FakeService:
    """Answers a request a second; remembers for how long it was loaded."""

    most_memory_bytes = 7

    def __init__(self) -> None:
        self.loaded: list[tuple[Settings, RunLoad, float]] = []

    async def run(self, settings: Settings, load: RunLoad, duration_s: float) -> tuple[LoadReport, list[BatchRecord]]:
        self.loaded.append((settings, load, duration_s))
        return report(*[("ok", 1.0)] * 20), []


@pytest.mark.parametrize(("subject", "streams"), [("http", True), ("http_whole", False)])
async def test_that_users_keep_the_batch_full_for_as_long_and_some_batches_before_and_after(
    subject: Subject, streams: bool
) -> None:
    service = FakeService()
    through = ThroughHttp(cast(MeasuredService, service), "continuous", subject)

    runs = [await through.run(1, 8, run_s) for run_s in (0.0, 3.0)]

    settings, load, first_s = service.loaded[0]
    assert (settings.formation, settings.max_batch_size) == ("continuous", 1)
    assert (load.pattern, load.stream) == (ClosedLoop(users=2), streams)
    assert first_s < 1.0
    assert service.loaded[1][2] == pytest.approx((1 + 3 + 2) * 1.0)
    assert [run.ran_s for run in runs] == pytest.approx([20.0, 3.0])
    assert [run.tokens_per_s for run in runs] == pytest.approx([8.0, 8.0])


def test_that_steps_and_rows_are_those_the_service_tells_of() -> None:
    work = BatchWork(steps=5, prefill_s=0.4)
    executed = [msgspec.structs.replace(batch(1, 4), started_s=1.0, finished_s=2.0, tokens=20, work=work)]

    run = run_of("http", 4, report(("ok", 2.0)), executed, 7, within_s=(0.0, 2.0))

    assert run.step_s == pytest.approx(0.6 / 4)  # the first of five ended the reading of prompts
    assert (run.rows, run.memory_bytes, run.first_token_s) == (4.0, 7, 1.0)


def test_that_figures_of_unanswered_requests_are_refused() -> None:
    refused = msgspec.structs.replace(report(("ok", 2.0)), totals=ClientTotals(sent=2, ok=1, refused=1))

    with pytest.raises(MeasuringError, match="Not all requests were answered at a batch size of 4"):
        run_of("http", 4, refused, [], 7, within_s=(0.0, 2.0))


def test_that_only_what_comes_within_the_time_counts() -> None:
    answered = report(("ok", 2.0), ("ok", 2.0))  # 8 tokens from 1 to 2 s, and 8 from 2 to 3 s

    run = run_of("http", 1, answered, [], 7, within_s=(1.5, 2.25))

    assert (run.tokens, run.ran_s) == (4 + 2, 0.75)
    with pytest.raises(MeasuringError, match="too slow at a batch size of 1"):
        run_of("http", 1, answered, [], 7, within_s=(0.0, 1.0))


def test_that_answers_in_one_piece_have_no_first_token() -> None:
    requests = [msgspec.structs.replace(each, first_token_s=None) for each in report(("ok", 2.0)).requests]
    whole = msgspec.structs.replace(report(("ok", 2.0)), requests=tuple(requests), time_to_first_token_s=None)

    run = run_of("http_whole", 1, whole, [], 7, within_s=(1.0, 3.0))

    assert (run.first_token_s, run.tokens) == (None, 4.0)  # half of its time, from 0 to 2 s


READY = (
    '{"state": "ready", "url": "http://u", "instance": "i", "model": "m", "device": "cpu", "dtype": "float32", '
    '"context_length": 8, "replicas": 1, "started_in_s": 1.0}'
)


def says(monkeypatch: pytest.MonkeyPatch, line: str, then: str = "sys.stdin.read()") -> None:
    script = f"import sys; print({line!r}, flush=True); {then}"
    monkeypatch.setattr(bench_work, "_command", lambda _: [sys.executable, "-c", script])


async def test_that_a_service_of_its_own_is_told_of_when_it_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    says(monkeypatch, READY)

    async with own_service(ServiceOptions()) as ready:
        assert ready.url == "http://u"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [('{"state": "failed", "reason": "No such model."}', "No such model"), ('{"state": "stopping"}', "ended before")],
)
async def test_that_a_service_that_does_not_start_says_why(
    monkeypatch: pytest.MonkeyPatch, line: str, sentence: str
) -> None:
    says(monkeypatch, line, then="")

    with pytest.raises(MeasuringError, match=sentence):
        async with own_service(ServiceOptions()):
            pass


class ServiceThatIsUp:
    """Entered like a `MeasuredService`; tells what it runs."""

    def __init__(self, url: str, model: str) -> None:
        self._facts = ServiceFacts(url=url, model=model, device="cpu", dtype="float32", replicas=1)

    async def __aenter__(self) -> ServiceThatIsUp:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        pass

    async def facts(self) -> ServiceFacts:
        return self._facts


class NoProcess:
    """A worker that loads no model; remembers for what it was made."""

    made: ClassVar[list[ServiceOptions]] = []

    def __init__(self, _make: object, options: ServiceOptions) -> None:
        self.made.append(options)

    async def __aenter__(self) -> NoProcess:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        pass

    async def ready(self) -> None:
        pass

    async def ask(self, _method: str) -> tuple[MeasuredOn, Weights]:
        return ON, WEIGHTS


async def beside(monkeypatch: pytest.MonkeyPatch, url: str, model: str, *subjects: Subject) -> Bench:
    monkeypatch.setattr(bench_work, "Worker", NoProcess)
    monkeypatch.setattr(NoProcess, "made", [])
    monkeypatch.setattr(MeasuredService, "at", lambda *_: ServiceThatIsUp(url, model))
    async with AsyncExitStack() as stack:
        return await bench_work.started(stack, PLAN, subjects, Server(url), lambda _: None)


async def test_that_what_a_service_is_held_against_computes_as_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = await beside(monkeypatch, "http://127.0.0.1:8000", "tiny", "engine", "http")

    assert list(bench.measurers) == ["engine", "http", "generate"]
    assert {(options.device, options.dtype) for options in NoProcess.made} == {("cpu", "float32")}
    assert bench.on.url == "http://127.0.0.1:8000"


async def test_that_a_service_with_another_model_is_held_against_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MeasuringError, match=r"runs gpt2, and not tiny.*--model"):
        await beside(monkeypatch, "http://127.0.0.1:8000", "gpt2", "http")


async def test_that_of_a_service_elsewhere_only_http_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = await beside(monkeypatch, "http://192.0.2.1:8000", "gpt2", "http")

    assert (list(bench.measurers), NoProcess.made) == (["http"], [])
    assert "another machine" in bench.notes[0]
    with pytest.raises(MeasuringError, match="measure bench http"):
        await beside(monkeypatch, "http://192.0.2.1:8000", "gpt2", "engine", "http")
