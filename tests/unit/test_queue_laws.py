"""What holds of the queue and its rules whatever comes, goes and changes, and in whatever order."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from service.batching.queue import Batch, BatchQueue, Entry
from service.batching.rules import Rules

TIMES_S = st.sampled_from([0.0, 0.001, 0.01, 0.05, 0.2, 1.0, 7.0])
TOKENS = st.sampled_from([1, 5, 10, 20, 50, 60])
RULES = st.builds(
    Rules,
    max_batch_size=st.integers(1, 5),
    batch_wait_timeout_s=TIMES_S,
    stride_s=st.sampled_from([0.0, 0.0, 0.01, 0.3]),
    max_batch_tokens=st.sampled_from([0, 0, 20, 100]),
    version=st.integers(1, 1000),
)
MOMENT_S = 1e-9
"""Times are sums of floats, in another order here than in the queue."""


@dataclass(frozen=True)
class Submitted:
    number: int
    tokens: int
    at_s: float
    future: asyncio.Future[Any]


class QueueMachine(RuleBasedStateMachine):
    """The queue on a clock that is set by hand, beside a plain list of the requests that wait, oldest first."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.now_s = 0.0
        self.free_since_s = 0.0
        self.submitted = self.released = self.cancelled = 0
        self.waiting: list[Submitted] = []

    @initialize(rules=RULES)
    def open(self, rules: Rules) -> None:
        self.rules = rules
        self.queue = self.in_loop(lambda: BatchQueue[int](rules, clock=lambda: self.now_s))

    def in_loop(self, call: Callable[[], Any]) -> Any:
        """The call's result, after the callbacks of what it did have run."""

        async def run() -> Any:
            result = call()
            await asyncio.sleep(0)
            return result

        return self.loop.run_until_complete(run())

    def teardown(self) -> None:
        assert self.submitted == self.released + self.cancelled + len(self.waiting)
        self.loop.close()

    @rule(tokens=st.lists(TOKENS, min_size=1, max_size=2))
    def submit(self, tokens: list[int]) -> None:
        for each in tokens:
            future = self.in_loop(lambda each=each: self.queue.submit(self.submitted, each))
            self.waiting.append(Submitted(self.submitted, each, self.now_s, future))
            self.submitted += 1

    @rule(seconds=TIMES_S)
    def let_time_pass(self, seconds: float) -> None:
        self.now_s += seconds

    @rule(seconds=TIMES_S)
    def let_the_engine_be_busy(self, seconds: float) -> None:
        self.now_s += seconds
        self.free_since_s = self.now_s

    @rule(rules=RULES)
    def configure(self, rules: Rules) -> None:
        self.rules = rules
        self.queue.configure(rules)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        gone = self.waiting.pop(data.draw(st.integers(0, len(self.waiting) - 1)))
        self.in_loop(gone.future.cancel)
        self.cancelled += 1

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def cancel_in_the_moment_of_release(self, data: st.DataObject) -> None:
        """The queue is not told before it gives the batch away: no request that has gone is in it."""
        gone = self.waiting.pop(data.draw(st.integers(0, len(self.waiting) - 1)))

        def cancel_and_take() -> Batch[int] | None:
            gone.future.cancel()
            return self.queue.take(self.now_s, self.free_since_s, more_may_come=False)

        batch = self.in_loop(cancel_and_take)
        self.cancelled += 1
        if batch is None:
            assert self.waiting == []
            return
        assert gone.number not in [entry.item for entry in batch.entries]
        self.leave(batch.entries)

    @rule()
    def take(self) -> None:
        deadline_s = self.queue.deadline_s(self.free_since_s)
        batch = self.in_loop(lambda: self.queue.take(self.now_s, self.free_since_s))
        assert (deadline_s is not None and deadline_s <= self.now_s) == (batch is not None)
        if batch is None:
            self.check_that_it_may_wait()
            return
        before = list(self.waiting)
        members = self.leave(batch.entries)
        self.check_that_it_fits_and_no_more_would(members, running=0, tokens=0)
        self.check_reason(batch, before, members)
        assert (batch.formed_s, batch.rules_version, batch.cap) == (
            self.now_s,
            self.rules.version,
            self.rules.max_batch_size,
        )

    @rule(running=st.integers(0, 6), tokens=st.integers(0, 120))
    def join(self, running: int, tokens: int) -> None:
        running = min(running, self.rules.max_batch_size)
        tokens = tokens if running else 0
        batch = self.in_loop(lambda: self.queue.take_joining(running, tokens))
        members = self.leave(batch.entries if batch else ())
        self.check_that_it_fits_and_no_more_would(members, running, tokens)
        if batch is None:
            return
        assert members
        assert (batch.release_reason, batch.formed_s) == ("joined", self.now_s)
        assert (batch.rules_version, batch.cap) == (self.rules.version, self.rules.max_batch_size)

    def leave(self, entries: Sequence[Entry[int]]) -> list[Submitted]:
        """No request is overtaken: those that leave are the oldest."""
        members, self.waiting = self.waiting[: len(entries)], self.waiting[len(entries) :]
        assert [entry.item for entry in entries] == [each.number for each in members]
        self.released += len(members)
        return members

    def check_that_it_fits_and_no_more_would(self, members: list[Submitted], running: int, tokens: int) -> None:
        assert not members or self.would_hold(members, running, tokens)
        assert not self.waiting or not self.would_hold([*members, self.waiting[0]], running, tokens)

    def would_hold(self, members: list[Submitted], running: int, tokens: int) -> bool:
        """Whether a batch may have these; one alone may, whatever it needs."""
        if running + len(members) > self.rules.max_batch_size:
            return False
        needed = tokens + sum(each.tokens for each in members)
        return not self.rules.max_batch_tokens or needed <= self.rules.max_batch_tokens or running + len(members) <= 1

    def check_reason(self, batch: Batch[int], before: list[Submitted], members: list[Submitted]) -> None:
        is_full = len(members) == self.rules.max_batch_size or len(members) < len(before)
        small = "timeout" if self.rules.batch_wait_timeout_s else "drained"
        assert batch.release_reason == ("full" if is_full else small)
        if not is_full:
            waited_s = self.now_s - max(members[0].at_s, self.free_since_s)
            assert waited_s >= self.rules.batch_wait_timeout_s - MOMENT_S

    def check_that_it_may_wait(self) -> None:
        """For more to come, or for a tick; and neither longer than it says."""
        if not self.waiting:
            return
        waited_s = self.now_s - max(self.waiting[0].at_s, self.free_since_s)
        assert waited_s < self.rules.batch_wait_timeout_s + self.rules.stride_s + MOMENT_S
        if self.is_full():
            assert self.rules.stride_s > 0

    def is_full(self) -> bool:
        """Whether the requests that wait fill a batch."""
        if len(self.waiting) >= self.rules.max_batch_size:
            return True
        return len(self.waiting) > 1 and not self.would_hold(self.waiting, 0, 0)

    @invariant()
    def nobody_is_lost_and_nobody_waits_twice(self) -> None:
        if self.submitted:
            assert len(self.queue) == len(self.waiting)


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)


