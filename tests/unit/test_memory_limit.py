"""What is remembered of a batch that did not fit into memory."""

from __future__ import annotations

from service.engine.out_of_memory import REMEMBERED_S, MemoryLimit


def test_that_without_a_failure_all_rows_are_one_part() -> None:
    assert MemoryLimit().rows is None
    assert MemoryLimit().parts("abcde") == [list("abcde")]
    assert MemoryLimit().parts("") == [[]]


def test_that_rows_are_parted_evenly_into_as_few_as_fit() -> None:
    memory = MemoryLimit()
    memory.lower(4)

    assert [len(part) for part in memory.parts("abcdefghi")] == [3, 3, 3]
    assert [row for part in memory.parts("abcdefghi") for row in part] == list("abcdefghi")
    assert memory.parts("abcd") == [list("abcd")]


def test_that_a_limit_that_ends_meanwhile_still_parts() -> None:
    times_s = iter([0.0, 1.0, REMEMBERED_S + 1])
    memory = MemoryLimit(lambda: next(times_s))
    memory.lower(2)

    assert memory.parts("abcd") == [list("ab"), list("cd")]


def test_that_one_row_is_always_tried() -> None:
    memory = MemoryLimit()
    memory.lower(0)

    assert memory.rows == 1


def test_that_more_are_tried_again_after_a_while() -> None:
    now_s = [0.0]
    memory = MemoryLimit(lambda: now_s[0])
    memory.lower(2)
    now_s[0] = REMEMBERED_S - 1
    assert memory.rows == 2

    now_s[0] = REMEMBERED_S

    assert memory.rows is None
