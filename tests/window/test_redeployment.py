"""Replicas and max_ongoing_requests in the window: asked for, under way, done, refused, taken back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from gui.app import Batchscope
from gui.control.preferences import Preferences, PreferencesFile
from gui.look import tokens
from gui.look.theme import Theme
from gui.panels.batching import BatchingPanel
from gui.panels.redeployment import MARK_MEANS, RedeploymentRows
from gui.session.lifecycle import LifeCycle
from service.messages.life import LoadProgress
from service.messages.options import ServiceOptions
from service.messages.settings import Scale
from service.messages.telemetry import Deployment
from tests.window.children import scripted
from tests.window.conftest import MakeBatchscope, start_service
from tests.window.seen import group
from tests.window.test_panels_settings import type_into

TWO = Scale(replicas=2)


@pytest.fixture
def batching(qtbot: QtBot, theme: Theme) -> BatchingPanel:
    panel = BatchingPanel()
    qtbot.addWidget(panel)
    panel.resize(tokens.WIDTH_LEFT, 600)
    panel.show()
    qtbot.waitExposed(panel)
    return panel


@pytest.fixture
def rows(batching: BatchingPanel) -> RedeploymentRows:
    return batching.redeployment


def seen(at_s: float, wanted: Scale, running: int, **how: object) -> Deployment:
    return Deployment(at_s=at_s, wanted=wanted, running=running, **how)  # type: ignore[arg-type]


def test_that_a_number_is_asked_for_once_and_stays_until_it_is_answered(rows: RedeploymentRows) -> None:
    wanted: list[dict[str, int]] = []
    rows.wanted.connect(wanted.append)
    type_into(rows.control("replicas").field, "2")
    rows.show_deployment(seen(1.0, Scale(), running=1))
    assert wanted == [{"replicas": 2}]
    assert (rows.scale, rows.control("replicas").number) == (TWO, 2)


def test_that_how_far_it_is_is_told_and_in_the_end_how_long_it_took(
    batching: BatchingPanel, rows: RedeploymentRows
) -> None:
    assert rows.news.text() == MARK_MEANS
    layers = LoadProgress(unit="layers", done=12, total=30)
    rows.show_deployment(seen(10.0, TWO, running=1, is_settled=False))
    rows.show_deployment(seen(11.0, TWO, running=1, is_settled=False, loading=layers))
    assert rows.news.text() == "1 of 2 replicas · 12 of 30 layers"
    assert group(batching, "Limits").summary == rows.news.text(), "also where the rows are folded away"
    rows.show_deployment(seen(12.4, TWO, running=2))
    assert rows.news.text() == "Redeployed in 2.4 s"
    assert group(batching, "Limits").summary == "1 · 256 · 2 replicas"


def test_that_a_replica_that_leaves_is_said_to_answer_first(rows: RedeploymentRows) -> None:
    rows.show_deployment(seen(1.0, Scale(), running=2, is_settled=False))
    assert rows.news.text() == "2 replicas, 1 to leave"
    rows.show_deployment(seen(2.0, Scale(), running=1, leaving=1, is_settled=False))
    assert rows.news.text() == "1 leaves when it has answered"


def test_that_a_refusal_stands_at_its_control_with_what_still_holds(rows: RedeploymentRows) -> None:
    type_into(rows.control("replicas").field, "3")
    rows.show_refusal("replicas", "2 more need about 1.2 GB of memory and 0.9 GB are free.")
    assert rows.control("replicas").refusal == "2 more need about 1.2 GB of memory and 0.9 GB are free. Still 1."
    assert rows.scale == Scale()


def test_that_a_number_out_of_bounds_is_refused_at_once(rows: RedeploymentRows) -> None:
    wanted: list[object] = []
    rows.wanted.connect(wanted.append)
    type_into(rows.control("max_ongoing_requests").field, "0")
    assert rows.control("max_ongoing_requests").refusal == "Must be from 3 to 999999. Still 100000."
    assert wanted == []


def test_that_what_was_taken_back_is_told_until_the_next_succeeds(rows: RedeploymentRows) -> None:
    rows.show_deployment(seen(1.0, TWO, running=1, is_settled=False))
    rows.show_deployment(seen(2.0, Scale(), running=1, failure="It could not be loaded."))
    assert (rows.failure, rows.news.text(), rows.control("replicas").number) == (
        "It could not be loaded.",
        MARK_MEANS,
        1,
    )
    rows.show_deployment(seen(3.0, TWO, running=1, is_settled=False))
    assert rows.failure is None


def test_that_a_change_that_could_not_be_sent_goes_back(rows: RedeploymentRows) -> None:
    type_into(rows.control("replicas").field, "2")
    rows.settle()
    assert rows.control("replicas").number == 1


def test_that_a_recording_says_what_was_so_then(rows: RedeploymentRows) -> None:
    rows.show_recorded(Scale(replicas=3, max_ongoing_requests=5))
    assert [rows.control(name).number for name in ("replicas", "max_ongoing_requests")] == [3, 5]
    assert rows.scale == Scale(), "what the user wants is another thing"
    rows.show_recorded(None)
    assert rows.control("replicas").number == 1


def test_that_a_finding_leads_to_a_row_that_was_folded_away(batching: BatchingPanel, rows: RedeploymentRows) -> None:
    group(batching, "Limits").set_folded(True)
    batching.focus_control("max_ongoing_requests")
    assert batching.focusWidget() is rows.control("max_ongoing_requests").field


def test_that_the_start_command_has_what_the_rows_say() -> None:
    start = replace(scripted(), options=ServiceOptions(replicas=3, max_ongoing_requests=5))
    assert {"--replicas=3", "--max-ongoing-requests=5"} <= set(start.command)


# On the scripted service ---------------------------------------------------------------------------------------------


def redeployed(qtbot: QtBot, batchscope: Batchscope, field: str, text: str) -> RedeploymentRows:
    """The rows after a redeployment whose progress they have shown, however short it was."""
    rows, shown = batchscope.window.batching.redeployment, list[str]()
    rows.changed.connect(lambda: shown.append(rows.progress))
    type_into(rows.control(field).field, text)
    qtbot.waitUntil(lambda: any(shown) and not rows.progress)
    return rows


def test_that_the_window_redeploys_and_tells_of_it_and_the_next_start_is_the_same(
    qtbot: QtBot, running: Batchscope
) -> None:
    rows = redeployed(qtbot, running, "replicas", "2")
    assert rows.news.text().startswith("Redeployed in ")
    redeployed(qtbot, running, "max_ongoing_requests", "300")
    qtbot.waitUntil(lambda: running.composition.history.replicas[0].max_ongoing_requests == 300)
    with qtbot.waitSignal(running.composition.session.came_to_rest):
        running.composition.session.stop()
    options = running.choices.service_options
    assert (options.replicas, options.max_ongoing_requests) == (2, 300)
    assert rows.news.text() == MARK_MEANS
    assert running.errors == []


def test_that_a_replica_that_cannot_start_is_told_in_the_panel(qtbot: QtBot, running: Batchscope) -> None:
    rows = redeployed(qtbot, running, "replicas", "5")
    assert (rows.failure, rows.control("replicas").number) == ("There is one too many.", 1)


def test_that_the_service_is_started_with_what_was_remembered(
    qtbot: QtBot, make_batchscope: MakeBatchscope, tmp_path: Path
) -> None:
    preferences = PreferencesFile(tmp_path / "preferences.json")
    preferences.save(Preferences(scale=Scale(replicas=3, max_ongoing_requests=50)))
    batchscope = make_batchscope(preferences=preferences)
    deployments: list[Deployment] = []
    batchscope.composition.session.deployment.seen.connect(deployments.append)
    start_service(qtbot, batchscope)
    rows = batchscope.window.batching.redeployment
    qtbot.waitUntil(lambda: len(deployments) > 0)
    assert deployments[0].wanted == Scale(replicas=3, max_ongoing_requests=50)
    type_into(rows.control("replicas").field, "4")
    qtbot.waitUntil(lambda: rows.news.text().startswith("Redeployed"))
    batchscope.window.close()
    assert preferences.load().scale == Scale(replicas=4, max_ongoing_requests=50)


def test_that_nothing_can_be_asked_while_the_service_starts(qtbot: QtBot, make_batchscope: MakeBatchscope) -> None:
    batchscope = make_batchscope(scripted("--start-s=30"))
    batchscope.window.toolbar.step_wanted.emit("start")
    qtbot.waitUntil(lambda: batchscope.composition.session.state is LifeCycle.STARTING)
    assert not batchscope.window.batching.redeployment.isEnabled()
    assert batchscope.window.batching.control("max_batch_size").isEnabled()
