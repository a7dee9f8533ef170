"""Slow work takes turns: one piece a frame, the one that has been due longest."""

from __future__ import annotations

from gui.control.clocks import Turns
from tests.synthetic_run import FakeClock


def test_that_each_turn_does_one_piece() -> None:
    done: list[str] = []
    turns = Turns(FakeClock(1.0))
    turns.add(lambda: done.append("rows"), 0.1)
    turns.add(lambda: done.append("numbers"), 0.25)
    for expected in (["rows"], ["rows", "numbers"], ["rows", "numbers"]):
        turns.take()
        assert done == expected


def test_that_what_is_due_longest_comes_first() -> None:
    clock, done = FakeClock(1.0), list[str]()
    turns = Turns(clock)
    turns.add(lambda: done.append("seldom"), 10.0)
    turns.add(lambda: done.append("often"), 1.0)
    for clock.now_s in (1.0, 1.0, 30.0, 30.0):
        turns.take()
    assert done == ["seldom", "often", "often", "seldom"]


def test_that_a_late_turn_is_not_made_up_for() -> None:
    clock, done = FakeClock(1.0), list[str]()
    turns = Turns(clock)
    turns.add(lambda: done.append("numbers"), 0.25)
    for clock.now_s in (1.0, 9.0, 9.0):
        turns.take()
    assert len(done) == 2
