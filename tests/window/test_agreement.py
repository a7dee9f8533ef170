"""One quantity has one value: the row of figures, the legends, the counts of the table and the status bar."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from gui.app import Batchscope
from gui.control.preferences import PreferencesFile
from gui.control.presenter import activity
from gui.panels.figures_row import KEYS
from gui.panels.objectives import ObjectivesRows
from gui.widgets.figure import Figure
from gui.widgets.segmented import Segmented
from service.analysis.observed.history import History
from service.analysis.observed.register import REGISTER
from service.analysis.observed.statistics import figures
from service.messages.load import ClientRequest, ClientTotals, LoadFrame
from service.messages.objectives import Objectives
from service.messages.settings import Settings
from service.messages.text import UNKNOWN
from tests.synthetic_run import (
    CLOCK,
    Step,
    SyntheticRun,
    continuous_run,
    early_run,
    filled_history,
    picture_run,
)
from tests.window.conftest import MakeBatchscope
from tests.window.seen import named, texts


def show(batchscope: Batchscope, history: History) -> None:
    batchscope.composition.history.become(history)
    batchscope.composition.plots.begin_anew()
    batchscope.composition.plots.set_empty(False)
    batchscope.composition.presenter.show_numbers()


def count(batchscope: Batchscope, name: str) -> int:
    """What a filter of the table counts."""
    filters = named(batchscope.window.requests, Segmented, "Show requests")
    found = re.search(r"\d+", filters.button(name).toolTip())
    assert found is not None
    return int(found[0])


def disagreements(batchscope: Batchscope) -> list[str]:
    """Quantities with two values on the screen."""
    window, plots = batchscope.window, batchscope.composition.plots
    shown: Callable[[str], Figure] = window.figures.figure
    depth = plots.queue_depth.header.readout
    in_rows = {key: shown(key).text.split()[0] for key in ("requests_per_s", "tokens_per_s", "p50_s", "p95_s", "p99_s")}
    legends = {**plots.latency.header.readout, **plots.throughput.header.readout}
    found = [f"{REGISTER[key].name} {n} {legends[REGISTER[key].name]}" for key, n in in_rows.items()]
    pairs = [each.rsplit(" ", 2) for each in found]
    queue = int(shown("queue").text)
    pairs.append(["queue and legend", str(queue), str(int(depth["waiting"]) + int(depth["formed"]))])
    pairs.append(["queue and table", str(queue), str(count(batchscope, "waiting"))])
    pairs.append(["running", depth["running"], str(count(batchscope, "running"))])
    said = re.match(r"All well: ([\d.]+)(?: of (?:at least )?[\d.]+)? requests/s, p95 ([\d.]+) s", window.verdict.text)
    if said is not None:
        pairs.append(["requests/s in the verdict", said[1], in_rows["requests_per_s"]])
        pairs.append(["p95 in the verdict", said[2], in_rows["p95_s"]])
    backlog = re.match(r"Working off (\d+) waiting", window.verdict.text)
    if backlog is not None:
        pairs.append(["queue in the verdict", backlog[1], str(queue)])
    taken = re.match(r"(\d+) of \d+ places taken(?:, (\d+) waiting)?", window.status.activity.text())
    if taken is not None:
        pairs.append(["places taken", taken[1], depth["running"]])
        pairs.append(["waiting in the status bar", taken[2] or "0", str(queue)])
    return [" ".join(pair) for pair in pairs if pair[1] != pair[2]]


@pytest.mark.parametrize("run", [picture_run(), early_run(), continuous_run()], ids=["late", "early", "continuous"])
def test_that_every_place_shows_the_same_value(batchscope: Batchscope, run: SyntheticRun) -> None:
    for until_s in (5.3, 16.17, 38.4, 44.0, 47.71, 62.0):
        history, clock = filled_history(run, until_s)
        clock.now_s += 0.13  # between two frames, and between two steps of the curves
        show(batchscope, history)
        batchscope.window.status.update_activity(activity(history, figures(history)))
        assert disagreements(batchscope) == [], until_s


def test_that_no_sentence_leaves_requests_of_older_settings_once_they_have_drained(batchscope: Batchscope) -> None:
    """Findings are judged once a second, and left them for as long beside "drained 0.3 s" in the panel's head."""
    steps = (Step(0.0, 4.0, Settings(max_batch_size=4)), Step(20.0, settings=Settings(max_batch_size=16)))
    run = SyntheticRun(60.0, steps, step_s=0.1)
    obeyed_s = min(batch.formed_s for batch in run.batches if batch.version == 2)
    of_older = re.compile(r"\d+ requests? of the settings before")
    for until_s, are_left in ((obeyed_s - 0.1, True), (obeyed_s + 0.1, False)):
        history = batchscope.composition.history
        history.become(filled_history(run, until_s)[0])
        if are_left:
            batchscope.composition.presenter.show_findings()  # these may be shown before the numbers
        else:
            batchscope.composition.presenter.show_numbers()
        said = [*texts(batchscope.window), batchscope.window.verdict.text]
        assert any(of_older.search(each) for each in said) == are_left