@dataclass(frozen=True)
class Sealed:
    """An entry that a rule looks at."""

    tokens: int
    enqueued_s: float = 0.0


@given(rules=RULES, tokens=st.lists(TOKENS, max_size=20), is_full=st.booleans())
def test_that_what_was_sealed_together_is_divided_without_loss_into_batches_that_fit(
    rules: Rules, tokens: list[int], is_full: bool
) -> None:
    sealed = [Sealed(each) for each in tokens]
    parts = list(rules.divided(sealed, is_full=is_full))
    assert [each for part, _ in parts for each in part] == sealed
    for part, _ in parts:
        assert 1 <= len(part) <= rules.max_batch_size
        assert len(part) == 1 or not rules.max_batch_tokens or sum(s.tokens for s in part) <= rules.max_batch_tokens
    assert all(reason == "full" for _, reason in parts[:-1])
    assert not parts or (parts[-1][1] == "full") == is_full


@given(stride_s=st.floats(0.001, 10), ready_s=st.floats(0, 1e6))
def test_that_a_tick_is_the_next_multiple_of_the_stride(stride_s: float, ready_s: float) -> None:
    tick_s = Rules(1, 0.0, stride_s=stride_s).tick_s(ready_s)
    rounding_s = 4 * math.ulp(max(ready_s, 1.0))
    assert -rounding_s <= tick_s - ready_s <= stride_s + rounding_s
    assert math.isclose(tick_s / stride_s, round(tick_s / stride_s), rel_tol=1e-9)
