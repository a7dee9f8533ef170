"""`compare` and `sweep` from the command line, on a scripted service that answers over HTTP like the real one."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from service.analysis.compare.comparison import Comparison
from service.analysis.compare.progress import Compared, CompareEvent, Progress, SweepTask
from service.analysis.compare.run_plan import ComparePlan, Side, SweepPlan
from service.analysis.compare.sweep import Sweep
from service.analysis.predict.observation import Observation
from service.commands import compare, deploy_config, goal, sweep
from service.commands.cli import Server
from service.commands.goal import GoalReport
from service.commands.remote import RemoteService
from service.commands.runs import MeasuredService, put_in_force
from service.commands.watching import Watched
from service.load.report import LoadReport
from service.messages.load import ClosedLoop, Poisson, RunLoad
from service.messages.settings import Settings
from service.messages.telemetry import BatchRecord
from tests.synthetic_run import Step, SyntheticRun, filled_history

SERVICE = ("-m", "tests.window.scripted_service", "--gather-s", "0.001", "--max-batch-size", "3")
LOAD = ["--pattern", "closed", "--users", "8", "--tokens", "4", "--warm-up", "0", "--duration", "0.3"]
EVENTS = msgspec.json.Decoder(CompareEvent)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    command = [sys.executable, *SERVICE]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as service:
        assert service.stdout is not None
        ready = next(state for state in map(json.loads, service.stdout) if state["state"] == "ready")
        yield ready["url"]
        service.terminate()


def in_force(url: str) -> Settings:
    with urllib.request.urlopen(f"{url}/batching") as answer:
        return msgspec.json.decode(msgspec.json.encode(json.load(answer)["settings"]), type=Settings)


@pytest.fixture(autouse=True)
def _restored(url: str) -> Iterator[None]:
    """Whatever a test does, the service has the settings from before when it is over."""
    before = in_force(url)
    yield
    assert in_force(url) == before


def started(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "service", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def plan(url: str, **fields: object) -> ComparePlan:
    load = RunLoad(pattern=ClosedLoop(users=8), prompts=("Once",), max_tokens=4)
    sides = [Side(settings=Settings(max_batch_size=size), load=load) for size in (1, 16)]
    return ComparePlan(a=sides[0], b=sides[1], duration_s=0.3, rounds=2, warm_up_s=0, **fields)  # type: ignore[arg-type]


def test_that_a_comparison_is_carried_out_and_written(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {kind: tmp_path / f"result.{kind}" for kind in ("json", "html")}
    sides = ["--a", "max_batch_size=1", "--b", "max_batch_size=16", "--rounds", "3"]

    code = compare.main(["--url", url, *LOAD, *sides, "--json", str(files["json"]), "--html", str(files["html"])])

    assert code == 0
    result = msgspec.json.decode(files["json"].read_bytes(), type=Comparison)
    assert result.decisive is not None
    assert {run.mean_batch for run in result.a} == {1.0}
    assert all(run.mean_batch and run.mean_batch > 1 for run in result.b)
    assert [run.seed for run in result.a] == [run.seed for run in result.b] == [0, 1, 2]
    assert result.verdict in capsys.readouterr().out
    assert files["html"].read_text().startswith("<!DOCTYPE html>")


def test_that_sides_may_differ_in_load_at_the_same_throughput(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = MeasuredService.run
    reports: list[LoadReport] = []

    async def reported(*arguments: Any) -> tuple[LoadReport, list[BatchRecord]]:
        report, batches = await run(*arguments)
        reports.append(report)
        return report, batches

    monkeypatch.setattr(MeasuredService, "run", reported)
    path = tmp_path / "result.json"
    sides = ["--a", "max_batch_size=16", "--b", "max_batch_size=16,pattern=poisson", "--match-throughput"]

    assert compare.main(["--url", url, *LOAD, *sides, "--rounds", "2", "--json", str(path)]) == 0

    result = msgspec.json.decode(path.read_bytes(), type=Comparison)
    pattern = result.plan.b.load.pattern
    assert isinstance(result.plan.a.load.pattern, ClosedLoop)
    assert isinstance(pattern, Poisson)
    assert len(reports) == 5  # A to be matched, then two rounds of both
    assert reports[0].pattern == result.plan.a.load.pattern
    assert pattern.rate_per_s == pytest.approx(reports[0].requests_per_s)


def test_that_ctrl_c_ends_it_and_keeps_the_rounds_that_were_made(url: str, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    arguments = ["--url", url, *LOAD, "--a", "max_batch_size=1", "--b", "max_batch_size=16", "--rounds", "500"]
    with started("compare", *arguments, "--json", str(path)) as process:
        assert process.stderr is not None
        said = b""
        while b"round 3" not in said:
            said += process.stderr.read1()
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)  # from somebody impatient
        process.communicate()
        assert process.returncode == 130

    result = msgspec.json.decode(path.read_bytes(), type=Comparison)
    assert len(result.a) == len(result.b) >= 2
    assert result.caveats[0] == f"It was stopped after {len(result.a)} of 500 rounds."
    assert result.caveats[0] not in result.warnings, "which the window shows while rounds are still made"


def test_that_the_end_of_the_window_ends_it(url: str) -> None:
    with started("compare", "--url", url, "--control") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(msgspec.json.encode(msgspec.structs.replace(plan(url), duration_s=60.0)) + b"\n")
        process.stdin.flush()
        next(event for event in map(EVENTS.decode, process.stdout) if isinstance(event, Progress))
        process.stdin.close()
        process.stdout.read()
        assert process.wait(120) == 130


def test_that_a_window_that_was_killed_is_not_waited_for(url: str) -> None:
    process = started("compare", "--url", url, "--control")
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(msgspec.json.encode(msgspec.structs.replace(plan(url), duration_s=60.0)) + b"\n")
    process.stdin.flush()
    next(event for event in map(EVENTS.decode, process.stdout) if isinstance(event, Progress))
    process.stdout.close()  # as a kill does it: both ends at once
    process.stdin.close()
    assert process.wait(120) == 130
    assert process.stderr is not None
    with process.stderr:
        assert process.stderr.read() == b""


def test_that_the_window_hears_progress_and_what_the_rounds_say(url: str) -> None:
    with started("compare", "--url", url, "--control") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(msgspec.json.encode(plan(url)) + b"\n")
        process.stdin.flush()
        events = [EVENTS.decode(line) for line in process.stdout]
        assert process.wait(120) == 0

    progress = [event for event in events if isinstance(event, Progress)]
    assert {event.done for event in progress} == {0, 1, 2, 3}
    assert progress[0].left_s > progress[-1].left_s
    assert isinstance(events[-1], Compared)


def test_that_a_backlog_is_said_and_waited_for_and_the_time_left_counts_down(url: str) -> None:
    body = {"prompt": "Once", "max_tokens": 32}
    other = json.dumps(body).encode()
    heard: list[CompareEvent] = []

    def ask() -> None:
        request = urllib.request.Request(f"{url}/v1/completions", other, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            answer.read()

    waited_for = [threading.Thread(target=ask) for _ in range(24)]
    for each in waited_for:
        each.start()
    asyncio.run(compare.compare(Server(url), plan(url), heard.append))
    for each in waited_for:
        each.join()

    progress = [event for event in heard if isinstance(event, Progress)]
    waits = [event for event in progress if event.backlog]
    assert waits[0].doing.startswith(f"{waits[0].backlog} requests of other load are under way: the next run starts")
    assert [event.backlog for event in waits] == sorted({event.backlog for event in waits}, reverse=True)
    for last_of_its_side in (2, 3):  # one that lasts longer than expected lets expect as much of the next of its side
        left_s = [event.left_s for event in progress if event.done == last_of_its_side]
        assert left_s == sorted(left_s, reverse=True)
        assert left_s[-1] < left_s[0]


def test_that_what_is_neither_a_setting_nor_of_the_load_is_refused_by_its_name(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare.main(["--url", url, *LOAD, "--a", "foo=1", "--b", "formation=late"]) == 2
    assert "There is no setting and no option of the load called foo" in capsys.readouterr().err


def test_that_a_config_that_is_not_written_is_said(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "best.yaml"
    arguments = [
        "--url",
        url,
        *LOAD,
        "--grid",
        "max_batch_size=1",
        "--objective",
        "p95=0.00001",
        "--config",
        str(config),
    ]
    assert sweep.main(arguments) == 0
    assert f"{config} is not written: there are no best settings." in capsys.readouterr().out
    assert not config.exists()


def test_that_it_says_beforehand_how_long_it_takes(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    sides = ["--a", "max_batch_size=1", "--b", "max_batch_size=16", "--rounds", "2"]
    assert compare.main(["--url", url, *LOAD, *sides]) == 0
    assert "It takes about 7 s: 4 runs × 0.3 s + 1.5 s each.\n" in capsys.readouterr().err


def test_that_a_sweep_is_measured_written_and_its_best_taken_away(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {kind: tmp_path / f"sweep.{kind}" for kind in ("json", "html", "yaml")}
    outputs = ["--json", str(files["json"]), "--html", str(files["html"]), "--config", str(files["yaml"])]

    code = sweep.main(["--url", url, *LOAD, "--grid", "max_batch_size=1,8", "--objective", "p95=30", *outputs])

    assert code == 0
    swept = msgspec.json.decode(files["json"].read_bytes(), type=Sweep)
    assert swept.is_finished
    best = swept.best()
    assert best is not None
    assert swept.verdict() in capsys.readouterr().out
    config = yaml.safe_load(files["yaml"].read_text())
    assert config["applications"][0]["args"]["settings"]["max_batch_size"] == swept.points[best].settings.max_batch_size


def test_that_an_interrupted_sweep_goes_on_where_it_stopped(url: str, tmp_path: Path) -> None:
    path = tmp_path / "sweep.json"
    arguments = ["--url", url, *LOAD, "--grid", "max_batch_size=1,2,4,8", "--json", str(path)]
    assert sweep.main(arguments) == 0
    whole = msgspec.json.decode(path.read_bytes(), type=Sweep)
    half = [point if place < 2 else msgspec.structs.replace(point, runs=()) for place, point in enumerate(whole.points)]
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(whole, points=tuple(half))))

    assert sweep.main([*arguments, "--resume"]) == 0

    resumed = msgspec.json.decode(path.read_bytes(), type=Sweep)
    assert resumed.is_finished
    assert resumed.points[:2] == whole.points[:2]
    assert resumed.points[2:] != whole.points[2:]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (["--grid", "batch_wait_timeout_s=0,0.1"], "another sweep: points differ"),
        (["--grid", "max_batch_size=1,2", "--seed", "5"], "another sweep: load, seed differ"),
    ],
)
def test_that_a_sweep_of_another_plan_is_not_gone_on_with(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: list[str], reason: str
) -> None:
    path = tmp_path / "sweep.json"
    assert sweep.main(["--url", url, *LOAD, "--grid", "max_batch_size=1,2", "--json", str(path)]) == 0
    before = path.read_bytes()

    assert sweep.main(["--url", url, *LOAD, *change, "--json", str(path), "--resume"]) == 2

    assert reason in capsys.readouterr().err
    assert path.read_bytes() == before


def test_that_an_unfinished_sweep_is_not_overwritten_unasked(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "sweep.json"
    arguments = ["--url", url, *LOAD, "--grid", "max_batch_size=1", "--json", str(path)]
    assert sweep.main(arguments) == 0
    swept = msgspec.json.decode(path.read_bytes(), type=Sweep)
    unfinished = msgspec.structs.replace(swept, points=(msgspec.structs.replace(swept.points[0], runs=()),))
    path.write_bytes(msgspec.json.encode(unfinished))

    assert sweep.main(arguments) == 2
    assert "--resume" in capsys.readouterr().err


def test_that_a_window_gone_in_mid_sweep_leaves_what_was_measured(url: str) -> None:
    points = tuple(Settings(max_batch_size=size) for size in (1, 2))
    load = RunLoad(pattern=ClosedLoop(users=8), prompts=("Once",), max_tokens=4)
    task = SweepTask(plan=SweepPlan(points=points, load=load, duration_s=0.3, rounds=500, warm_up_s=0))
    with started("sweep", "--url", url, "--control") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(msgspec.json.encode(task) + b"\n")
        process.stdin.flush()
        swept = next(event.sweep for event in map(EVENTS.decode, process.stdout) if not isinstance(event, Progress))
        process.stdin.close()
        process.stdout.read()
        assert process.wait(120) == 130
    assert isinstance(swept, Sweep)
    assert len(swept.points[0].runs) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["--a", "max_batch_size=0", "--b", "max_batch_size=1"],
            "Must be a whole number from 1",
        ),
        ([], "Say how the sides differ"),
        (["--a", "formation", "--b", "formation=late"], "says nothing"),
        (["--a", "formation=late", "--b", "formation=early", "--rounds", "1"], "at least two"),
        (["--a", "formation=late", "--b", "formation=early", "--match-throughput"], "B an open one"),
        (["--a", "formation=late", "--b", "formation=early", "--json", "/no/such/folder/x.json"], "/no/such/folder"),
    ],
)
def test_that_what_cannot_be_done_is_refused_in_a_sentence(
    url: str, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    assert compare.main(["--url", url, *LOAD, *arguments]) == 2
    assert sentence in capsys.readouterr().err


def test_that_no_service_is_said_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert compare.main(["--url", "http://127.0.0.1:9", *LOAD, "--a", "formation=late", "--b", "formation=early"]) == 2
    assert "Start it with: python -m service" in capsys.readouterr().err


def test_that_the_settings_in_force_are_taken_away_with_what_is_set_otherwise(url: str, tmp_path: Path) -> None:
    path = tmp_path / "serve.yaml"

    assert deploy_config.main(["--url", url, "--set", "batch_wait_timeout_s=0.2", str(path)]) == 0

    arguments = yaml.safe_load(path.read_text())["applications"][0]["args"]
    assert arguments["model"] == "scripted"
    assert arguments["settings"]["max_batch_size"] == 3
    assert arguments["settings"]["batch_wait_timeout_s"] == 0.2


def test_that_a_setting_that_is_refused_is_not_taken_away(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "serve.yaml"

    assert deploy_config.main(["--url", url, "--set", "max_batch_size=0", str(path)]) == 2

    assert "Must be a whole number" in capsys.readouterr().err
    assert not path.exists()


def test_that_a_list_of_settings_is_swept_and_the_best_applied(url: str, tmp_path: Path) -> None:
    listed, path = tmp_path / "settings.jsonl", tmp_path / "sweep.json"
    listed.write_text('{"max_batch_size": 1}\n\n{"max_batch_size": 8, "batch_wait_timeout_s": 0}\n')
    before = in_force(url)

    try:
        assert sweep.main(["--url", url, *LOAD, "--list", str(listed), "--json", str(path), "--apply"]) == 0
        swept = msgspec.json.decode(path.read_bytes(), type=Sweep)
        sizes_and_waits = [(each.settings.max_batch_size, each.settings.batch_wait_timeout_s) for each in swept.points]
        assert sizes_and_waits == [(1, before.batch_wait_timeout_s), (8, 0.0)]
        best = swept.best()
        assert best is not None
        assert in_force(url) == swept.points[best].settings
    finally:
        asyncio.run(put_in_force(Server(url), before))


def test_that_the_best_of_a_goal_are_measured_and_the_cheapest_that_keeps_it_is_taken(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    history, _ = filled_history(SyntheticRun(40.0, (Step(0.0, 4.0, Settings(max_batch_size=8)),)))
    observation = Observation.of_history(history)
    assert observation is not None

    async def as_seen(_remote: RemoteService, _watch_s: float) -> Watched:
        return Watched(in_force(url), history, observation, history.last_s or 0.0)

    monkeypatch.setattr(goal, "watched", as_seen)
    path = tmp_path / "goal.json"
    measure = ["--measure", "--rounds", "2", "--duration", "1", "--json", str(path)]

    arguments = ["--url", url, "--objective", "p95=20", "--rate", "6", "--max-batch-size-up-to", "8"]
    assert goal.main([*arguments, *measure]) == 0

    report = msgspec.json.decode(path.read_bytes(), type=GoalReport)
    assert report.measured is not None
    assert report.measured.is_finished
    best = [report.search.candidates[place] for place in report.search.holding]
    assert [point.settings for point in report.measured.points] == [each.settings for each in best]
    assert report.measured.plan.load.pattern == Poisson(rate_per_s=6.0)
    assert report.measured.plan.load.max_tokens == 24
    assert report.chosen == best[0]
    assert report.verdict.startswith(
        f"Measured in 2 rounds, {best[0].text} is the cheapest in which 95 % of the requests"
    )
    assert report.verdict in capsys.readouterr().out


@pytest.mark.parametrize("content", ["max_batch_size=8", '{"max_batch_size": 0}', '{"no_such": 1}', "[8]", "", "\x00"])
def test_that_a_list_that_is_none_is_refused_in_a_sentence(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    listed = tmp_path / "settings.jsonl"
    listed.write_text(content)

    assert sweep.main(["--url", url, *LOAD, "--list", str(listed)]) == 2

    assert len(capsys.readouterr().err.splitlines()) == 1
