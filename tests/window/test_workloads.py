"""What is served can be chosen in the window: inputs, lengths and units follow."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtWidgets import QAbstractButton
from pytestqt.qtbot import QtBot

from gui.app import Batchscope
from gui.control.arguments import parse
from gui.control.preferences import PreferencesFile
from gui.panels.requests_model import TableRow
from gui.session.processes.service import ServiceStart
from gui.widgets.model_field import ModelField
from gui.widgets.segmented import Segmented
from tests.window.conftest import MakeBatchscope
from tests.window.seen import named, texts


def choose(batchscope: Batchscope, name: str) -> None:
    field = named(batchscope.window.toolbar, ModelField, "Model")
    field.setText(name)
    field.setModified(True)
    field.editingFinished.emit()


def test_that_inputs_and_lengths_follow_the_workload_and_written_ones_come_back(
    batchscope: Batchscope, qtbot: QtBot
) -> None:
    window = batchscope.window
    window.prompts.set_prompts(["my own"])
    choose(batchscope, "adder")
    assert window.prompts.prompts == tuple("012345678")
    batchscope.composition.presenter.show_numbers()
    assert window.figures.figure("tokens_per_s").accessibleName() == "numbers/s", "before anything has run"
    window.requests.model.update([TableRow("a", "7", "49", "done", intended_s=0.0, tokens=1, max_tokens=1)], 0.0)
    window.requests.refresh_counts()
    assert "Input and output" in texts(window.requests)
    throughput = batchscope.composition.plots.throughput
    qtbot.waitUntil(lambda: throughput.plot.entries[0].name == "numbers/s")
    assert throughput.plot.empty_text.startswith("Numbers and requests a second")
    assert (window.load.max_tokens, window.load.prompt_words) == (1, None)
    window.prompts.set_prompts(["77"])
    choose(batchscope, "house-price")
    assert window.prompts.prompts[0] == "[1656, 31770, 1080, 1960, 1960, 1, 2, 2]"
    choose(batchscope, "adder")
    assert window.prompts.prompts == ("77",)
    choose(batchscope, "gpt2")
    assert window.prompts.prompts == ("my own",)
    assert "Prompt and completion" in texts(window.requests)
    assert window.load.max_tokens == 24


def test_that_only_a_text_generator_offers_other_times_than_the_latency(qtbot: QtBot, batchscope: Batchscope) -> None:
    composition = batchscope.composition
    for plot in (composition.plots.latency, composition.distributions.histogram):
        assert any(not chooser.isHidden() for chooser in plot.findChildren(Segmented))
    named(composition.plots, QAbstractButton, "Latency to show: between tokens").click()
    assert composition.plots.latency.measure.name == "tpot"
    choose(batchscope, "adder")
    composition.presenter.show_numbers()
    assert composition.plots.latency.measure.name == "latency"
    for plot in (composition.plots.latency, composition.distributions.histogram):
        assert all(chooser.isHidden() for chooser in plot.findChildren(Segmented))


def test_that_the_service_is_started_with_the_workload(batchscope: Batchscope) -> None:
    choose(batchscope, "mine:Squares")
    options = batchscope.choices.service_options
    assert options.workload == "mine:Squares"
    assert "--workload=mine:Squares" in ServiceStart(options=options).command
    assert batchscope.window.prompts.prompts == (), "its examples are not known yet"


def test_that_it_is_remembered_with_its_inputs(make_batchscope: MakeBatchscope, tmp_path: Path, qtbot: QtBot) -> None:
    path = tmp_path / "preferences.json"
    first = make_batchscope(preferences=PreferencesFile(path))
    choose(first, "adder")
    first.window.prompts.set_prompts(["5"])
    with qtbot.waitSignal(first.closed):
        first.close()
    assert make_batchscope(preferences=PreferencesFile(path)).window.prompts.prompts == ("5",)


def test_that_the_command_line_names_a_workload_or_a_model() -> None:
    lines = (["--workload", "adder"], ["--workload", "text"], ["--workload", "text", "--model", "gpt2"], [])
    assert [parse(line).model for line in lines] == ["adder", "auto", "gpt2", None]
