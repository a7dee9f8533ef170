"""Ctrl+K finds what the window can do, its settings and its terms."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from gui.app import Batchscope
from gui.look import glossary
from gui.panels import shortcuts
from gui.panels.finder import Finder
from service.analysis.lesson.file import shipped

Find = Callable[[str], Finder]


@pytest.fixture
def find(batchscope: Batchscope) -> Find:
    """Presses Ctrl+K, and types these words."""

    def press_and_type(words: str) -> Finder:
        QTest.keyClick(batchscope.window, Qt.Key.Key_K, Qt.KeyboardModifier.ControlModifier)
        [finder] = [each for each in batchscope.window.findChildren(Finder) if each.isVisible()]
        QTest.keyClicks(finder.field, words)
        return finder

    return press_and_type


def test_that_it_holds_every_command_lesson_setting_and_term_once(find: Find) -> None:
    found = find("").found
    bound = [each.does for each in shortcuts.ALL if each not in (*shortcuts.IN_PLACE, shortcuts.FIND)]
    formations = [f"formation: {name}" for name in glossary.FORMATIONS]
    terms = [name for name in glossary.GLOSSARY if name not in glossary.FORMATIONS]
    plots = [f"{glossary.plot_title(name)}: how to read it" for name in glossary.PLOTS]
    lessons = [*(f"Lesson {number}: {title}" for number, title in enumerate(shipped(), 1)), "Open a lesson"]
    without_keys = ["Follow the system's light and dark", "About Batchscope"]
    assert sorted(found) == sorted([*bound, *without_keys, *formations, *terms, *plots, *lessons])


def test_that_all_words_count_and_names_come_before_sentences(find: Find) -> None:
    assert find("BATCH size").found[0] == "max_batch_size"


def test_that_lessons_stand_in_their_order(find: Find) -> None:
    assert find("lesson").found[:3] == [f"Lesson {n}: {title}" for n, title in enumerate(list(shipped())[:3], 1)]


def test_that_return_does_what_is_found(find: Find, batchscope: Batchscope) -> None:
    finder = find("service's log")
    assert finder.found == [shortcuts.LOG.does]
    QTest.keyClick(finder.field, Qt.Key.Key_Return)
    assert batchscope.window.log.isVisible()


def test_that_return_goes_to_the_control_of_a_setting(find: Find, batchscope: Batchscope) -> None:
    finder = find("max_queued")
    QTest.keyClick(finder.field, Qt.Key.Key_Return)
    focused = QApplication.focusWidget()
    assert focused is not None
    assert batchscope.window.batching.control("max_queued_requests").isAncestorOf(focused)


def test_that_a_formation_is_put_in_force(find: Find, batchscope: Batchscope) -> None:
    finder = find("formation: early")
    QTest.keyClick(finder.field, Qt.Key.Key_Return)
    assert batchscope.window.batching.settings.formation == "early"


def test_that_a_term_is_explained_and_arrows_move_on(find: Find) -> None:
    finder = find("loop")
    first = finder.about
    assert first == glossary.TERMS[finder.found[0]]
    QTest.keyClick(finder.field, Qt.Key.Key_Down)
    assert finder.about == glossary.TERMS[finder.found[1]] != first
    QTest.keyClick(finder.field, Qt.Key.Key_Return)
    assert finder.isVisible(), "it has said all there is"


def test_that_what_is_not_there_is_said(find: Find) -> None:
    finder = find("teleport")
    assert finder.found == []
    assert finder.about == "Nothing is called “teleport”, and no sentence says it."
