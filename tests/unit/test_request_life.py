"""The life of requests under all formations, whatever is submitted, cancelled, formed, run and changed meanwhile."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from service.batching.batcher import QueueFullError
from service.engine.stub import Fault, raising
from service.messages.settings import FORMATIONS, Settings
from service.messages.telemetry import RequestState
from service.replica import requests
from service.replica.requests import GenerationRequest
from tests.unit.gated_replica import ENOUGH, GatedReplica

EARLY: Final = Settings(formation="early", max_batch_size=3, batch_wait_timeout_s=0.001)
ASKED: Final = st.lists(st.tuples(st.sampled_from(["a", "bb", "poison", "crash"]), st.integers(1, 3)), max_size=6)
RULES: Final = st.builds(
    Settings,
    formation=st.sampled_from(FORMATIONS),
    max_batch_size=st.integers(1, 4),
    batch_wait_timeout_s=st.sampled_from([0.0, 0.001]),
    stride_s=st.sampled_from([0.0, 0.001]),
    max_batch_tokens=st.sampled_from([0, 8]),
    max_concurrent_batches=st.integers(1, 2),
    max_queued_requests=st.just(6),
)


class RequestLife(RuleBasedStateMachine):
    """One replica with a real engine thread; the event loop runs only while a rule does."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.replica = self.runner.run(self._start())
        self.final: dict[GenerationRequest, RequestState] = {}

    async def _start(self) -> GatedReplica:
        faults = {"poison": Fault(at_token=2), "crash": Fault(does=raising(SystemExit("crashed")))}
        return GatedReplica(EARLY, faults)

    @rule(asked=ASKED, timeout_s=st.sampled_from([0.002, 60.0]))
    def submit(self, asked: list[tuple[str, int]], timeout_s: float) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(requests, "REQUEST_TIMEOUT_S", timeout_s)
            self.runner.run(self._submit(asked))

    async def _submit(self, asked: list[tuple[str, int]]) -> None:
        for prompt, max_tokens in asked:
            with suppress(QueueFullError):
                await self.replica.submit(prompt, max_tokens)

    @rule(numbers=st.lists(st.integers(1, 8), min_size=1, max_size=4), turns=st.integers(0, 3))
    def give_up(self, numbers: list[int], turns: int) -> None:
        """Some of the youngest, after so many turns of the event loop, in the middle of whatever it does."""
        self.runner.run(self._give_up(numbers, turns))

    async def _give_up(self, numbers: list[int], turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        for number in numbers:
            for request in self.replica.requests[-number:][:1]:
                self.replica.generation.give_up(request)

    @rule(rules=RULES)
    def change_settings(self, rules: Settings) -> None:
        self.runner.run(self._change(rules))

    async def _change(self, rules: Settings) -> None:
        self.replica.apply(rules)

    @rule(count=st.integers(1, 4))
    def allow_steps(self, count: int) -> None:
        self.replica.allow(count)

    @rule(milliseconds=st.integers(0, 4))
    def let_time_pass(self, milliseconds: int) -> None:
        self.runner.run(asyncio.sleep(milliseconds / 1e3))

    @invariant()
    def the_ledger_balances(self) -> None:
        ledger, requests = self.replica.generation.recorder.ledger, self.replica.requests
        in_flight = sum(not request.is_final for request in requests)
        assert ledger.received == ledger.admitted + ledger.refused
        assert ledger.admitted == len(requests)
        assert ledger.admitted == ledger.completed + ledger.failed + ledger.cancelled + in_flight
        counts = self.replica.generation.requests.counts
        assert counts.total() == in_flight
        assert counts["running"] == self.replica.generation.requests.running

    @invariant()
    def what_has_ended_stays_as_it_ended(self) -> None:
        for request in self.replica.requests:
            if request.is_final:
                assert self.final.setdefault(request, request.state) == request.state

    @invariant()
    def stages_follow_each_other(self) -> None:
        for request in self.replica.requests:
            record = request.record("r1")
            stages_s = [record.enqueued_s, record.formed_s, record.started_s, record.first_token_s, record.finished_s]
            reached_s = [at_s for at_s in stages_s if at_s is not None]
            assert reached_s == sorted(reached_s)

    @invariant()
    def the_replica_works_on(self) -> None:
        if self.replica.work.done():
            self.replica.work.result()

    def teardown(self) -> None:
        self.replica.allow(ENOUGH)
        try:
            self.runner.run(self._serve_the_last())
            self.the_ledger_balances()
            self.what_has_ended_stays_as_it_ended()
            self.stages_follow_each_other()
            assert self.replica.generation.requests.running == 0
            assert self.replica.generation.batcher.waiting == self.replica.generation.batcher.formed == 0
        finally:
            self.runner.run(self.replica.close())
            self.runner.close()

    async def _serve_the_last(self) -> None:
        """Ray seals in order: when it has sealed this one, it holds no request, not even those that left."""
        await self.replica.ended()
        self.replica.apply(EARLY)
        last = await self.replica.submit("last")
        await self.replica.ended()
        assert last.state == "done"


@pytest.mark.usefixtures("replica_context")
def test_requests_live_as_they_should_whatever_happens() -> None:
    run_state_machine_as_test(RequestLife, settings=settings(max_examples=100, stateful_step_count=25, deadline=None))
