"""The view in which a goal is searched for and held, on the scripted service or on a run that never happened."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from gui.app import Batchscope
from gui.comparing.goal import GoalView
from gui.comparing.goal_controller import GOAL_CHANGED, NEEDS_GOAL, NEEDS_REPLICA, NEEDS_REQUESTS
from gui.comparing.hold import OFF, ON
from gui.comparing.view import CompareView
from gui.panels.views import COMPARE, GOAL, LIVE
from gui.session.lifecycle import LifeCycle
from service.messages.load import ClosedLoop
from service.messages.objectives import Objectives
from service.messages.settings import PLACES_FOR_REQUESTS, Scale, Settings, SettingsChange
from tests.synthetic_run import Step, SyntheticRun, filled_history
from tests.window.children import scripted
from tests.window.conftest import MakeBatchscope, start_service
from tests.window.seen import settings_in_force

CALM = Settings(max_batch_size=8)
LIMIT_S = 1.2
FEW = 10  # requests that a replica runs at a time, so that few settings are searched


@pytest.fixture
def loaded(batchscope: Batchscope) -> Iterator[Batchscope]:
    """The window of a service that has run under load for a minute."""
    composition = batchscope.composition
    run = SyntheticRun(60.0, (Step(0.0, 4.0, CALM),), seed=4, max_ongoing_requests=FEW + PLACES_FOR_REQUESTS)
    composition.history.become(filled_history(run)[0])
    composition.session.state = LifeCycle.RUNNING
    yield batchscope
    composition.session.state = LifeCycle.NOT_STARTED


@pytest.fixture
def running(qtbot: QtBot, batchscope: Batchscope) -> Batchscope:
    """The window with a service that answers, of which only the smallest batches are searched."""
    batchscope.window.batching.redeployment.show_scale(Scale(max_ongoing_requests=2 + PLACES_FOR_REQUESTS))
    start_service(qtbot, batchscope)
    return batchscope


def goal_view(batchscope: Batchscope) -> GoalView:
    batchscope.window.views.show_view(GOAL)
    view = batchscope.window.views.pages.currentWidget()
    assert isinstance(view, GoalView)
    batchscope.composition.goal.refresh()
    return view


def enter(batchscope: Batchscope, seconds: float) -> GoalView:
    view = goal_view(batchscope)
    view.row.limit.entered.emit(seconds)
    batchscope.composition.goal.refresh()
    return view


def searched(qtbot: QtBot, batchscope: Batchscope, seconds: float = LIMIT_S) -> GoalView:
    view = enter(batchscope, seconds)
    qtbot.mouseClick(view.row.button, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: bool(view.results.rows))
    return view


def test_that_nothing_can_be_searched_or_held_before_there_is_a_service(batchscope: Batchscope) -> None:
    view = enter(batchscope, LIMIT_S)
    assert not view.row.button.isEnabled()
    assert not view.hold.switch.isEnabled()
    assert "service" in view.row.button.toolTip()


def test_that_a_goal_is_asked_for_first(loaded: Batchscope) -> None:
    view = goal_view(loaded)
    assert (view.row.button.isEnabled(), view.row.button.toolTip()) == (False, NEEDS_GOAL)
    assert not view.hold.switch.isEnabled()


def test_that_the_goal_is_what_the_objectives_under_load_are(loaded: Batchscope) -> None:
    view, rows = enter(loaded, LIMIT_S), loaded.window.load.objectives
    assert rows.objectives == Objectives(latency_s=LIMIT_S)
    assert loaded.composition.history.objectives == rows.objectives

    rows.set_objectives(Objectives(ttft_s=0.3))
    rows.changed.emit(rows.objectives)
    loaded.composition.goal.refresh()
    assert view.row.kind.text() == "TTFT p95"
    assert view.row.limit.number == 0.3

    view.row.choose_kind("latency_s")
    loaded.composition.goal.refresh()
    assert view.row.kind.text() == "p95", "it stays chosen before a time is entered"
    view.row.limit.entered.emit(1.0)
    assert rows.objectives == Objectives(latency_s=1.0, ttft_s=0.3), "what is asked of other times stays"


def test_that_a_search_ends_with_the_cheapest_that_holds(qtbot: QtBot, loaded: Batchscope, tmp_path: Path) -> None:
    view = searched(qtbot, loaded)
    results, best = view.results, view.results.chosen_candidate

    assert best is not None
    assert best.holds
    assert best.settings.max_batch_size <= FEW
    assert results.verdict.text().endswith(f"is {best.text}.")
    assert best.text in results.rows[0].accessibleName()
    assert results.rows[0].isChecked()
    assert "settings simulated in" in loaded.window.views.remark
    assert results.measure.isEnabled()

    path = tmp_path / "goal.yaml"
    qtbot.mouseClick(results.rows[-1], Qt.MouseButton.LeftButton)
    other = results.chosen_candidate
    assert other is not None
    assert other != best
    loaded.composition.compare.write(path, loaded.composition.goal.config)
    config = yaml.safe_load(path.read_text())
    assert config["applications"][0]["args"]["settings"]["max_batch_size"] == other.settings.max_batch_size
    assert f"# {other.text}: the objectives are kept in" in path.read_text()


def test_that_where_none_holds_it_says_how_far_the_nearest_is(qtbot: QtBot, loaded: Batchscope) -> None:
    results = searched(qtbot, loaded, 0.2).results
    nearest = results.chosen_candidate
    assert nearest is not None
    assert results.verdict.text().startswith("In none of")
    assert "misses by" in results.verdict.text()
    assert len(results.rows) == 1
    assert not results.measure.isEnabled()
    assert results.apply.isEnabled(), "the nearest may do"
    qtbot.waitUntil(lambda: "More replicas do not help" in results.verdict.text())


def test_that_a_search_can_be_cancelled(qtbot: QtBot, loaded: Batchscope) -> None:
    view = enter(loaded, LIMIT_S)
    before = view.results.verdict.text()
    qtbot.mouseClick(view.row.button, Qt.MouseButton.LeftButton)
    assert view.row.button.text() == "Cancel"
    qtbot.mouseClick(view.row.button, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: view.row.button.text() == "Search")
    assert view.results.verdict.text() == before
    assert view.results.chosen_candidate is None
    assert loaded.errors == []


def test_that_too_little_to_simulate_from_is_a_sentence(qtbot: QtBot, running: Batchscope) -> None:
    view = enter(running, LIMIT_S)
    qtbot.mouseClick(view.row.button, Qt.MouseButton.LeftButton)
    assert view.results.verdict.text() == NEEDS_REQUESTS


def test_that_a_search_while_no_replica_runs_is_a_sentence(qtbot: QtBot, loaded: Batchscope) -> None:
    view = enter(loaded, LIMIT_S)
    loaded.composition.history.replicas = ()
    qtbot.mouseClick(view.row.button, Qt.MouseButton.LeftButton)
    assert view.results.verdict.text() == NEEDS_REPLICA
    assert loaded.errors == []


def test_that_a_search_ends_with_the_window(qtbot: QtBot, loaded: Batchscope) -> None:
    view = enter(loaded, LIMIT_S)
    qtbot.mouseClick(view.row.button, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: "simulated" in view.results.verdict.text())
    (search,) = [each for each in psutil.Process().children() if "goal" in each.cmdline()]
    loaded.composition.goal.finish()
    assert not search.is_running()


def test_that_the_best_are_measured_in_compare(qtbot: QtBot, running: Batchscope) -> None:
    batchscope = under_load(qtbot, running, CALM_USERS)
    view = searched(qtbot, batchscope, 30.0)
    qtbot.mouseClick(view.results.measure, Qt.MouseButton.LeftButton)
    assert batchscope.window.views.key == COMPARE
    compare = batchscope.window.views.pages.currentWidget()
    assert isinstance(compare, CompareView)
    assert batchscope.composition.compare.is_busy
    assert compare.sweep_setup.controls.button.text() == "Cancel"
    assert not view.hold.switch.isEnabled()
    with qtbot.waitSignal(batchscope.composition.compare.busy_changed):
        qtbot.mouseClick(compare.sweep_setup.controls.button, Qt.MouseButton.LeftButton)


BUSY_USERS = ClosedLoop(users=8)
CALM_USERS = ClosedLoop(users=2, think_s=0.1)  # few requests a second are quickly simulated


def under_load(qtbot: QtBot, running: Batchscope, users: ClosedLoop = BUSY_USERS, batches: int = 40) -> Batchscope:
    """Until that many batches have run; 40 are enough to predict from."""
    window, history = running.window, running.composition.history
    window.load.set_load(users, 4)
    window.load.toggle()
    qtbot.waitUntil(lambda: len(history.batches.columns) > batches)
    return running


def test_that_what_was_found_can_be_applied(qtbot: QtBot, running: Batchscope) -> None:
    view = searched(qtbot, under_load(qtbot, running, CALM_USERS), 30.0)
    best = view.results.chosen_candidate
    assert best is not None
    qtbot.mouseClick(view.results.apply, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: settings_in_force(running) == best.settings)


def test_that_hold_moves_settings_says_why_and_lets_go_when_the_user_moves_one(
    qtbot: QtBot, running: Batchscope
) -> None:
    running.composition.session.change_settings({"max_batch_size": 1})
    qtbot.waitUntil(lambda: settings_in_force(running).max_batch_size == 1)
    view = enter(under_load(qtbot, running), 0.5)
    qtbot.mouseClick(view.hold.switch.button(ON), Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: bool(view.hold.moves))

    change = view.hold.moves[0].change
    assert (change.previous.max_batch_size, change.settings.max_batch_size) == (1, 2)
    assert change.reason.startswith("Hold: rate ")
    assert "p95 would be" in change.reason
    qtbot.waitUntil(lambda: "moved by Hold" in running.window.batching.head)
    assert running.composition.goal.is_holding

    running.composition.session.change_settings({"max_batch_size": 3})
    qtbot.waitUntil(lambda: view.hold.switch.key == OFF)
    assert "Somebody else changed settings" in view.hold.note.text()
    assert settings_in_force(running).max_batch_size == 3, "what the user wants stays"


def test_that_a_move_is_undone_with_one_click(qtbot: QtBot, running: Batchscope) -> None:
    view, before = goal_view(running), settings_in_force(running)
    running.composition.session.change_settings({"max_batch_size": 3})
    qtbot.waitUntil(lambda: settings_in_force(running).max_batch_size == 3)
    now = settings_in_force(running)
    view.hold.add_move(
        SettingsChange(version=2, previous=before, settings=now, requested_s=0.0, in_force_s=0.0, reason="Hold: a test")
    )
    qtbot.mouseClick(view.hold.moves[0].undo, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: settings_in_force(running) == before)


def test_that_nothing_is_held_or_searched_while_something_has_the_service_to_itself(running: Batchscope) -> None:
    view = enter(running, 60.0)
    assert view.hold.switch.isEnabled()
    running.window.reserve("the lesson")
    assert not view.hold.switch.isEnabled()
    assert not view.row.button.isEnabled()
    assert view.row.button.toolTip() == "Waits for the lesson."
    running.window.reserve()
    assert view.row.button.isEnabled()


def test_that_the_verdict_says_how_the_goal_is_kept_and_offers_to_stop_hold(
    qtbot: QtBot, make_batchscope: MakeBatchscope
) -> None:
    # Answers that take a second, which a load generator on a busy machine does not spoil: else the verdict says that.
    running = make_batchscope(scripted("--step-s=0.25"))
    start_service(qtbot, running)
    view = enter(under_load(qtbot, running, batches=4), 60.0)
    qtbot.mouseClick(view.hold.switch.button(ON), Qt.MouseButton.LeftButton)
    line = running.window.verdict

    def is_kept() -> None:
        assert line.text.startswith("Goal kept: 100 % of the answers within 60 s")

    qtbot.waitUntil(is_kept)
    assert line.button.text() == "Stop Hold"

    running.window.views.show_view(LIVE)
    running.window.load.objectives.set_objectives(Objectives(latency_s=50.0))
    running.window.load.objectives.changed.emit(Objectives(latency_s=50.0))
    qtbot.waitUntil(lambda: not running.composition.goal.is_holding)
    assert view.hold.note.text() == GOAL_CHANGED
    running.window.views.show_view(GOAL)
    qtbot.mouseClick(view.hold.switch.button(ON), Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: line.text.startswith("Goal kept"))

    qtbot.mouseClick(line.button, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: not running.composition.goal.is_holding)
    assert view.hold.switch.key == OFF
    qtbot.waitUntil(lambda: line.text.startswith("All well"))
