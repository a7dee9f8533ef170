"""The load itself, with a clock and a server in the test's hands."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from service.load.flight import Answer
from service.load.generator import Generator
from service.load.loops import MOST_ARRIVALS_AT_ONCE, PAUSE_AFTER_FAILURE_S
from service.messages.load import (
    Burst,
    Cancel,
    ClientOutcome,
    ClientTotals,
    ClosedLoop,
    ConstantRate,
    Fire,
    GammaArrivals,
    LoadCommand,
    OnOff,
    Pattern,
    PauseLoad,
    Poisson,
    Ramp,
    ResumeLoad,
    RunLoad,
    Steps,
    StopLoad,
    Trace,
    UniformLength,
)
from tests.unit.load_fakes import FakeClock, FakeJournal, FakeSender

UNREACHABLE = Answer("failed", "http://x cannot be reached: connection refused.", is_unreachable=True)


class Bench:
    """A generator with its surroundings."""

    def __init__(self, max_connections: int = 20_000, lasts_s: float = math.inf) -> None:
        self.clock = FakeClock()
        self.sender = FakeSender(self.clock)
        self.journal = FakeJournal()
        self.generator = Generator(self.sender, self.clock, self.journal, max_connections, lasts_s=lasts_s)

    def run(self, pattern: Pattern, prompts: tuple[str, ...] = ("a prompt",), **options: Any) -> None:
        self.generator.obey(RunLoad(pattern=pattern, prompts=prompts, **options))

    def obey(self, command: LoadCommand) -> None:
        self.generator.obey(command)

    @property
    def outstanding(self) -> int:
        return len(self.sender.under_way)

    @property
    def intended_s(self) -> list[float]:
        return [flight.intended_s for flight in self.sender.started]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def check_ledger(totals: ClientTotals) -> None:
    assert totals.sent == totals.ok + totals.refused + totals.failed + totals.cancelled + totals.outstanding


class TestFire:
    def test_that_every_prompt_is_sent_as_often_as_asked_at_once(self, bench: Bench) -> None:
        bench.obey(Fire(prompts=("a", "b"), copies=3, max_tokens=5, temperature=0.5))
        assert Counter(flight.prompt for flight in bench.sender.started) == {"a": 3, "b": 3}
        assert {(f.source, f.max_tokens, f.temperature, f.intended_s) for f in bench.sender.started} == {
            ("fire", 5, 0.5, 100.0)
        }
        assert len({flight.id for flight in bench.sender.started}) == 6

    def test_that_firing_nothing_is_refused_in_words(self, bench: Bench) -> None:
        bench.obey(Fire(prompts=()))
        assert bench.journal.refusals == ["There is no prompt to fire."]

    def test_that_more_than_can_be_open_is_refused_and_nothing_sent(self) -> None:
        bench = Bench(max_connections=10)
        bench.obey(Fire(prompts=("a",), copies=4))
        bench.obey(Fire(prompts=("a",), copies=7))
        assert bench.outstanding == 4
        assert "6 more connections" in bench.journal.refusals[0]


class TestOpenLoop:
    def test_that_the_rate_is_kept_though_nothing_is_answered(self, bench: Bench) -> None:
        bench.run(Poisson(rate_per_s=50), max_outstanding=100_000)
        bench.clock.advance(100)
        assert bench.generator.totals().sent == pytest.approx(5000, rel=0.05)

    def test_that_lateness_does_not_shift_the_schedule_and_is_measured(self, bench: Bench) -> None:
        punctual = Bench()
        bench.clock.late_s = 0.02
        for each in (bench, punctual):
            each.run(Poisson(rate_per_s=50), seed=3)
            each.clock.advance(10)
        shared = min(len(bench.intended_s), len(punctual.intended_s))
        assert shared > 300
        assert bench.intended_s[:shared] == punctual.intended_s[:shared]
        lag_ms = bench.generator.lag_p99_ms()
        assert lag_ms is not None
        assert 19 < lag_ms < 22
        assert all(f.sent_s is not None and f.sent_s >= f.intended_s for f in bench.sender.started)

    def test_that_arrivals_missed_while_the_process_stood_still_keep_their_times(self, bench: Bench) -> None:
        bench.run(Poisson(rate_per_s=10))
        bench.clock.late_s = 5.0
        bench.clock.advance(20)
        assert len(bench.intended_s) > 100
        assert max(b - a for a, b in pairwise(bench.intended_s)) < 2

    @pytest.mark.parametrize("pattern", [Poisson(rate_per_s=20), OnOff(rate_per_s=20, on_s=0.7, off_s=0.7)])
    def test_that_what_is_due_within_the_time_is_sent_however_late_and_nothing_after(self, pattern: Pattern) -> None:
        punctual, late = Bench(lasts_s=2.0), Bench(lasts_s=2.0)
        late.clock.late_s = 0.3  # longer than most intervals, so several are due when the time is over
        for bench in (punctual, late):
            bench.run(pattern, seed=5)
            bench.clock.advance(2.0)
        assert len(late.intended_s) < len(punctual.intended_s)
        late.clock.advance(0.3)
        assert late.intended_s == punctual.intended_s
        assert max(punctual.intended_s) < 102.0
        for bench in (punctual, late):
            assert bench.generator.pattern is None, "the load has ended"
            sent = bench.generator.totals().sent
            bench.clock.advance(10)
            assert bench.generator.totals().sent == sent

    def test_that_what_exceeds_the_cap_is_dropped_and_counted(self, bench: Bench) -> None:
        bench.run(Burst(count=30), max_outstanding=20)
        totals = bench.generator.totals()
        assert (totals.sent, totals.dropped) == (20, 10)
        bench.sender.conclude_all()
        bench.run(Burst(count=5), max_outstanding=20)
        assert bench.generator.totals().sent == 25

    def test_that_fired_prompts_do_not_count_against_the_cap_of_the_load(self, bench: Bench) -> None:
        bench.obey(Fire(prompts=("a",), copies=20))
        bench.run(Burst(count=5), max_outstanding=5)
        assert bench.generator.totals().dropped == 0

    def test_that_a_rate_dragged_sixty_times_a_second_neither_pauses_nor_bunches(self, bench: Bench) -> None:
        for step in range(60 * 20):
            bench.run(Poisson(rate_per_s=40.0 + step % 20))
            bench.clock.advance(1 / 60)
        assert len(bench.intended_s) == pytest.approx(49.5 * 20, rel=0.1)
        assert max(b - a for a, b in pairwise(bench.intended_s)) < 0.3

    def test_that_a_higher_rate_does_not_wait_for_the_arrival_of_the_lower(self, bench: Bench) -> None:
        bench.run(Poisson(rate_per_s=0.001))
        bench.clock.advance(1)
        bench.run(Poisson(rate_per_s=100))
        bench.clock.advance(1)
        assert bench.outstanding > 50

    def test_that_prompts_and_lengths_change_with_the_next_arrival(self, bench: Bench) -> None:
        bench.run(Poisson(rate_per_s=100), prompts=("old",), max_tokens=4)
        bench.clock.advance(1)
        before = len(bench.sender.started)
        bench.run(Poisson(rate_per_s=100), prompts=("new",), max_tokens=8)
        bench.clock.advance(1)
        later = bench.sender.started[before:]
        assert len(later) > 50
        assert {(flight.prompt, flight.max_tokens) for flight in later} == {("new", 8)}

    def test_that_a_burst_goes_out_and_the_load_is_over(self, bench: Bench) -> None:
        bench.run(Burst(count=3 * MOST_ARRIVALS_AT_ONCE))
        assert bench.generator.pattern == Burst(count=3 * MOST_ARRIVALS_AT_ONCE)
        bench.clock.advance(0.001)
        assert bench.outstanding == 3 * MOST_ARRIVALS_AT_ONCE
        assert set(bench.intended_s) == {100.0}
        assert bench.generator.pattern is None

    def test_that_stop_ends_arrivals_and_lets_the_rest_finish(self, bench: Bench) -> None:
        bench.run(Poisson(rate_per_s=100))
        bench.clock.advance(1)
        bench.obey(StopLoad())
        outstanding = bench.outstanding
        bench.clock.advance(10)
        assert bench.outstanding == outstanding > 0
        assert (bench.generator.pattern, bench.generator.is_busy) == (None, True)
        bench.sender.conclude_all()
        assert bench.generator.totals().ok == outstanding
        assert not bench.generator.is_busy
        assert bench.clock.pending == 0


class TestClosedLoop:
    def test_that_each_user_sends_the_next_request_when_the_last_is_answered(self, bench: Bench) -> None:
        bench.run(ClosedLoop(users=5))
        assert bench.outstanding == 5
        for _ in range(10):
            bench.clock.advance(1)
            bench.sender.conclude_all()
        assert bench.outstanding == 5
        assert bench.generator.totals().ok == 50

    def test_that_the_next_request_is_intended_when_the_answer_came(self, bench: Bench) -> None:
        bench.run(ClosedLoop(users=1))
        bench.clock.advance(2)
        bench.sender.started[0].finished_s = 101.5
        bench.sender.conclude_all()
        assert bench.intended_s == [100.0, 101.5]

    def test_that_users_join_at_once(self, bench: Bench) -> None:
        bench.run(ClosedLoop(users=2))
        bench.run(ClosedLoop(users=6))
        assert bench.outstanding == 6

    def test_that_users_leave_when_answered_and_nothing_is_broken_off(self, bench: Bench) -> None:
        bench.run(ClosedLoop(users=6))
        bench.run(ClosedLoop(users=2))
        assert bench.outstanding == 6
        bench.sender.conclude_all()
        assert bench.outstanding == 2
        assert bench.generator.totals().cancelled == 0

    def test_that_a_refused_user_pauses_as_long_as_the_server_asks(self, bench: Bench) -> None:
        bench.run(ClosedLoop(users=3))
        bench.sender.conclude_all(Answer("refused", "full", retry_after_s=2.0))
        bench.clock.advance(1.9)
        assert bench.outstanding == 0
        bench.clock.advance(0.2)
        assert bench.outstanding == 3
        assert bench.intended_s[3:] == [102.0] * 3

    def test_that_failures_do_not_come_in_an_endless_loop(self, bench: Bench) -> None:
        bench.run(ClosedLoop(users=1))
        bench.sender.conclude_all(Answer("failed", "500"))
        assert bench.outstanding == 0
        bench.clock.advance(PAUSE_AFTER_FAILURE_S)
        assert bench.outstanding == 1

    def test_that_pausing_users_are_users(self, bench: Bench) -> None:
        bench.run(ClosedLoop(users=4))
        bench.sender.conclude_all(Answer("failed", "500"))
        bench.run(ClosedLoop(users=5))
        assert bench.outstanding == 1
        bench.run(ClosedLoop(users=2))
        bench.clock.advance(5)
        assert bench.outstanding == 2

    def test_that_pausing_users_stay_away_after_the_end(self, bench: Bench) -> None:
        bench.run(ClosedLoop(users=4))
        bench.sender.conclude_all(Answer("failed", "500"))
        bench.obey(StopLoad())
        bench.clock.advance(5)
        assert bench.generator.totals().sent == 4

    def test_that_fired_prompts_are_no_users(self, bench: Bench) -> None:
        bench.obey(Fire(prompts=("a",)))
        bench.run(ClosedLoop(users=1))
        bench.sender.conclude(bench.sender.started[0])
        assert bench.outstanding == 1

    def test_that_the_cap_is_for_arrivals_that_do_not_wait(self, bench: Bench) -> None:
        bench.run(ClosedLoop(users=8), max_outstanding=2)
        assert (bench.outstanding, bench.generator.totals().dropped) == (8, 0)

    def test_that_more_users_than_connections_are_refused_in_words(self) -> None:
        bench = Bench(max_connections=10)
        bench.run(ClosedLoop(users=11))
        assert "11 users are too many" in bench.journal.refusals[0]
        assert bench.generator.pattern is None

    def test_that_a_user_thinks_before_the_next_request(self, bench: Bench) -> None:
        bench.run(ClosedLoop(users=1, think_s=3.0))
        bench.clock.advance(3)
        bench.sender.started[0].finished_s = 105.0
        bench.clock.advance(2)
        bench.sender.conclude_all()
        bench.clock.advance(2.9)
        assert bench.outstanding == 0
        bench.clock.advance(0.2)
        assert bench.intended_s[1] == 108.0

    def test_that_users_with_a_think_time_join_one_after_the_other(self, bench: Bench) -> None:
        bench.run(ClosedLoop(users=20, think_s=10.0))
        bench.clock.advance(10)
        assert bench.outstanding == 20
        assert 2 < max(bench.intended_s) - min(bench.intended_s) < 10

    def test_that_exponential_thoughts_have_their_mean_and_differ(self, bench: Bench) -> None:
        bench.run(ClosedLoop(users=1, think_s=2.0, think="exponential"))
        while len(bench.sender.started) < 1000:
            bench.clock.advance(0.01)
            bench.sender.conclude_all()
        thoughts = [b - a for a, b in pairwise(bench.intended_s)]
        assert sum(thoughts) / len(thoughts) == pytest.approx(2.0, rel=0.1)
        assert min(thoughts) < 0.1 < 5 < max(thoughts)

    def test_that_thinking_users_are_users(self, bench: Bench) -> None:
        bench.run(ClosedLoop(users=4, think_s=5.0))
        bench.run(ClosedLoop(users=4, think_s=5.0))
        bench.clock.advance(5)
        assert bench.outstanding == 4


class TestPause:
    def test_that_nothing_arrives_and_what_would_have_comes_as_much_later(self, bench: Bench) -> None:
        undisturbed = Bench()
        for each in (bench, undisturbed):
            each.run(Poisson(rate_per_s=10), seed=4)
            each.clock.advance(2)
        before = len(bench.intended_s)
        bench.obey(PauseLoad())
        assert (bench.generator.is_paused, bench.generator.is_busy) == (True, True)
        bench.clock.advance(60)
        assert len(bench.intended_s) == before
        bench.obey(ResumeLoad())
        for each in (bench, undisturbed):
            each.clock.advance(3)
        assert len(bench.intended_s) > before + 15
        later = [at_s + 60 for at_s in undisturbed.intended_s[before:]]
        assert bench.intended_s[before:] == pytest.approx(later)

    def test_that_a_rate_changed_during_the_pause_holds_after_it(self, bench: Bench) -> None:
        bench.run(ConstantRate(rate_per_s=1))
        bench.clock.advance(1.5)
        bench.obey(PauseLoad())
        bench.clock.advance(100)
        bench.run(ConstantRate(rate_per_s=10))
        bench.clock.advance(100)
        bench.obey(ResumeLoad())
        bench.clock.advance(0.2)
        assert bench.intended_s == pytest.approx([101.0, 301.55, 301.65])

    def test_that_another_pattern_waits_for_the_end_of_the_pause_too(self, bench: Bench) -> None:
        bench.run(ConstantRate(rate_per_s=1))
        bench.obey(PauseLoad())
        bench.run(Burst(count=3))
        bench.clock.advance(5)
        assert bench.outstanding == 0
        bench.run(ClosedLoop(users=3))
        bench.clock.advance(5)
        assert bench.outstanding == 0
        bench.obey(ResumeLoad())
        bench.clock.advance(5)
        assert (bench.outstanding, set(bench.intended_s)) == (3, {110.0})

    def test_that_users_answered_during_the_pause_go_on_as_far_apart_as_they_were_answered(self, bench: Bench) -> None:
        bench.run(ClosedLoop(users=2))
        bench.obey(PauseLoad())
        for flight in list(bench.sender.started):
            bench.clock.advance(1)
            bench.sender.conclude(flight)
        bench.clock.advance(8)
        assert bench.outstanding == 0
        bench.obey(ResumeLoad())
        bench.clock.advance(2)
        assert bench.intended_s[2:] == [111.0, 112.0]

    def test_that_users_that_come_during_the_pause_begin_at_its_end(self, bench: Bench) -> None:
        bench.run(ClosedLoop(users=1))
        bench.obey(PauseLoad())
        bench.clock.advance(59)
        bench.run(ClosedLoop(users=3))
        bench.clock.advance(1)
        assert bench.outstanding == 1
        bench.obey(ResumeLoad())
        bench.clock.advance(1)
        assert bench.intended_s[1:] == [160.0, 160.0]

    def test_that_what_is_under_way_goes_on(self, bench: Bench) -> None:
        bench.run(Burst(count=2))
        bench.obey(PauseLoad())
        bench.sender.conclude_all()
        assert bench.generator.totals().ok == 2

    def test_that_a_stopped_load_is_not_paused(self, bench: Bench) -> None:
        bench.run(ClosedLoop(users=2))
        bench.obey(PauseLoad())
        bench.obey(StopLoad())
        assert not bench.generator.is_paused
        bench.run(ClosedLoop(users=2))
        assert bench.outstanding == 4

    def test_that_pausing_nothing_pauses_nothing(self, bench: Bench) -> None:
        bench.obey(PauseLoad())
        bench.obey(ResumeLoad())
        bench.run(ClosedLoop(users=2))
        assert bench.outstanding == 2


class TestWhatIsAsked:
    def test_that_a_seed_asks_the_same_whatever_the_rate(self) -> None:
        asked = []
        for rate_per_s in (1.0, 100.0):
            bench = Bench()
            lengths = {"max_tokens": UniformLength(low=1, high=99), "prompt_words": UniformLength(low=2, high=9)}
            bench.run(Poisson(rate_per_s=rate_per_s), ("a b", "c d", "e f"), seed=3, **lengths)
            bench.clock.advance(100)
            asked.append([(flight.prompt, flight.max_tokens) for flight in bench.sender.started[:50]])
        assert len(asked[0]) == 50
        assert asked[0] == asked[1]

    def test_that_a_dropped_arrival_does_not_shift_what_the_next_asks(self) -> None:
        bench, undisturbed = Bench(), Bench()
        for each, most in ((bench, 1), (undisturbed, 100)):
            each.run(ConstantRate(rate_per_s=1), tuple("abcdefg"), max_outstanding=most)
            each.clock.advance(3)
        assert bench.generator.totals().dropped == 2
        bench.sender.conclude_all()
        for each in (bench, undisturbed):
            each.clock.advance(1)
        assert bench.sender.started[1].prompt == undisturbed.sender.started[3].prompt


class TestReplay:
    @pytest.fixture
    def trace(self, tmp_path: Path) -> Path:
        path = tmp_path / "trace.jsonl"
        path.write_text(
            '{"offset_s": 1, "prompt": "first", "max_tokens": 7}\n'
            '{"offset_s": 2, "prompt_words": 3}\n'
            '{"offset_s": 4, "prompt": "last"}\n'
        )
        return path

    def test_that_a_trace_is_replayed_and_the_load_is_over(self, bench: Bench, trace: Path) -> None:
        bench.run(Trace(path=str(trace), time_scale=2.0), ("a", "a"), max_tokens=5)
        bench.clock.advance(7)
        assert bench.generator.pattern is not None
        bench.clock.advance(1)
        assert bench.generator.pattern is None
        assert bench.intended_s == [102.0, 104.0, 108.0]
        asked = [(flight.prompt, flight.max_tokens) for flight in bench.sender.started]
        assert asked == [("first", 7), ("a a a", 5), ("last", 5)]

    def test_that_prompts_change_without_losing_the_place_in_the_trace(self, bench: Bench, trace: Path) -> None:
        bench.run(Trace(path=str(trace)), ("a",))
        bench.clock.advance(1)
        bench.run(Trace(path=str(trace)), ("b",))
        bench.clock.advance(5)
        assert [flight.prompt for flight in bench.sender.started] == ["first", "b b b", "last"]

    def test_that_a_bad_line_is_named_and_what_runs_goes_on(self, bench: Bench, trace: Path) -> None:
        bench.run(ClosedLoop(users=1))
        trace.write_text('{"offset_s": 1}\n{"offset_s": "soon"}\n')
        bench.run(Trace(path=str(trace)))
        assert bench.journal.refusals[0].startswith("Line 2 of trace.jsonl is not an arrival: ")
        assert bench.generator.pattern == ClosedLoop(users=1)

    def test_that_a_trace_without_prompts_needs_the_loads(self, bench: Bench, trace: Path) -> None:
        bench.run(Trace(path=str(trace)), ())
        assert bench.journal.refusals == ["A load needs at least one prompt."]
        trace.write_text('{"offset_s": 0, "prompt": "own"}\n')
        bench.run(Trace(path=str(trace)), ())
        assert [flight.prompt for flight in bench.sender.started] == ["own"]


class TestChange:
    def test_that_another_pattern_takes_over_without_a_gap(self, bench: Bench) -> None:
        bench.run(Poisson(rate_per_s=0.01))
        bench.clock.advance(1)
        bench.run(ClosedLoop(users=3))
        assert bench.outstanding == 3
        bench.run(Burst(count=4))
        assert bench.outstanding == 7
        bench.sender.conclude_all()
        bench.clock.advance(1000)
        assert bench.outstanding == 0

    def test_that_a_load_without_prompts_is_refused_and_the_running_one_goes_on(self, bench: Bench) -> None:
        bench.run(ClosedLoop(users=3))
        bench.run(ClosedLoop(users=9), prompts=())
        assert bench.journal.refusals == ["A load needs at least one prompt."]
        assert bench.generator.pattern == ClosedLoop(users=3)

    def test_that_another_seed_begins_another_sequence(self, bench: Bench) -> None:
        other = Bench()
        bench.run(Poisson(rate_per_s=10), seed=5)
        other.run(Poisson(rate_per_s=10), seed=4)
        other.run(Poisson(rate_per_s=10), seed=5)
        for each in (bench, other):
            each.clock.advance(5)
        assert bench.intended_s == other.intended_s


def answered(bench: Bench, text: str, outcome: ClientOutcome = "ok") -> None:
    """The oldest request under way ends so, its text in two pieces."""
    flight = next(iter(bench.sender.under_way.values()))
    flight.add_text(text[:1])
    flight.add_text(text[1:])
    bench.sender.conclude(flight, Answer(outcome))


def repetition(bench: Bench) -> tuple[int, int]:
    totals = bench.generator.totals()
    return totals.repeated, totals.differing


class TestRepeatedAnswers:
    def test_that_those_unlike_the_most_frequent_of_their_prompt_are_counted(self, bench: Bench) -> None:
        bench.obey(Fire(prompts=("a",), copies=4))
        counted = []
        for text in ("one", "two", "two", "one more"):
            answered(bench, text)
            counted.append(repetition(bench))
        assert counted == [(0, 0), (2, 1), (3, 1), (4, 2)]

    def test_that_prompts_and_lengths_are_compared_apart(self, bench: Bench) -> None:
        bench.obey(Fire(prompts=("a", "b"), max_tokens=5))
        bench.obey(Fire(prompts=("a",), max_tokens=6))
        for text in ("one", "two", "three"):
            answered(bench, text)
        assert repetition(bench) == (0, 0)

    @pytest.mark.parametrize("outcome", ["failed", "cancelled", "refused"])
    def test_that_what_is_not_answered_does_not_count(self, bench: Bench, outcome: ClientOutcome) -> None:
        bench.obey(Fire(prompts=("a",), copies=2))
        answered(bench, "one")
        answered(bench, "on", outcome)
        assert repetition(bench) == (0, 0)

    def test_that_answers_that_are_drawn_do_not_count(self, bench: Bench) -> None:
        bench.obey(Fire(prompts=("a",), copies=2, temperature=0.5))
        answered(bench, "one")
        answered(bench, "two")
        assert repetition(bench) == (0, 0)

    def test_that_the_next_load_forgets_them_and_the_end_of_one_does_not(self, bench: Bench) -> None:
        bench.run(Burst(count=2), prompts=("a",))
        answered(bench, "one")
        bench.obey(StopLoad())
        answered(bench, "two")
        assert repetition(bench) == (2, 1)
        bench.run(Burst(count=1), prompts=("a",))
        answered(bench, "three")
        assert repetition(bench) == (0, 0)

    def test_that_a_service_that_is_gone_makes_forget_them(self, bench: Bench) -> None:
        bench.obey(Fire(prompts=("a",), copies=4))
        answered(bench, "one")
        answered(bench, "two")
        bench.sender.conclude(next(iter(bench.sender.under_way.values())), Answer("failed", "", is_unreachable=True))
        answered(bench, "three")
        assert repetition(bench) == (0, 0)


class TestCancel:
    def test_that_only_those_named_are_broken_off(self, bench: Bench) -> None:
        bench.obey(Fire(prompts=("a",), copies=3))
        first, second, third = bench.sender.started
        bench.obey(Cancel(ids=(second.id, "unknown")))
        assert [flight.outcome for flight in (first, second, third)] == [None, "cancelled", None]

    def test_that_all_are_broken_off_and_the_load_goes_on(self, bench: Bench) -> None:
        bench.obey(Fire(prompts=("a",), copies=3))
        bench.run(ClosedLoop(users=2))
        bench.obey(Cancel())
        assert bench.generator.totals().cancelled == 5
        assert bench.outstanding == 2


class TestUnreachable:
    def test_that_a_load_stops_itself_after_two_seconds_without_a_server_and_says_so(self, bench: Bench) -> None:
        bench.run(ClosedLoop(users=2))
        for _ in range(10):
            bench.sender.conclude_all(UNREACHABLE)
            bench.clock.advance(0.5)
        assert bench.generator.pattern is None
        assert bench.journal.refusals == [
            "The load was stopped. http://x cannot be reached: connection refused.",
        ]
        assert not bench.generator.is_busy

    def test_that_one_answer_shows_that_the_server_is_there(self, bench: Bench) -> None:
        bench.run(ClosedLoop(users=2))
        for _ in range(10):
            bench.sender.conclude(bench.sender.started[-1], UNREACHABLE)
            bench.clock.advance(0.5)
            bench.sender.conclude(bench.sender.started[-1], Answer("refused", "full", retry_after_s=0.0))
        assert bench.generator.pattern == ClosedLoop(users=2)
        assert bench.journal.refusals == []

    def test_that_the_load_can_be_run_again(self, bench: Bench) -> None:
        bench.run(ClosedLoop(users=1))
        for _ in range(10):
            bench.sender.conclude_all(UNREACHABLE)
            bench.clock.advance(0.5)
        bench.run(ClosedLoop(users=1))
        bench.sender.conclude_all(UNREACHABLE)
        bench.clock.advance(0.5)
        assert bench.generator.pattern == ClosedLoop(users=1)


PATTERNS = st.one_of(
    st.builds(Burst, count=st.integers(1, 80)),
    st.builds(
        ClosedLoop,
        users=st.integers(1, 12),
        think_s=st.sampled_from([0.0, 0.3]),
        think=st.sampled_from(["fixed", "exponential"]),
    ),
    st.builds(Poisson, rate_per_s=st.floats(0.1, 100)),
    st.builds(ConstantRate, rate_per_s=st.floats(0.1, 100)),
    st.builds(GammaArrivals, rate_per_s=st.floats(0.1, 100), shape=st.floats(0.1, 10)),
    st.builds(OnOff, rate_per_s=st.floats(1, 100), on_s=st.floats(0.1, 3), off_s=st.floats(0.1, 3)),
    st.builds(Ramp, rate_per_s=st.floats(1, 100), rate_to_per_s=st.floats(1, 100), over_s=st.floats(0.1, 9)),
    st.builds(Steps, rates_per_s=st.tuples(st.floats(1, 50), st.floats(1, 50)), step_s=st.floats(0.1, 3)),
)
ANSWERS = st.sampled_from(
    [Answer("ok"), Answer("failed", "500"), Answer("refused", "full", retry_after_s=0.2), UNREACHABLE]
)


class AnyOrder(RuleBasedStateMachine):
    """Whatever is commanded, answered and broken off in whatever order: the ledger balances."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench(max_connections=150)

    @rule(pattern=PATTERNS, seed=st.integers(0, 2), max_outstanding=st.integers(1, 60))
    def run_load(self, pattern: Pattern, seed: int, max_outstanding: int) -> None:
        self.bench.run(pattern, ("a", "b"), seed=seed, max_outstanding=max_outstanding)

    @rule(copies=st.integers(1, 20))
    def fire(self, copies: int) -> None:
        self.bench.obey(Fire(prompts=("a", "b"), copies=copies))

    @rule()
    def stop(self) -> None:
        self.bench.obey(StopLoad())

    @rule()
    def pause(self) -> None:
        self.bench.obey(PauseLoad())

    @rule()
    def resume(self) -> None:
        self.bench.obey(ResumeLoad())

    @rule()
    def cancel_all(self) -> None:
        self.bench.obey(Cancel())

    @precondition(lambda self: self.bench.sender.started)
    @rule(data=st.data())
    def cancel_some(self, data: st.DataObject) -> None:
        chosen = data.draw(st.lists(st.sampled_from(self.bench.sender.started[-30:]), max_size=10))
        self.bench.obey(Cancel(ids=tuple(flight.id for flight in chosen)))

    @precondition(lambda self: self.bench.sender.under_way)
    @rule(answer=ANSWERS, share=st.floats(0, 1))
    def answer(self, answer: Answer, share: float) -> None:
        flights = list(self.bench.sender.under_way.values())
        for flight in flights[: 1 + int(share * len(flights))]:
            self.bench.sender.conclude(flight, answer)

    @rule(seconds=st.floats(0, 3))
    def wait(self, seconds: float) -> None:
        self.bench.clock.advance(seconds)

    @invariant()
    def the_ledger_balances(self) -> None:
        totals = self.bench.generator.totals()
        check_ledger(totals)
        started = self.bench.sender.started
        assert totals.sent == len(started)
        assert totals.outstanding == self.bench.outstanding == sum(f.outcome is None for f in started)
        for outcome in ("ok", "failed", "refused", "cancelled"):
            assert getattr(totals, outcome) == sum(f.outcome == outcome for f in started)

    def teardown(self) -> None:
        self.bench.obey(StopLoad())
        self.bench.obey(Cancel())
        self.bench.clock.advance(60)
        assert not self.bench.generator.is_busy
        assert self.bench.clock.pending == 0


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