def test_that_a_request_on_its_way_is_counted_in_all_places_or_in_none(batchscope: Batchscope) -> None:
    history, _ = filled_history(picture_run(), until_s=38.0)
    at_s = history.now_s() - 0.01
    request = ClientRequest(id="on-its-way", source="load", prompt="Once", max_tokens=24, intended_s=at_s, sent_s=at_s)
    history.add_load(
        LoadFrame(at_s=history.now_s(), clock=CLOCK, pattern=None, totals=ClientTotals(), requests=(request,))
    )
    show(batchscope, history)
    assert disagreements(batchscope) == []


def test_that_while_a_service_is_silent_what_is_sent_meanwhile_counts_in_no_place(batchscope: Batchscope) -> None:
    history, clock = filled_history(picture_run(), until_s=38.0)
    clock.now_s += 4.0
    sent = [
        ClientRequest(id=f"sent-{n}", source="load", prompt="Once", max_tokens=24, intended_s=at_s, sent_s=at_s)
        for n in range(5)
        for at_s in (clock.now_s - 0.5,)
    ]
    history.add_load(
        LoadFrame(at_s=clock.now_s, clock=CLOCK, pattern=None, totals=ClientTotals(), requests=tuple(sent))
    )
    show(batchscope, history)
    assert disagreements(batchscope) == []


@pytest.mark.parametrize("end", [History.mark_failure, History.mark_stop], ids=["failed", "stopped"])
def test_that_no_place_shows_a_present_value_once_the_service_has_ended(
    batchscope: Batchscope, end: Callable[[History], None]
) -> None:
    history, clock = filled_history(picture_run(), until_s=38.0)
    show(batchscope, history)
    window, plots = batchscope.window, batchscope.composition.plots
    assert int(plots.queue_depth.header.readout["running"]) > 0
    p95 = window.figures.figure("p95_s").text
    assert not window.figures.figure("p95_s").is_dimmed
    end(batchscope.composition.history)
    clock.now_s += 3.0
    plots.refresh()
    batchscope.composition.presenter.show_numbers()
    throughput, cap = plots.throughput.header.readout, plots.batch_size.header.readout["cap"]
    present = [*plots.queue_depth.header.readout.values(), throughput["offered"], cap]
    assert {*present, window.figures.figure("queue").text} == {UNKNOWN}
    assert window.figures.figure("p95_s").text == p95, "of the ten seconds before the end"
    assert window.figures.figure("p95_s").text == f"{plots.latency.header.readout['p95']} s"
    assert window.figures.figure("requests_per_s").text == throughput["requests/s"]
    assert window.figures.figure("p95_s").is_dimmed
    assert all(plot.header.is_dimmed for plot in plots.panels)


@pytest.mark.parametrize("end", [History.mark_failure, History.mark_stop], ids=["failed", "stopped"])
def test_that_the_legends_are_of_the_moment_looked_at_before_and_after_an_end(
    batchscope: Batchscope, end: Callable[[History], None]
) -> None:
    history, clock = filled_history(picture_run(), until_s=38.0)
    end(history)
    ended_s = history.now_s()
    clock.now_s += 8.0
    show(batchscope, history)
    for at_s, is_known in ((ended_s + 2.0, False), (ended_s - 2.0, True)):
        batchscope.composition.plots.show_until(at_s)
        batchscope.composition.presenter.show_numbers()
        depth = batchscope.composition.plots.queue_depth.header.readout
        assert (depth["running"] != UNKNOWN) is is_known, at_s - ended_s
        assert batchscope.window.figures.figure("p95_s").is_dimmed is not is_known
        assert batchscope.composition.plots.latency.header.is_dimmed is not is_known


def test_that_frozen_figures_stay_as_they_were_whatever_comes_to_be_known_of_them(batchscope: Batchscope) -> None:
    history, clock = filled_history(early_run(), until_s=38.0)
    clock.now_s += 0.5  # of which nothing is known yet
    show(batchscope, history)
    batchscope.composition.set_frozen(True)
    row = batchscope.window.figures
    frozen = [row.figure(key).text for key in KEYS]
    batchscope.composition.history.become(filled_history(early_run(), until_s=40.0)[0])
    batchscope.composition.presenter.show_numbers()
    assert [row.figure(key).text for key in KEYS] == frozen
    batchscope.composition.set_frozen(False)


