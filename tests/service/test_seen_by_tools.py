"""A running service as Prometheus and a collector of spans see it."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import requests
from requests.adapters import HTTPAdapter
from urllib3 import Retry

from service.launch.checks import quiet_port
from tests.otlp_receiver import Receiver, receiver
from tests.service import HANG_S
from tests.service.conftest import error_of, served
from tests.service.telemetry import Telemetry
from tests.unit.test_grafana_board import queries
from tests.unit.test_metrics import Samples, scraped

UNTIL_THERE_IS_A_REPLICA = Retry(total=600, status_forcelist=(500, 503), backoff_factor=0.25, backoff_max=0.25)
"""Of what is asked by GET."""
TOKEN = "the-token-of-this-test"
SCRAPING = """
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: batchscope
    static_configs: [{{targets: ["{at}"]}}]
    authorization: {{credentials_file: {folder}/token}}
"""
TRACE, CLIENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Seen(NamedTuple):
    """A service that takes requests with a token only, and what its spans come to."""

    url: str
    session: requests.Session
    collector: Receiver

    def complete(self, prompt: str, **headers: str) -> requests.Response:
        body = {"prompt": prompt, "max_tokens": 3}
        return self.session.post(f"{self.url}/v1/completions", json=body, headers=headers, timeout=HANG_S)

    def metrics(self) -> Samples:
        answer = self.session.get(f"{self.url}/metrics", timeout=HANG_S)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        return scraped(answer.content)

    @contextmanager
    def telemetry(self) -> Iterator[Telemetry]:
        """All that is kept of it; waits for a replica."""
        with self.session.get(f"{self.url}/telemetry?after=0", stream=True, timeout=HANG_S) as answer:
            yield Telemetry(answer)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    token = tmp_path_factory.mktemp("token") / "token"
    token.touch(0o600)
    token.write_text(TOKEN)
    with receiver() as collector, pytest.MonkeyPatch.context() as patch, requests.Session() as session:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")
        session.headers["Authorization"] = f"Bearer {TOKEN}"
        session.mount("http://", HTTPAdapter(max_retries=UNTIL_THERE_IS_A_REPLICA))
        for service in served("--model", "stub?step_ms=2&row_ms=0", "--token-file", str(token)):
            yield Seen(service.url, session, collector)


@contextmanager
def prometheus(folder: Path, service_url: str) -> Iterator[str]:
    """A real Prometheus, which scrapes the service each second; its address."""
    program = shutil.which("prometheus")
    assert program is not None, "this test wants Prometheus: apt install prometheus"
    (folder / "token").write_text(TOKEN)
    (folder / "prometheus.yml").write_text(SCRAPING.format(at=service_url.removeprefix("http://"), folder=folder))
    at = f"127.0.0.1:{quiet_port()}"
    options = (f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}", f"--web.listen-address={at}")
    with subprocess.Popen([program, *options], stderr=subprocess.DEVNULL) as process:
        try:
            yield f"http://{at}"
        finally:
            process.terminate()


def total(samples: Samples, name: str) -> float:
    """Over all replicas."""
    return sum(value for (each, _), value in samples.values.items() if each == name)


def test_that_prometheus_needs_the_token_as_everyone_does(seen: Seen) -> None:
    refused = requests.get(f"{seen.url}/metrics", timeout=HANG_S)
    assert refused.status_code == 401
    assert error_of(refused)["code"] == "token_required"


def test_that_counters_go_on_where_a_replica_dies(seen: Seen) -> None:
    with seen.telemetry() as telemetry:
        assert [seen.complete(f"request {n}").status_code for n in range(5)] == [200] * 5
        telemetry.read_until_done(5)
        before = seen.metrics()
        answered = total(before, "vllm:e2e_request_latency_seconds_count")
        assert answered >= 5
        assert total(before, "ray_serve_actual_batch_size_sum") >= 5
        assert seen.complete("a stub:exit").status_code == 500
    with seen.telemetry() as telemetry:
        telemetry.read_until(lambda frame: bool(frame.lost_replicas))
        assert seen.complete("after it").status_code == 200
        telemetry.read_until_done(1)
    after = seen.metrics()
    assert total(after, "vllm:e2e_request_latency_seconds_count") == answered + 1
    counters = [key for key in before.values if key[0].endswith(("_total", "_count", "_bucket", "_sum"))]
    assert all(after.values[key] >= before.values[key] for key in counters)


def test_that_a_request_is_a_span_of_its_client(seen: Seen) -> None:
    assert seen.complete("traced", traceparent=f"00-{TRACE}-{CLIENT}-01").status_code == 200
    sent = seen.collector.spans(lambda spans: any(span.trace == TRACE for span in spans))
    spans = [span for span in sent if span.trace == TRACE]
    (whole,) = [span for span in spans if span.parent == CLIENT]
    assert whole.attributes["gen_ai.usage.output_tokens"] == 3
    assert {span.name for span in spans} >= {"waiting", "batch", "sealed", "prefill", "decode"}


@pytest.mark.long
def test_that_a_real_prometheus_answers_every_query_of_the_board(seen: Seen, tmp_path: Path) -> None:
    """It understands also those of what does not happen here: settings that change, a goal that is held."""
    every = set(queries(rate_interval="5s"))
    unanswered = {each for each in every if "changes(" not in each and "batchscope_good_requests" not in each}
    with prometheus(tmp_path, seen.url) as url, requests.Session() as session:
        session.mount("http://", HTTPAdapter(max_retries=Retry(total=100, status_forcelist=(503,), backoff_factor=0.1)))

        def answered(query: str) -> list[Any]:
            asked = query.replace("$model", ".*").replace("$replica", ".*")
            answer = session.get(f"{url}/api/v1/query", params={"query": asked}, timeout=HANG_S).json()
            assert answer["status"] == "success", f"{asked}: {answer}"
            series: list[Any] = answer["data"]["result"]
            return series

        for query in every - unanswered:
            answered(query)
        until_s = time.monotonic() + HANG_S
        while unanswered and time.monotonic() < until_s:
            assert seen.complete("seen by Prometheus").status_code == 200
            unanswered = {query for query in unanswered if not answered(query)}
    assert not unanswered
