"""The verdict line: the state of the service in one sentence, the number of the row, one button, and never blank."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from PySide6.QtWidgets import QApplication, QPushButton
from pytestqt.qtbot import QtBot

from gui.app import Batchscope
from gui.control import presenter
from gui.panels.findings_panel import EMPTY_TEXT
from gui.panels.verdict_line import VerdictLine
from gui.panels.views import COMPARE, DISTRIBUTIONS, LIVE
from gui.session.lifecycle import LifeCycle
from gui.widgets.segmented import Segmented
from service.analysis.findings.facts import Finding
from service.analysis.findings.verdict import STANDS_S, Verdict
from service.analysis.observed.statistics import figures
from service.messages.settings import Settings
from tests.synthetic_run import Step, SyntheticRun, early_run, filled_history
from tests.window.conftest import start_service
from tests.window.seen import named, texts

CALM = SyntheticRun(40.0, (Step(0.0, 4.0, Settings()),))
DRAINS = SyntheticRun(  # more than batches of 2 can answer; then batches of 16
    40.0, (Step(0.0, 6.4, Settings(max_batch_size=2)), Step(30.0, settings=Settings(max_batch_size=16)))
)
EBBS = SyntheticRun(40.0, (Step(0.0, 6.4, Settings(max_batch_size=2)), Step(30.0, 1.0)))  # then fewer arrive
UNDO = Finding("settings_changed", "check", "v3: one → two", evidence="", change={"max_batch_size": 2}, undoes=3)


@pytest.fixture
def live(batchscope: Batchscope) -> Iterator[Batchscope]:
    """The window of a service that runs."""
    batchscope.composition.session.state = LifeCycle.RUNNING
    batchscope.window.show_life_cycle(LifeCycle.RUNNING, True)
    yield batchscope
    batchscope.composition.session.state = LifeCycle.NOT_STARTED


def show(batchscope: Batchscope, run: SyntheticRun, until_s: float | None = None) -> str:
    batchscope.composition.history.become(filled_history(run, until_s)[0])
    batchscope.composition.plots.begin_anew()
    batchscope.composition.presenter.show_findings()
    batchscope.composition.presenter.show_numbers()
    return batchscope.window.verdict.text


def test_that_before_anything_it_says_what_to_do(batchscope: Batchscope) -> None:
    batchscope.composition.presenter.show_numbers()
    assert batchscope.window.verdict.text == "No load yet: start the service first."
    assert batchscope.window.verdict.button.isHidden(), "the notice below has the button"


def test_that_it_changes_with_the_state_of_the_service(batchscope: Batchscope, qtbot: QtBot) -> None:
    said: dict[LifeCycle, str] = {}
    session = batchscope.composition.session
    session.life_cycle_changed.connect(lambda state: said.update({state: batchscope.window.verdict.text}))
    start_service(qtbot, batchscope)
    batchscope.window.toolbar.step_wanted.emit("stop")
    qtbot.waitUntil(lambda: LifeCycle.STOPPING in said)
    assert said[LifeCycle.STARTING].startswith("Starting the service: ")
    assert not said[LifeCycle.RUNNING].startswith("Starting")
    assert said[LifeCycle.STOPPING] == "Stopping the service."


def test_that_a_running_service_without_a_load_offers_to_run_it(live: Batchscope, qtbot: QtBot) -> None:
    assert show(live, SyntheticRun(3.0, (Step(0.0, 0.0, Settings()),))).startswith("No load yet")
    with qtbot.waitSignal(live.window.load.load_wanted):
        named(live.window.verdict, QPushButton, "Run load").click()


def test_that_a_service_that_a_lesson_has_to_itself_is_offered_no_load(live: Batchscope) -> None:
    live.window.reserve("the lesson")
    assert show(live, SyntheticRun(3.0, (Step(0.0, 0.0, Settings()),))).startswith("No load yet")
    assert live.window.verdict.button.isHidden()


def test_that_its_number_is_the_one_of_the_row_also_where_findings_are_newer(live: Batchscope) -> None:
    show(live, DRAINS, 28.0)
    live.composition.history.become(filled_history(DRAINS, 29.0)[0])
    live.composition.presenter.show_findings()
    queue = live.window.figures.figure("queue").text
    assert figures(live.composition.history).queue != float(queue)
    assert live.window.verdict.text.endswith(f"; {queue} wait.")
    live.composition.presenter.show_numbers()
    assert live.window.verdict.text.endswith(f"; {live.window.figures.figure('queue').text} wait.")


def test_that_its_number_is_the_one_of_the_row(live: Batchscope) -> None:
    text = show(live, CALM)
    row = live.window.figures
    assert text.startswith(f"All well: {row.figure('requests_per_s').text}")
    assert text.endswith(f"p95 {row.figure('p95_s').text}.")


def test_that_a_backlog_after_a_change_can_be_undone_at_once(live: Batchscope, qtbot: QtBot) -> None:
    assert show(live, DRAINS, 33.0).startswith(f"Working off {live.window.figures.figure('queue').text} waiting")
    with qtbot.waitSignal(live.window.batching.settings_wanted) as asked:
        named(live.window.verdict, QPushButton, "Undo v2").click()
    assert asked.args == [{"max_batch_size": 2}]
    assert "Undo v2" not in texts(live.window.findings), "one thing is offered in one place"


def test_that_what_it_says_is_not_said_again_below_but_what_it_rests_on_is(live: Batchscope) -> None:
    assert show(live, early_run()).startswith("Batches are sealed too early: ")
    assert "Batches are sealed too early" not in texts(live.window.findings)
    below = next(text for text in texts(live.window.findings) if "were sealed while the engine was busy" in text)
    assert below == texts(live.window.findings)[1], "first, under the panel's title"
    assert any(text.startswith("Expected: ") for text in texts(live.window.findings))


def test_that_a_better_state_waits_and_a_worse_one_does_not(live: Batchscope, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr(presenter, "time", SimpleNamespace(monotonic=lambda: now_s))  # whatever a look takes here
    growing = show(live, DRAINS, 28.0)
    assert growing.startswith("More arrives than can be answered")
    assert show(live, EBBS, 37.0).startswith("More arrives than can be answered")
    now_s += STANDS_S
    assert show(live, EBBS, 37.0).startswith("Working off")
    assert show(live, DRAINS, 28.0) == growing
    assert show(live, DRAINS, 33.0).startswith("Working off"), "these settings can answer it"
    assert show(live, CALM).startswith("All well"), "nothing waits any more"
    live.composition.history.mark_failure()
    live.composition.presenter.show_numbers()
    assert live.window.verdict.text.startswith("Failed ")


def test_that_a_past_moment_is_said_as_it_was_and_offers_nothing(live: Batchscope) -> None:
    show(live, DRAINS)
    plots = live.composition.plots
    plots.set_window_s(10.0)
    plots.show_until(live.composition.history.now_s() - 15.0)
    live.composition.presenter.show_numbers()
    assert live.window.verdict.text.startswith("More arrives than can be answered")
    assert live.window.verdict.button.isHidden()


def test_that_compare_has_none(batchscope: Batchscope) -> None:
    for view, is_shown in ((COMPARE, False), (LIVE, True), (DISTRIBUTIONS, True)):
        batchscope.window.views.show_view(view)
        assert batchscope.window.verdict.isVisible() is is_shown


def test_that_the_second_clause_goes_before_number_and_button(qtbot: QtBot) -> None:
    line = VerdictLine()
    qtbot.addWidget(line)
    line.show_verdict(
        Verdict("working off", "Working off ", "105 waiting", " requests", "; then p95 1.8 s", mend=UNDO), True
    )
    line.resize(900, 40)
    line.show()
    QApplication.processEvents()
    assert line.shown_text == "Working off 105 waiting requests; then p95 1.8 s."
    line.resize(420, 40)
    QApplication.processEvents()
    assert line.shown_text == "Working off 105 waiting requests."
    line.resize(240, 40)
    QApplication.processEvents()
    assert "105 waiting" in line.shown_text
    assert line.button.isVisible()
    assert line.button.text() == "Undo v3"


# The findings below ---------------------------------------------------------------------------------------------------


def test_that_the_panel_explains_itself_only_before_anything_happens(live: Batchscope) -> None:
    assert EMPTY_TEXT in texts(live.window.findings)
    show(live, SyntheticRun(3.0, (Step(0.0, 0.0, Settings()),)))
    assert "Nothing to judge yet: no batch has run." in texts(live.window.findings)


def test_that_a_failure_is_said_there(live: Batchscope) -> None:
    show(live, CALM)
    live.composition.history.mark_failure()
    live.composition.presenter.show_findings()
    assert "Nothing is judged while the service has failed." in texts(live.window.findings)


# The way back to now --------------------------------------------------------------------------------------------------


def test_that_plots_that_stand_at_another_moment_offer_the_way_back(live: Batchscope) -> None:
    show(live, DRAINS)
    views, plots = live.window.views, live.composition.plots
    assert views.back_button.isHidden()
    plots.set_window_s(10.0)
    plots.show_until(live.composition.history.now_s() - 15.0)
    assert not views.back_button.isHidden()
    views.back_button.click()
    assert plots.is_live
    assert views.back_button.isHidden()
    live.composition.set_frozen(True)
    assert not views.back_button.isHidden()
    views.back_button.click()
    assert plots.is_live
    assert not live.window.toolbar.freeze_button.isChecked()


def test_that_a_zoomed_span_is_shown_among_the_spans(batchscope: Batchscope) -> None:
    toolbar = batchscope.window.toolbar
    spans = named(toolbar, Segmented, "Time window")
    toolbar.set_window_s(48.83)
    assert [button.text() for button in spans.findChildren(QPushButton) if button.isChecked()] == ["49 s"]
    toolbar.set_window_s(60)
    assert "49 s" not in texts(toolbar)