def test_that_all_requests_of_the_table_are_the_sum_of_its_filters(batchscope: Batchscope) -> None:
    history, _ = filled_history(early_run(), until_s=50.0)
    show(batchscope, history)
    counts = {name: count(batchscope, name) for name in ("waiting", "running", "done")}
    assert sum(counts.values()) == len(history.requests.columns)


def test_that_legends_and_figures_agree_when_scrolled_back(batchscope: Batchscope) -> None:
    history, _ = filled_history(picture_run())
    show(batchscope, history)
    batchscope.composition.plots.show_until(history.now_s() - 20.0)
    batchscope.composition.presenter.show_numbers()
    row, depth = batchscope.window.figures, batchscope.composition.plots.queue_depth.header.readout
    assert row.figure("queue").text == str(int(depth["waiting"]) + int(depth["formed"]))
    assert row.figure("queue").text == str(round(figures(history, history.now_s() - 20.0).queue or 0))


def test_that_a_figure_and_its_legend_explain_themselves(batchscope: Batchscope) -> None:
    row = batchscope.window.figures
    for key in ("requests_per_s", "p95_s", "queue", "goodput_per_s", "failed_share"):
        assert row.figure(key).toolTip().startswith(REGISTER[key].sentence)
    [p50, *_] = batchscope.composition.plots.latency.plot.entries
    assert p50.tip == REGISTER["p50_s"].sentence


# Objectives ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def objectives(batchscope: Batchscope) -> ObjectivesRows:
    rows = batchscope.window.load.objectives
    rows.set_folded(False)
    return rows


def type_in(rows: ObjectivesRows, name: str, text: str) -> None:
    field = rows.setting(name).field
    field.selectAll()
    field.insert(text) if text else field.clear()
    field.setModified(True)
    field.commit()


def test_that_goodput_says_how_to_set_objectives_until_there_are_some(
    batchscope: Batchscope, objectives: ObjectivesRows
) -> None:
    history, _ = filled_history(picture_run())
    show(batchscope, history)
    goodput = batchscope.window.figures.figure("goodput_per_s")
    assert goodput.text == "–"
    assert "set them under Load" in goodput.toolTip()
    type_in(objectives, "latency", "600")
    assert goodput.text == batchscope.window.figures.figure("requests_per_s").text
    assert "latency ≤ 600 s" in goodput.toolTip()
    assert objectives.summary == "≤ 600 s"
    type_in(objectives, "latency", "")
    assert (goodput.text, objectives.summary) == ("–", "none")


@pytest.mark.parametrize("text", ["-1", "soon", "601", "1,5"])
def test_that_a_bad_objective_is_refused_under_its_field(objectives: ObjectivesRows, text: str) -> None:
    type_in(objectives, "ttft", text)
    refusal = objectives.setting("ttft").refusal
    assert refusal is not None
    assert refusal.endswith("Still none.")
    assert objectives.objectives == Objectives()


def test_that_objectives_are_remembered(qtbot: QtBot, make_batchscope: MakeBatchscope, tmp_path: Path) -> None:
    asked = Objectives(latency_s=1.5, tpot_s=0.05)
    first = make_batchscope(preferences=PreferencesFile(tmp_path / "preferences.json"))
    first.window.load.objectives.set_objectives(asked)
    with qtbot.waitSignal(first.closed):
        first.close()
    second = make_batchscope(preferences=PreferencesFile(tmp_path / "preferences.json"))
    assert second.window.load.objectives.objectives == asked
    assert second.composition.history.objectives == asked


def test_that_the_latency_plot_names_the_objective_and_reaches_to_its_line(
    batchscope: Batchscope, objectives: ObjectivesRows
) -> None:
    history, clock = filled_history(picture_run(), until_s=20.0)
    show(batchscope, history)
    plot, plots = batchscope.composition.plots.latency, batchscope.composition.plots
    plots.refresh()
    assert plot.layout_ is not None
    peak_s = figures(history).p99_s or 0.0
    type_in(objectives, "latency", f"{1.8 * peak_s:.2f}")
    clock.now_s += 2.0  # a scale changes no more often than once a second
    plots.refresh()
    assert plot.plot.entries[-1].name == f"≤ {float(f'{1.8 * peak_s:.2f}'):g} s"
    axis = plot.layout_.panes[0].axis
    assert axis is not None
    assert axis.top >= 1.8 * peak_s
