"""What the window shows of a service that is late: what was heard last, marked as that, and no failure."""

from __future__ import annotations

import signal

import pytest
from pytestqt.qtbot import QtBot

from gui.app import Batchscope
from tests.window.children import scripted
from tests.window.conftest import MakeBatchscope
from tests.window.scripted_service import LOSE_REPLICA
from tests.window.test_app import kill_service, loaded, outcomes, rows


def states_seen(batchscope: Batchscope) -> set[str]:
    """The states of requests that the table takes on from now on."""
    seen: set[str] = set()
    batchscope.composition.presenter.numbers_shown.connect(lambda: seen.update(outcomes(batchscope)))
    return seen


@pytest.mark.promise("T07")
def test_that_a_late_service_is_shown_as_last_heard_and_nothing_has_failed(
    qtbot: QtBot, make_batchscope: MakeBatchscope
) -> None:
    batchscope = loaded(qtbot, make_batchscope)
    states, history, window = states_seen(batchscope), batchscope.composition.history, batchscope.window

    kill_service(batchscope, signal.SIGSTOP)
    qtbot.waitUntil(lambda: window.status.activity.text().startswith("Nothing heard for"))
    qtbot.waitUntil(lambda: {row.second_line(0.0) for row in rows(batchscope)} >= {"was running when last heard"})
    plots = batchscope.composition.plots
    running, waiting = (plots.queue_depth.header.readout[stage] for stage in ("running", "waiting"))
    assert (int(running), int(running) + int(waiting)) == (16, 20), "of the moment that was heard last"
    qtbot.waitUntil(lambda: window.figures.figure("requests_per_s").before.startswith("at "))
    plots.queue_depth.point_at(history.now_s())
    assert plots.queue_depth.header.readout == {}, "nothing is known of now"
    plots.queue_depth.point_at(None)

    kill_service(batchscope, signal.SIGCONT)
    qtbot.waitUntil(lambda: outcomes(batchscope) == ["done"] * 20)
    qtbot.waitUntil(lambda: not window.status.activity.text().startswith("Nothing heard"))
    assert states <= {"waiting", "formed", "running", "done"}
    assert batchscope.errors == []
    assert list(history.outages) == []
    assert [silence.text.rpartition(" for ")[0] for silence in history.silences] == ["r1 silent"]


@pytest.mark.promise("T07")
def test_that_a_process_that_ended_is_named_until_another_answers(
    qtbot: QtBot, make_batchscope: MakeBatchscope
) -> None:
    batchscope = loaded(qtbot, make_batchscope)
    verdict, log = batchscope.window.verdict, batchscope.window.log

    kill_service(batchscope, LOSE_REPLICA)
    qtbot.waitUntil(lambda: verdict.text.startswith("The last replica ended "))
    assert verdict.text.endswith(" ago: Ray Serve starts another.")
    assert "The last replica ended unexpectedly. Ray Serve starts another." in log.text()

    kill_service(batchscope, signal.SIGCONT)
    qtbot.waitUntil(lambda: "replica" not in verdict.text)
    qtbot.waitUntil(lambda: outcomes(batchscope) == ["done"] * 20)
    assert batchscope.errors == []


def test_that_a_service_that_nothing_was_asked_of_yet_is_not_called_ready_meanwhile(
    qtbot: QtBot, make_batchscope: MakeBatchscope
) -> None:
    batchscope = make_batchscope(scripted())
    batchscope.window.toolbar.take_step()
    qtbot.waitUntil(lambda: batchscope.window.verdict.text.startswith("Ready: "))

    kill_service(batchscope, LOSE_REPLICA)
    qtbot.waitUntil(lambda: batchscope.window.verdict.text.startswith("The last replica ended "))
    kill_service(batchscope, signal.SIGCONT)
    qtbot.waitUntil(lambda: batchscope.window.verdict.text.startswith("Ready: "))
