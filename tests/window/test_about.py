"""About Batchscope: what runs here, and diagnostics to copy, which hold neither prompts nor tokens."""

from __future__ import annotations

import platform

import pyqtgraph as pg
import PySide6
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QLabel
from pytestqt.qtbot import QtBot

from gui.app import Batchscope
from gui.panels.about import About
from service.messages.installation import VERSION, cache_folder
from tests.window.seen import settings_in_force


def about(batchscope: Batchscope) -> About:
    """What the menu opens."""
    batchscope.window.toolbar.about_action.trigger()
    [shown] = [each for each in batchscope.window.findChildren(About) if each.isVisible()]
    return shown


def test_that_it_names_versions_machine_folder_and_licence(batchscope: Batchscope) -> None:
    texts = {each.text() for each in about(batchscope).findChildren(QLabel)}
    assert {"ray", "torch", "transformers", "pyqtgraph", pg.__version__} <= texts
    assert {VERSION, platform.python_version(), str(cache_folder())} <= texts
    for words in (PySide6.__version__, "GB memory", "Apache-2.0"):
        assert any(words in text for text in texts), words


def test_that_the_copy_holds_state_settings_and_log_but_no_prompt_and_no_token(
    qtbot: QtBot, running: Batchscope
) -> None:
    window = running.window
    window.prompts.set_prompts(("The secret of the sphinx",))
    window.log.append("failed for 'The secret of the sphinx': Authorization: Bearer 0123456789abcdef0")
    shown = about(running)
    qtbot.mouseClick(shown.copy_button, Qt.MouseButton.LeftButton)
    copied = QApplication.clipboard().text()
    assert f"Batchscope: {VERSION}" in copied
    assert "State: running, for" in copied
    assert f"max_batch_size {settings_in_force(running).max_batch_size}," in copied
    assert "failed for '…': Authorization: Bearer …" in copied
    assert "sphinx" not in copied
    assert "0123456789abcdef0" not in copied


def test_that_a_long_log_is_cut_to_its_end(batchscope: Batchscope) -> None:
    batchscope.window.log.append("\n".join(f"line {n}" for n in range(200)))
    lines = batchscope.composition.diagnostics.text().splitlines()
    assert lines[-50:] == [f"line {n}" for n in range(150, 200)]
    assert "line 149" not in lines


def test_that_the_application_wears_the_icon(batchscope: Batchscope) -> None:
    icon = batchscope.window.windowIcon()
    drawn = icon.pixmap(16, 16).toImage()
    assert drawn.pixelColor(8, 8).name() == "#e9ecf0", "the moment at which the batch is formed"
    assert drawn.pixelColor(12, 4).name() == "#f0a23b", "what runs"
