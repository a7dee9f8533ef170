"""The planted bugs can be planted: each changes one place of the program as it is now."""

from __future__ import annotations

import pytest

from service.messages.pipes import SOURCE_ROOT
from tests.planted.__main__ import TEST_FILES
from tests.planted.bugs import BUGS, Bug


def test_that_the_tests_that_look_for_them_are_there() -> None:
    assert [file for file in TEST_FILES if not (SOURCE_ROOT / file).exists()] == []


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_that_the_place_of_each_is_there_once(bug: Bug) -> None:
    assert (SOURCE_ROOT / bug.path).read_text().count(bug.before) == 1
    assert bug.after != bug.before
