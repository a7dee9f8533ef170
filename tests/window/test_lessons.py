"""A lesson in the window: its pages, what it runs, guesses and answers, and what it leaves as it was."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QAbstractButton, QApplication, QMenu, QPushButton
from pytestqt.qtbot import QtBot

from gui.app import Batchscope
from gui.control import lesson_stage
from gui.control.arguments import Arguments
from gui.control.lessons import TAKEN
from gui.panels.finder import Finder
from gui.panels.lesson import Answer, LessonPanel, RevealAxis
from gui.session.lifecycle import LifeCycle
from gui.session.processes.service import ServiceStart
from gui.widgets.number_field import NumberField
from service.analysis.lesson.file import shipped
from service.messages.load import ClosedLoop, Poisson
from service.messages.options import SMALL_MODEL
from service.messages.settings import Settings
from tests.window.children import scripted
from tests.window.conftest import MakeBatchscope, start_service
from tests.window.seen import named, texts

[OTHER, *_] = sorted((Path(__file__).parents[1] / "recordings").glob("*.bsr"))
USERS = Settings(max_batch_size=12)
SMALL = """---
lesson: Small
settings: {max_batch_size: 8}
load: {pattern: closed, users: 6, max_tokens: 4}
---
About it.

## One by one
Look at the queue.
```run
settings: {max_batch_size: 1}
for_s: 2
```
Seen: {requests_per_s} requests/s in batches of {mean_batch}.

## How many?
```guess
figure: mean_batch
```

## Up to eight
```run
settings: {max_batch_size: 8}
for_s: 2
```
From {before.mean_batch} to {mean_batch}.

## Asked
```question
ask: Why?
answers: [No reason, Six users]
right: 2
why: There are no more.
```
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.md"
    path.write_text(SMALL)
    return path


@pytest.fixture
def taught(qtbot: QtBot, make_batchscope: MakeBatchscope, small: Path) -> Batchscope:
    """A service that runs, and the first page of a small lesson beside it."""
    batchscope = make_batchscope(scripted("--step-s=0.004", "--trial-s=0.004", settings=USERS))
    batchscope.window.batching.show_settings(USERS)
    start_service(qtbot, batchscope)
    batchscope.composition.open(small)
    return batchscope


def said(batchscope: Batchscope) -> str:
    """All that the page says."""
    return " ".join(re.sub(r"<[^>]*>", "", text).strip() for text in texts(batchscope.composition.lessons.panel))


def figures_in(text: str) -> list[float]:
    """Those that stand in the text of a step that ran."""
    filled = re.search(r"(Seen:|From) (.*?)\. ", text)
    return [] if filled is None else [float(number) for number in re.findall(r"[\d.]*\d", filled[2])]


def revealed(panel: LessonPanel) -> str:
    """Guess, prediction and measurement, as they are read out."""
    return panel.findChildren(RevealAxis)[-1].accessibleName()


def answers(panel: LessonPanel) -> list[Answer]:
    return [each for each in panel.findChildren(Answer) if each.isVisible()]


def go_on(qtbot: QtBot, batchscope: Batchscope) -> None:
    """Click Next, and wait until what it runs is over."""
    button = batchscope.composition.lessons.panel.next_button
    button.click()
    qtbot.waitUntil(button.isEnabled)


def settings_in_force(batchscope: Batchscope) -> Settings:
    in_force = batchscope.composition.history.in_force
    assert in_force is not None
    return in_force.settings


def test_that_none_of_its_load_is_in_a_batch_of_the_settings_before(
    make_batchscope: MakeBatchscope, small: Path, qtbot: QtBot
) -> None:
    batchscope = make_batchscope(scripted("--step-s=0.004", "--adopts-s=0.5", settings=USERS))
    start_service(qtbot, batchscope)
    batchscope.window.prompts.set_prompts(["one"])
    batchscope.window.prompts.set_copies(1)
    batchscope.window.prompts.fire()
    batches = batchscope.composition.history.batches.columns
    qtbot.waitUntil(lambda: len(batches) == 1)  # the load's process runs now, and would be quicker than a change
    batchscope.composition.open(small)
    go_on(qtbot, batchscope)
    assert set(batches["size"]) == {1}


def test_that_it_stands_in_the_place_of_prompts_and_requests_and_has_the_one_stressed_button(
    taught: Batchscope,
) -> None:
    window, panel = taught.window, taught.composition.lessons.panel
    assert panel.isVisible()
    assert not window.prompts.isVisible()
    assert "About it." in said(taught)
    assert "1 of 5" in said(taught)
    stressed = [b for b in window.findChildren(QPushButton) if b.isVisible() and b.property("role") == "primary"]
    assert stressed == [panel.next_button]
    assert not window.batching.isEnabled()
    assert not window.load.isEnabled()


