"""The planted bugs can be planted: each changes one place of the program as it is now."""

from __future__ import annotations

import pytest

from service.messages.pipes import SOURCE_ROOT
from tests.planted.__main__ import TEST_FILES
from tests.planted.bugs import BUGS, PROMISES, Bug


def test_that_the_tests_that_look_for_them_are_there() -> None:
    assert [file for file in TEST_FILES if not (SOURCE_ROOT / file).exists()] == []


def test_that_each_promise_is_broken_by_a_bug_that_tests_of_it_look_for() -> None:
    assert list(PROMISES) == [f"T{number:02}" for number in range(1, 28)]
    for promise, (tests, _) in PROMISES.items():
        assert f'"{promise}"' in (SOURCE_ROOT / "tests" / f"{tests}.py").read_text()


@pytest.mark.parametrize(
    "bug", dict.fromkeys([*BUGS, *(bug for _, bug in PROMISES.values())]), ids=lambda bug: bug.name
)
def test_that_the_place_of_each_is_there_once(bug: Bug) -> None:
    assert (SOURCE_ROOT / bug.path).read_text().count(bug.before) == 1
    assert bug.after != bug.before
