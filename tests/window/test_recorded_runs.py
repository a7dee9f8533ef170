"""The window on recordings of real runs; `python -m tests.recordings.make` records them anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from gui.app import Batchscope
from service.analysis.recording.reader import open_recording

FOLDER = Path(__file__).parents[1] / "recordings"
RUNS = ("late", "early", "continuous", "burst")
SEALED_EARLY = "sealed"
Show = Callable[[str], Batchscope]


@pytest.fixture
def show(qtbot: QtBot, batchscope: Batchscope) -> Show:
    """Opens one of the recordings in the window."""

    def show(name: str) -> Batchscope:
        with qtbot.waitSignal(batchscope.composition.recordings.changed):
            batchscope.composition.recordings.open(FOLDER / f"{name}.bsr")
        return batchscope

    return show


@pytest.mark.parametrize("name", RUNS)
def test_that_every_request_of_a_real_run_is_there_with_its_words(qtbot: QtBot, show: Show, name: str) -> None:
    recorded = open_recording(FOLDER / f"{name}.bsr").history.requests.rows()
    model = show(name).window.requests.model
    qtbot.waitUntil(lambda: len(model.rows()) == len(recorded))

    assert len(recorded) >= 60
    assert all(row.prompt for row in model.rows())
    assert all(row.text for row in model.rows() if row.state == "done")


@pytest.mark.parametrize("name", RUNS)
def test_that_one_can_go_through_a_real_run_from_beginning_to_end(qtbot: QtBot, show: Show, name: str) -> None:
    batchscope = show(name)
    plots, overview = batchscope.composition.plots, batchscope.composition.recordings.bar.overview
    batchscope.composition.look_at(5.0)
    batchscope.composition.recordings.follow()
    qtbot.keyClick(overview, Qt.Key.Key_Home)
    shown = []
    while not shown or plots.view_end_s() > shown[-1]:
        shown.append(plots.view_end_s())
        batchscope.composition.presenter.show_numbers()
        qtbot.keyClick(overview, Qt.Key.Key_PageDown)

    assert shown[-1] == pytest.approx(batchscope.composition.history.now_s())
    assert shown[-1] - shown[0] == pytest.approx(batchscope.composition.history.kept_s - 5.0)
    assert batchscope.errors == []


def test_that_early_sealing_is_named_in_the_run_that_has_it_and_not_in_the_other(show: Show) -> None:
    named = {}
    for name in ("early", "late"):
        batchscope = show(name)
        batchscope.composition.presenter.show_numbers()
        window = batchscope.window
        named[name] = " ".join([window.verdict.text, *window.findings.titles()]).lower()

    assert SEALED_EARLY in named["early"]
    assert SEALED_EARLY not in named["late"]


def test_that_requests_that_join_a_running_batch_have_their_first_token_sooner(show: Show) -> None:
    history = show("continuous").composition.history
    columns = history.requests.columns
    first_s = columns["first_token"] - columns["queued"]
    done = np.isfinite(first_s)
    (regime,) = (each for each in history.batches.regimes if each.mark is not None)
    under = columns["regime"] == regime.number

    assert regime.mark is not None
    assert regime.mark.text == "formation late → continuous"
    assert np.median(first_s[done & under]) < np.median(first_s[done & ~under]) / 3


def test_that_a_burst_is_seen_to_fill_its_batches(show: Show) -> None:
    batchscope = show("burst")
    history = batchscope.composition.history

    sizes = history.batches.columns["size"]
    assert sizes.max() == 32
    assert 16 in sizes.tolist()
    assert [mark.text for mark in history.batches.marks()][-1].startswith("max_batch_size 16 → 32")