def test_that_it_runs_asks_and_reveals_and_gives_the_settings_back(taught: Batchscope, qtbot: QtBot) -> None:
    chosen = taught.window.load.chosen
    panel = taught.composition.lessons.panel
    go_on(qtbot, taught)
    assert settings_in_force(taught) == Settings(max_batch_size=1)
    assert re.search(r"Seen: [\d.]+ requests/s in batches of 1\.0\.", said(taught))
    assert taught.window.load.pattern == ClosedLoop(users=6), "the panel shows the load of the lesson"

    go_on(qtbot, taught)
    found = " ".join(texts(taught.window.findings))
    assert "held a single request" in found
    assert not re.search("Set max_batch_size|Expected|Change", found), "no advice gives away what is asked"
    field = named(panel, NumberField, "mean batch")
    assert field.number == pytest.approx(1.0), "a guess begins at what was seen"
    assert panel.next_button.isEnabled()
    field.selectAll()
    qtbot.keyClicks(field, "4")
    qtbot.keyClick(field, Qt.Key.Key_Tab)
    assert "Measured" not in said(taught), "the answer is not seen before the guess"

    go_on(qtbot, taught)
    assert settings_in_force(taught) == Settings(max_batch_size=8)
    result = re.search(r"From 1\.0 to ([\d.]+)\.", said(taught))
    assert result is not None
    qtbot.waitUntil(lambda: "Predicted " in revealed(panel))
    assert revealed(panel).startswith("Your guess 4.0, Predicted ")
    assert revealed(panel).endswith(f"Measured {result[1]}")
    assert re.search(r"Your guess was (right|[\d.]+ too (high|low))\.", said(taught))

    go_on(qtbot, taught)
    wrong, _right = answers(panel)
    wrong.click()
    assert "Not so. There are no more." in said(taught)
    assert not any(each.isEnabled() for each in answers(panel))

    panel.back_button.click()
    assert f"From 1.0 to {result[1]}." in said(taught), "a page stays as it was left"
    panel.next_button.click()
    panel.next_button.click()
    assert not panel.isVisible()
    assert taught.window.prompts.isVisible()
    assert taught.window.batching.settings == USERS
    assert taught.window.load.chosen == chosen
    assert taught.window.load.isEnabled()
    qtbot.waitUntil(lambda: settings_in_force(taught) == USERS)
    qtbot.waitUntil(lambda: taught.composition.history.load.pattern is None)


def test_that_a_narrow_window_shows_it_beside_the_plots_in_the_place_of_the_controls(taught: Batchscope) -> None:
    window, panel = taught.window, taught.composition.lessons.panel
    window.resize(1024, 700)
    QApplication.processEvents()
    assert panel.isVisible()
    assert not window.batching.isVisible()
    plots_end = window.plots.mapTo(window, window.plots.rect().topRight()).x()
    assert plots_end < panel.mapTo(window, panel.rect().topLeft()).x(), "no plot is covered"
    taught.composition.lessons.end()
    assert window.batching.isVisible()
    assert not window.prompts.isVisible(), "they are in the drawer"
    window.resize(1440, 900)
    assert window.prompts.isVisible()


def test_that_a_guess_is_dragged_in_its_plot(taught: Batchscope, qtbot: QtBot) -> None:
    go_on(qtbot, taught)
    go_on(qtbot, taught)
    plot, panel = taught.composition.plots.batch_size, taught.composition.lessons.panel
    field = named(panel, NumberField, "mean batch")
    assert plot.guess is not None
    assert plot.guess.words == "mean batch, your guess: 1.0"
    assert plot.layout_ is not None
    x, pane = plot.layout_.far - 10, plot.layout_.panes[0]
    handle = QPoint(x, round(pane.y_of(1.0)))
    qtbot.mousePress(plot.canvas.viewport(), Qt.MouseButton.LeftButton, pos=handle)
    qtbot.mouseMove(plot.canvas.viewport(), QPoint(x, round(pane.y_of(0.5))))
    qtbot.mouseRelease(plot.canvas.viewport(), Qt.MouseButton.LeftButton, pos=handle)
    assert field.number == pytest.approx(0.5, abs=0.06)
    taught.composition.lessons.end()
    assert plot.guess is None


