"""The load generator against the real service: what it says it sent is what the service says it served."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from itertools import accumulate
from pathlib import Path

import msgspec

from service.load.report import LoadReport
from service.load.run import run_load
from service.messages.load import Burst, ClosedLoop, RunLoad, UniformLength
from tests.service import HANG_S
from tests.service.conftest import Service

PROMPTS = ("Once upon a time", "A batch is a group of")
LENGTHS = UniformLength(low=2, high=12)


def most_at_once(report: LoadReport) -> int:
    """The most requests that were under way at one moment."""
    sent = [(request.sent_s, 1) for request in report.requests if request.sent_s is not None]
    finished = [(request.finished_s, -1) for request in report.requests if request.finished_s is not None]
    return max(accumulate(change for _, change in sorted(sent + finished)))


def test_that_every_request_of_a_report_is_one_of_the_services(service: Service) -> None:
    load = RunLoad(pattern=Burst(count=24), prompts=PROMPTS, max_tokens=LENGTHS, prompt_words=LENGTHS, seed=3)
    with service.telemetry() as telemetry:
        report = asyncio.run(run_load(service.url, load, 60.0))
        telemetry.read_until(lambda _: telemetry.done() >= 24)
    served = {request.client_id: request for request in telemetry.requests()}
    assert report.totals.ok == 24
    assert report.model == service.ready.model
    for request in report.requests:
        record = served[request.id]
        assert (request.tokens, request.prompt_tokens) == (record.completion_tokens, record.prompt_tokens)
        assert request.tokens == request.max_tokens


def test_that_one_seed_gives_the_same_lengths_under_other_settings(service: Service) -> None:
    asked = []
    for cap in (1, 16):
        assert service.change(max_batch_size=cap).status_code == 200
        load = RunLoad(pattern=Burst(count=8), prompts=PROMPTS, max_tokens=LENGTHS, prompt_words=LENGTHS, seed=9)
        report = asyncio.run(run_load(service.url, load, 60.0))
        numbered = sorted(report.requests, key=lambda request: int(request.id.rpartition("-")[2]))
        asked.append([(request.max_tokens, request.prompt_tokens) for request in numbered])
    assert asked[0] == asked[1]


def test_that_refusals_are_named_and_counted(service: Service) -> None:
    assert service.change(max_batch_size=1, max_queued_requests=1).status_code == 200
    load = RunLoad(pattern=Burst(count=30), prompts=PROMPTS, max_tokens=8)
    report = asyncio.run(run_load(service.url, load, 60.0))
    assert report.totals.refused > 0
    assert report.totals.ok + report.totals.refused == 30
    assert f"The service refused {report.totals.refused} requests because its queue was full." in report.warnings


def test_that_the_command_reports_what_the_service_answered(service: Service, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    arguments = ("--pattern", "closed", "--users", "4", "--duration", "2", "--tokens", "4-8", "--json", str(path))
    command = (sys.executable, "-m", "service", "load", "--url", service.url, *arguments)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S)
    assert ended.returncode == 0, ended.stderr
    report = msgspec.json.decode(path.read_bytes(), type=LoadReport)
    assert report.pattern == ClosedLoop(users=4)
    assert report.totals.ok == report.totals.sent == len(report.requests) >= 4
    assert most_at_once(report) == 4
    assert {request.tokens for request in report.requests} <= set(range(4, 9))
    assert f"{report.totals.sent} sent, {report.totals.ok} answered" in ended.stdout
