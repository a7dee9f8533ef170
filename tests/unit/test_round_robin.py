"""Slow work takes turns: one task a frame, the one that has been due longest."""

from __future__ import annotations

from gui.control.clocks import RoundRobin
from tests.synthetic_run import FakeClock


def test_that_each_turn_runs_one_task() -> None:
    done: list[str] = []
    round_robin = RoundRobin(FakeClock(1.0))
    round_robin.add(lambda: done.append("rows"), 0.1)
    round_robin.add(lambda: done.append("numbers"), 0.25)
    for expected in (["rows"], ["rows", "numbers"], ["rows", "numbers"]):
        round_robin.take()
        assert done == expected


def test_that_what_is_due_longest_comes_first() -> None:
    clock, done = FakeClock(1.0), list[str]()
    round_robin = RoundRobin(clock)
    round_robin.add(lambda: done.append("seldom"), 10.0)
    round_robin.add(lambda: done.append("often"), 1.0)
    for clock.now_s in (1.0, 1.0, 30.0, 30.0):
        round_robin.take()
    assert done == ["seldom", "often", "often", "seldom"]


def test_that_a_late_turn_is_not_made_up_for() -> None:
    clock, done = FakeClock(1.0), list[str]()
    round_robin = RoundRobin(clock)
    round_robin.add(lambda: done.append("numbers"), 0.25)
    for clock.now_s in (1.0, 9.0, 9.0):
        round_robin.take()
    assert len(done) == 2