def test_that_shares_are_of_what_the_engine_is_measured_to_answer(
    taught: Batchscope, qtbot: QtBot, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lesson_stage, "MEASURING_S", 2.0)
    small.write_text(
        SMALL.replace("pattern: closed, users: 6", "pattern: poisson, share: 50 %").replace("Seen:", "Of {capacity}:")
    )
    taught.composition.open(small)
    panel = taught.composition.lessons.panel
    panel.next_button.click()
    assert "First it is measured what this engine answers in full batches." in said(taught)
    qtbot.waitUntil(panel.next_button.isEnabled)
    of = re.search(r"Of ([\d.]+):", said(taught))
    assert of is not None
    running = taught.window.load.pattern
    assert isinstance(running, Poisson)
    assert running.rate_per_s == pytest.approx(float(of[1]) / 2, rel=0.05)


def test_that_enter_and_alt_left_turn_the_pages(taught: Batchscope, qtbot: QtBot) -> None:
    panel = taught.composition.lessons.panel
    qtbot.keyClick(panel, Qt.Key.Key_Return)
    qtbot.waitUntil(panel.next_button.isEnabled)
    assert "2 of 5" in said(taught)
    qtbot.keyClick(panel, Qt.Key.Key_Left, Qt.KeyboardModifier.AltModifier)
    assert "1 of 5" in said(taught)


def test_that_a_run_waits_for_a_service(qtbot: QtBot, make_batchscope: MakeBatchscope, small: Path) -> None:
    batchscope = make_batchscope(scripted("--step-s=0.004"), arguments=Arguments(file=small))
    qtbot.waitUntil(lambda: batchscope.composition.lessons.is_open)
    panel = batchscope.composition.lessons.panel
    assert not panel.next_button.isEnabled()
    assert "Start the service to go on: this step runs on it." in said(batchscope)
    start_service(qtbot, batchscope)
    qtbot.waitUntil(panel.next_button.isEnabled)


def test_that_it_can_be_taken_in_a_recording_of_it_without_a_service(
    taught: Batchscope, qtbot: QtBot, make_batchscope: MakeBatchscope, small: Path
) -> None:
    recorder = taught.composition.recorder
    recorder.record(small.with_name("small.bsr"))
    seen = []
    for _step in range(3):
        go_on(qtbot, taught)
        seen.append(said(taught))
    with qtbot.waitSignal(recorder.written):
        recorder.record_or_stop()
    taught.composition.lessons.end()

    small.write_text(SMALL.replace("lesson: Small", "lesson: Small\nrecording: small.bsr"))
    viewer = make_batchscope(scripted(), arguments=Arguments(file=small))
    qtbot.waitUntil(lambda: viewer.is_complete and viewer.composition.recordings.is_viewing)
    panel = viewer.composition.lessons.panel
    for text in seen:
        go_on(qtbot, viewer)
        assert figures_in(said(viewer)) == pytest.approx(figures_in(text), rel=0.3), "those of when it was over"
    qtbot.waitUntil(lambda: "Predicted " in revealed(panel))
    viewer.composition.lessons.end()
    assert not viewer.composition.recordings.is_viewing


def test_that_a_recording_is_shown_while_the_service_starts_and_left_when_it_is_ready(
    qtbot: QtBot, make_batchscope: MakeBatchscope
) -> None:
    batchscope = make_batchscope(scripted("--start-s=600"))
    batchscope.window.toolbar.step_wanted.emit("start")
    qtbot.waitUntil(lambda: batchscope.composition.session.state is LifeCycle.STARTING)
    named(batchscope.window.notice, QPushButton, "Show me").click()
    qtbot.waitUntil(lambda: batchscope.composition.recordings.is_viewing)
    panel = batchscope.composition.lessons.panel
    qtbot.waitUntil(panel.next_button.isEnabled)
    assert batchscope.window.notice.isVisible(), "it goes on saying how far the start is"
    panel.next_button.click()
    batchscope.composition.session.getting_ready.emit()
    assert not batchscope.composition.recordings.is_viewing
    assert "1 of 5" in said(batchscope), "a run that was not over is run again, on the service"


def test_that_a_recording_of_something_else_has_no_stretch_of_it(
    qtbot: QtBot, make_batchscope: MakeBatchscope, small: Path
) -> None:
    small.write_text(SMALL.replace("lesson: Small", f"lesson: Small\nrecording: {OTHER}"))
    batchscope = make_batchscope(scripted(), arguments=Arguments(file=small))
    qtbot.waitUntil(lambda: batchscope.is_complete and batchscope.composition.recordings.is_viewing)
    qtbot.waitUntil(lambda: "The recording has no stretch called 'One by one'." in said(batchscope))


