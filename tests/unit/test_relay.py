"""The relay that times the requests of other load generators: it counts as our own client does."""

from __future__ import annotations

from collections.abc import Sequence

from service.load.report import ReportedRequest
from service.load.run import run_load
from service.messages.load import Burst, RunLoad
from tests.benchmarks.relay import relay_before
from tests.unit.stub_server import StubServer


def gaps(requests: Sequence[ReportedRequest]) -> int:
    return sum(each.gaps.count for each in requests if each.gaps is not None)


async def test_that_what_the_relay_reports_of_a_request_is_what_its_sender_reports() -> None:
    load = RunLoad(pattern=Burst(count=5), prompts=("Once", "A batch is"), max_tokens=6)
    async with StubServer() as server:
        with relay_before(server.url) as relay:
            report = await run_load(relay.url, load, 1.0)
            seen = relay.take()
            assert relay.take() == []

    assert report.totals.ok == len(seen) == 5
    assert [each.outcome for each in seen] == ["ok"] * 5
    assert sorted(each.tokens for each in seen) == sorted(each.tokens for each in report.requests)
    assert gaps(seen) == gaps(report.requests) > 0
    assert max(each.latency_s or 0.0 for each in seen) <= max(each.latency_s or 0.0 for each in report.requests)
