"""Rows of like length are decoded as one batch, so that a short one does not pay for a long one."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from service.engine.engine import TextEngine
from service.engine.groups import like_the_first
from service.engine.job import Progress, SamplingParams
from service.engine.job import Sequence as Prompt
from service.engine.model.passes import ForwardPass, Part
from service.engine.row import Row
from tests.unit.tiny_models import run

FREE_PADDING = 16


@pytest.fixture(autouse=True)
def little_padding_is_free(tiny_engine: TextEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiny_engine.forward, "free_padding", FREE_PADDING)


class Read(NamedTuple):
    """What a part of a pass attends to: how many rows to how many columns, and how many of these are no padding."""

    rows: int
    columns: int
    own: int

    @classmethod
    def of(cls, part: Part) -> Read:
        rows, columns = len(part.ids), part.cache.length + part.ids.shape[1]
        return cls(rows, rows * columns, rows * columns if part.mask is None else int(part.mask.sum()))


class Steps:
    """A forward pass that notes what it reads."""

    def __init__(self, compute: ForwardPass) -> None:
        self.parts: list[list[Read]] = []
        self._compute = compute

    def __call__(self, parts: Sequence[Part]) -> torch.Tensor:
        self.parts.append([Read.of(part) for part in parts])
        return self._compute(parts)


@pytest.fixture
def steps(tiny_engine: TextEngine, monkeypatch: pytest.MonkeyPatch) -> Steps:
    steps = Steps(tiny_engine.forward.compute)
    monkeypatch.setattr(tiny_engine.forward, "compute", steps)
    return steps


_numbers = itertools.count()


def prompt(length: int, max_tokens: int) -> Prompt:
    return Prompt(str(next(_numbers)), [1 + i % 60 for i in range(length)], SamplingParams(max_tokens=max_tokens))


def test_that_beside_a_long_row_short_ones_read_little_more_than_their_own_columns(
    tiny_engine: TextEngine, steps: Steps
) -> None:
    run(tiny_engine, *(prompt(length, 8) for length in (100, 5, 6, 6, 7, 7, 8, 8)))
    steps_of_all = [parts for parts in steps.parts if sum(part.rows for part in parts) == 8]
    assert {len(parts) for parts in steps_of_all} == {2}
    for parts in steps_of_all:
        assert sum(part.columns for part in parts) <= 1.3 * sum(part.own for part in parts)


def test_that_groups_become_one_as_soon_as_that_costs_little(tiny_engine: TextEngine, steps: Steps) -> None:
    """Some 8 columns of padding each: little for two rows, but not for three."""
    run(tiny_engine, prompt(20, 12), prompt(12, 12), prompt(12, 6), prompt(12, 8), prompt(12, 12))
    groups = [len(parts) for parts in steps.parts]
    last_of_two = len(groups) - 1 - groups[::-1].index(2)
    [merged] = steps.parts[last_of_two + 1]
    assert merged.rows == 3


@pytest.mark.parametrize("lengths", [(60, 5), (5, 60)], ids=["a short one comes", "a long one comes"])
def test_that_a_request_that_joins_is_a_group_of_its_own_where_it_is_of_another_length(
    tiny_engine: TextEngine, steps: Steps, lengths: tuple[int, int]
) -> None:
    first, other = (prompt(length, 12) for length in lengths)
    coming = [[other]]

    def admit(work: object, can_join: bool) -> list[Prompt]:
        return coming.pop() if coming and can_join else []

    progress: list[Progress] = []
    tiny_engine.generate([first], progress.extend, admit)
    assert [each.finish_reason for each in progress if each.finish_reason] == ["length"] * 2
    assert max(len(parts) for parts in steps.parts) == 2
    assert all(part.columns == part.own for parts in steps.parts for part in parts)
    alone = [prompt(length, 12) for length in lengths]
    for each in alone:
        run(tiny_engine, each)
    assert [first.tokens, other.tokens] == [each.tokens for each in alone]


@given(lengths=st.lists(st.integers(1, 100), min_size=1, max_size=20), free_padding=st.integers(0, 200))
def test_that_a_group_holds_the_first_row_and_no_more_padding_than_is_free(
    tiny_engine: TextEngine, lengths: list[int], free_padding: int
) -> None:
    rows = tiny_engine._rows([prompt(length, 1) for length in lengths])
    group = like_the_first(rows, free_padding)
    widths = [row.length for row in group]
    assert group[0] is rows[0]
    assert len(group) * max(widths) - sum(widths) <= free_padding
    assert like_the_first(rows, None) == rows
    assert is_in_order(group, rows)


def is_in_order(group: list[Row], rows: list[Row]) -> bool:
    places = [rows.index(row) for row in group]
    return places == sorted(places)