def test_that_a_run_that_loses_its_service_can_be_begun_again(taught: Batchscope, qtbot: QtBot) -> None:
    panel = taught.composition.lessons.panel
    panel.next_button.click()
    assert "2 of 5" in said(taught)
    taught.window.toolbar.step_wanted.emit("stop")
    qtbot.waitUntil(lambda: taught.composition.session.state is LifeCycle.NOT_STARTED)
    assert "1 of 5" in said(taught)
    start_service(qtbot, taught)
    go_on(qtbot, taught)
    assert "Seen: " in said(taught)


def test_that_a_lesson_for_another_workload_says_so(taught: Batchscope, small: Path) -> None:
    small.write_text(SMALL.replace("lesson: Small", "lesson: Small\nworkload: adder"))
    taught.composition.open(small)
    assert "This lesson is for the workload adder; text runs." in said(taught)


def test_that_its_author_sees_what_is_written(taught: Batchscope, qtbot: QtBot, small: Path) -> None:
    small.write_text(SMALL.replace("About it.", "About more.").replace("## Asked", "## Asked again"))
    qtbot.waitUntil(lambda: "About more." in said(taught))
    assert "Asked again" in said(taught), "the list of steps is read again, too"
    small.write_text(SMALL.replace("for_s: 2", "for_s: -2", 1))
    with qtbot.waitSignal(taught.composition.lessons.failed) as failed:
        pass
    assert failed.args == ["small.md, line 12: Expected `float` >= 1.0."]
    assert "About more." in said(taught), "what could be read last stays"


def test_that_a_broken_lesson_is_refused_in_words(taught: Batchscope, qtbot: QtBot, tmp_path: Path) -> None:
    broken = tmp_path / "broken.md"
    broken.write_text("no lesson")
    with qtbot.waitSignal(taught.composition.complained) as complained:
        taught.composition.open(broken)
    assert complained.args[0].startswith("broken.md, line 1: A lesson begins with a line ---")


def test_that_the_menu_and_ctrl_k_offer_all_lessons(taught: Batchscope, qtbot: QtBot) -> None:
    menu: QMenu = taught.window.toolbar.lessons_menu
    menu.aboutToShow.emit()
    assert [action.text() for action in menu.actions() if action.text()] == [*shipped(), "Open a lesson…"]
    qtbot.keyClick(taught.window, Qt.Key.Key_K, Qt.KeyboardModifier.ControlModifier)
    [finder] = taught.window.findChildren(Finder)
    finder.field.setText("lesson knee")
    finder.field.returnPressed.emit()
    assert "The knee" in said(taught)
    assert finder.isHidden()


def test_that_show_me_gives_way_to_it(taught: Batchscope, qtbot: QtBot, small: Path) -> None:
    taught.composition.lessons.end()
    taught.window.show_me_wanted.emit()
    assert taught.composition.show_me.is_playing
    taught.composition.open(small)
    assert not taught.composition.show_me.is_playing
    assert taught.composition.lessons.is_open


def test_that_a_comparison_ends_it_and_has_the_service_to_itself(taught: Batchscope, small: Path) -> None:
    taught.composition.compare.busy_changed.emit(True)
    assert not taught.composition.lessons.is_open
    assert taught.window.is_reserved

    taught.composition.open(small)
    assert not taught.composition.lessons.is_open
    assert taught.errors == [TAKEN]
    taught.composition.compare.busy_changed.emit(False)
    assert not taught.window.is_reserved


def test_that_show_me_gives_way_to_a_comparison(taught: Batchscope) -> None:
    taught.composition.lessons.end()
    taught.window.show_me_wanted.emit()
    taught.composition.compare.busy_changed.emit(True)
    assert not taught.composition.show_me.is_playing
    taught.composition.compare.busy_changed.emit(False)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("title", [pytest.param(title, id=path.stem) for title, path in shipped().items()])
def test_that_each_lesson_can_be_taken_on_the_real_service(
    qtbot: QtBot, make_batchscope: MakeBatchscope, title: str
) -> None:
    batchscope = make_batchscope(ServiceStart(), Arguments(theme="dark", model=SMALL_MODEL))
    start_service(qtbot, batchscope)
    batchscope.composition.open(shipped()[title])
    panel = batchscope.composition.lessons.panel
    while panel.next_button.text() != "End lesson":
        go_on(qtbot, batchscope)
        assert "–" not in said(batchscope), "every figure is known"
        while unanswered := [each for each in answers(panel) if each.isEnabled()]:
            unanswered[0].click()
    named(panel, QAbstractButton, "Back").click()
    panel.end_button.click()
    assert not panel.isVisible()
