"""The ghost: what a slider would do is shown while it is dragged, and stays beside what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from pytestqt.qtbot import QtBot

from gui.app import Batchscope
from gui.session.lifecycle import LifeCycle
from service.analysis.observed.annotations import OuterMark
from service.analysis.predict.predict import Prediction
from service.analysis.predict.speed import Withheld
from service.analysis.recording.format import PredictionsScored
from service.analysis.recording.reader import Entries, open_recording
from service.messages.load import ClientTotals, LoadFrame, Poisson
from service.messages.settings import Settings, VersionedSettings
from tests.synthetic_parts import SyntheticBatch
from tests.synthetic_run import CLOCK, Slowed, Step, SyntheticRun, filled_history

SPAN_S = 60.0
CALM = Settings(max_batch_size=8)


AFTER_S = 30.0
WIDER = CALM.revised({"max_batch_size": 16})


def run_under(rate_per_s: float = 4.0) -> SyntheticRun:
    return SyntheticRun(SPAN_S, (Step(0.0, rate_per_s, CALM),), seed=4)


class SlowerAtLast(SyntheticRun):
    """The engine takes longer in the last ten seconds, of which batches formed before are a part."""

    def _batch_s(self, batch: SyntheticBatch) -> float:
        return super()._batch_s(batch) * (1.7 if batch.formed_s > self.duration_s - 10.0 else 1.0)


@pytest.fixture
def loaded(batchscope: Batchscope) -> Iterator[Batchscope]:
    """The window of a service that has run under load for a minute."""
    composition = batchscope.composition
    composition.history.become(filled_history(run_under())[0])
    composition.session.state = LifeCycle.RUNNING
    batchscope.window.batching.show_settings(CALM)
    yield batchscope
    composition.session.state = LifeCycle.NOT_STARTED


def below(batchscope: Batchscope, key: str) -> str:
    return batchscope.window.figures.figure(key).before


def drag_to(batchscope: Batchscope, cap: int, *, let_go: bool = False) -> None:
    batchscope.window.batching.control("max_batch_size").wanted.emit(float(cap), let_go)


def await_prediction(qtbot: QtBot, batchscope: Batchscope) -> None:
    qtbot.waitUntil(lambda: below(batchscope, "p50_s").startswith("then"))


def test_that_a_slider_that_is_dragged_shows_what_it_would_do(qtbot: QtBot, loaded: Batchscope) -> None:
    drag_to(loaded, 16)
    await_prediction(qtbot, loaded)
    assert [below(loaded, key).split()[0] for key in ("p95_s", "requests_per_s", "mean_batch")] == ["then"] * 3
    assert "then" not in below(loaded, "queue")


def test_that_the_plots_show_it_too(qtbot: QtBot, loaded: Batchscope) -> None:
    plots = loaded.composition.plots
    drag_to(loaded, 16)
    await_prediction(qtbot, loaded)
    assert [bool(panel.ghost) for panel in (plots.latency, plots.throughput, plots.batch_size)] == [True] * 3
    assert not plots.queue_depth.ghost


def test_that_a_slowed_engine_is_no_ground_for_a_prediction_and_the_window_says_why(
    qtbot: QtBot, loaded: Batchscope
) -> None:
    composition, window = loaded.composition, loaded.window
    slowed = replace(run_under(), slowed=(Slowed(45.0, 58.0, 3.0),), measures_processor=True)
    composition.history.become(filled_history(slowed)[0])
    drag_to(loaded, 16)
    withheld = Withheld.at(composition.history)
    assert withheld is not None
    why = withheld.sentence
    assert "the engine was slowed" in why
    assert (below(loaded, "p50_s"), window.views.remark) == ("then –", why)
    assert why in window.figures.figure("p50_s").toolTip()
    assert not composition.plots.latency.ghost

    drag_to(loaded, 16, let_go=True)
    composition.history.become(filled_history(run_under())[0])
    composition.foresight.follow()
    assert not below(loaded, "p50_s").startswith("then")
    assert not window.views.remark
    assert "slowed" not in window.figures.figure("p50_s").toolTip()


def test_that_a_frozen_plot_shows_none(qtbot: QtBot, loaded: Batchscope) -> None:
    drag_to(loaded, 16)
    await_prediction(qtbot, loaded)
    loaded.composition.set_frozen(True)
    loaded.composition.plots.refresh()
    assert not loaded.composition.plots.latency.canvas.ghost.levels


def test_that_a_queue_that_would_grow_is_told_where_its_latency_stands(qtbot: QtBot, loaded: Batchscope) -> None:
    drag_to(loaded, 1)
    qtbot.waitUntil(lambda: below(loaded, "p50_s").startswith("in 30 s"))
    assert below(loaded, "requests_per_s").startswith("then")


def test_that_the_time_that_is_left_until_then_is_counted_and_no_prediction_outlives_it(
    qtbot: QtBot, loaded: Batchscope
) -> None:
    composition = loaded.composition
    history, clock = filled_history(run_under())
    composition.history.become(history)
    drag_to(loaded, 1)
    drag_to(loaded, 1, let_go=True)
    qtbot.waitUntil(lambda: below(loaded, "p50_s").startswith("in 30 s"))
    clock.now_s += 12.0
    composition.foresight.follow()
    assert below(loaded, "p50_s").startswith("in 18 s")
    assert composition.plots.latency.ghost[0].words[0].endswith(" s in 18 s")
    drag_to(loaded, 1)
    composition.foresight.follow()
    assert below(loaded, "p50_s").startswith("in 18 s"), "it is of the same moment until the next is there"
    qtbot.waitUntil(lambda: below(loaded, "p50_s").startswith("in 30 s"))
    clock.now_s += 30.0
    composition.foresight.follow()
    assert not below(loaded, "p50_s").startswith("in ")
    assert not composition.plots.latency.ghost


def test_that_a_way_begins_at_the_present_again_and_its_first_prediction_is_the_one_that_is_scored(
    qtbot: QtBot, loaded: Batchscope
) -> None:
    composition = loaded.composition
    narrow = CALM.revised({"max_batch_size": 1})
    steps = (Step(0.0, 4.0, CALM), Step(SPAN_S, settings=narrow))
    drag_to(loaded, 1, let_go=True)
    with qtbot.waitSignal(composition.foresight.predictor.predicted) as first:
        apply(loaded, 2, 1)
    composition.history.become(filled_history(SyntheticRun(SPAN_S + 12.0, steps, seed=4))[0])
    with qtbot.waitSignal(composition.foresight.predictor.predicted) as anew:
        composition.foresight.follow()
    assert below(loaded, "p95_s").startswith("in 30 s")
    (waiting,) = composition.plots.queue_depth.ghost
    held = sum(composition.history.depth_at(composition.history.now_s()))
    assert waiting.course[0].value == pytest.approx(held, abs=1.0)
    assert anew.args[0].backlog > first.args[0].backlog + 5

    composition.history.become(filled_history(SyntheticRun(SPAN_S + AFTER_S + 2.0, steps, seed=4))[0])
    composition.foresight.follow()
    assert composition.foresight.scores.outcomes[0].prediction == first.args[0]


def test_that_a_level_is_predicted_once(qtbot: QtBot, loaded: Batchscope, monkeypatch: pytest.MonkeyPatch) -> None:
    composition, asked = loaded.composition, []
    history, clock = filled_history(run_under())
    composition.history.become(history)
    drag_to(loaded, 16, let_go=True)
    await_prediction(qtbot, loaded)
    apply(loaded, 2, 16)
    monkeypatch.setattr(composition.foresight.predictor, "ask", asked.append)
    clock.now_s += 12.0
    composition.foresight.follow()
    assert not asked
    assert below(loaded, "p50_s").startswith("then")


def test_that_only_the_last_of_many_questions_is_answered(qtbot: QtBot, loaded: Batchscope) -> None:
    answers: list[Prediction] = []
    loaded.composition.foresight.predictor.predicted.connect(answers.append)
    for cap in range(9, 33):
        drag_to(loaded, cap)
    await_prediction(qtbot, loaded)
    assert [prediction.settings.max_batch_size for prediction in answers] == [32]


def test_that_the_prediction_stays_when_the_slider_is_let_go(qtbot: QtBot, loaded: Batchscope) -> None:
    drag_to(loaded, 16)
    drag_to(loaded, 16, let_go=True)
    await_prediction(qtbot, loaded)
    apply(loaded, 2, 16)
    assert below(loaded, "p50_s").startswith("then")


def test_that_the_next_change_ends_it(qtbot: QtBot, loaded: Batchscope) -> None:
    drag_to(loaded, 16, let_go=True)
    await_prediction(qtbot, loaded)
    apply(loaded, 2, 16)
    apply(loaded, 3, 4)
    assert "then" not in below(loaded, "p50_s")
    assert not loaded.composition.plots.latency.ghost


def test_that_what_was_in_force_on_the_way_does_not_end_it(qtbot: QtBot, loaded: Batchscope) -> None:
    drag_to(loaded, 12)
    drag_to(loaded, 16, let_go=True)
    await_prediction(qtbot, loaded)
    apply(loaded, 2, 12)
    apply(loaded, 3, 16)
    assert below(loaded, "p50_s").startswith("then")


def test_that_another_load_ends_it(qtbot: QtBot, loaded: Batchscope) -> None:
    drag_to(loaded, 16, let_go=True)
    await_prediction(qtbot, loaded)
    history = loaded.composition.history
    history.load_timeline.marks.append(OuterMark(history.now_s(), "Poisson 4 → 8 requests/s"))
    loaded.composition.foresight.check()
    assert "then" not in below(loaded, "p50_s")


def test_that_another_number_of_replicas_ends_it(qtbot: QtBot, loaded: Batchscope) -> None:
    drag_to(loaded, 16)
    await_prediction(qtbot, loaded)
    history = loaded.composition.history
    history.deployment_timeline.marks.append(OuterMark(history.now_s(), "replicas 1 → 2"))
    qtbot.waitUntil(lambda: "then" not in below(loaded, "p50_s"))


def test_that_the_end_of_the_service_ends_it(qtbot: QtBot, loaded: Batchscope) -> None:
    drag_to(loaded, 16)
    await_prediction(qtbot, loaded)
    loaded.composition.session.life_cycle_changed.emit(LifeCycle.FAILED)
    assert "then" not in below(loaded, "p50_s")


def test_that_a_prediction_is_scored_beside_the_plots(qtbot: QtBot, loaded: Batchscope) -> None:
    composition, window = loaded.composition, loaded.window
    assert not window.views.remark
    score_one(qtbot, loaded)
    assert window.views.remark.startswith("Predictions of p95, the last: error ")
    composition.foresight.follow()
    assert "the last" in window.views.remark, "it is scored once"


def test_that_the_score_is_in_each_recording_whenever_it_began(
    qtbot: QtBot, loaded: Batchscope, tmp_path: Path
) -> None:
    recorder = loaded.composition.recorder

    def record_until(do: Callable[[], None], path: Path) -> None:
        recorder.record(path)
        do()
        with qtbot.waitSignal(recorder.written):
            recorder.record_or_stop()

    record_until(lambda: score_one(qtbot, loaded), tmp_path / "whole.bsr")
    record_until(lambda: None, tmp_path / "later.bsr")
    with qtbot.waitSignal(recorder.written):
        recorder.save(tmp_path / "saved.bsr")
    for name in ("whole", "later", "saved"):
        path = tmp_path / f"{name}.bsr"
        said = [e.event.scores.words for e in Entries(path) if isinstance(e.event, PredictionsScored)]
        assert said[-1] == loaded.window.views.remark != "", name
        assert open_recording(path).damage is None


def score_one(qtbot: QtBot, batchscope: Batchscope) -> None:
    """Predict, apply what was predicted, and hear what comes of it."""
    drag_to(batchscope, 16, let_go=True)
    await_prediction(qtbot, batchscope)
    apply(batchscope, 2, 16)
    steps = (Step(0.0, 4.0, CALM), Step(SPAN_S, settings=WIDER))
    batchscope.composition.history.become(filled_history(SyntheticRun(SPAN_S + AFTER_S, steps, seed=4))[0])
    batchscope.composition.foresight.follow()


def test_that_a_prediction_that_was_not_applied_is_not_scored(qtbot: QtBot, loaded: Batchscope) -> None:
    drag_to(loaded, 16)
    await_prediction(qtbot, loaded)
    apply(loaded, 2, 16)  # on the way, while the slider is held
    drag_to(loaded, 12, let_go=True)
    await_prediction(qtbot, loaded)
    steps = (Step(0.0, 4.0, CALM), Step(SPAN_S, settings=WIDER))
    loaded.composition.history.become(filled_history(SyntheticRun(SPAN_S + AFTER_S, steps, seed=4))[0])
    loaded.composition.foresight.follow()
    assert not loaded.window.views.remark


def test_that_nothing_is_predicted_while_the_engine_is_not_as_it_was_observed(loaded: Batchscope) -> None:
    composition, views = loaded.composition, loaded.window.views
    composition.history.become(filled_history(SlowerAtLast(SPAN_S, (Step(0.0, 4.0, CALM),), seed=4))[0])
    drag_to(loaded, 16)
    assert views.remark.startswith("The engine takes 1.6 times as long as when it was observed; no prediction until")
    assert not composition.plots.latency.ghost
    assert not composition.foresight.predictor.is_running
    composition.history.become(filled_history(run_under())[0])
    composition.foresight.follow()
    assert not views.remark


@pytest.mark.parametrize(
    ("slower", "reason"),
    [
        (SlowerAtLast(SPAN_S, (Step(0.0, 4.0, CALM),), seed=4), "The engine takes 1.6 times as long"),
        (replace(run_under(), slowed=(Slowed(45.0, 58.0, 3.0),)), "Predictions are withheld until 10 s after"),
    ],
    ids=["another speed", "slowed"],
)
def test_that_a_prediction_is_withdrawn_when_the_engine_becomes_slower(
    qtbot: QtBot, loaded: Batchscope, slower: SyntheticRun, reason: str
) -> None:
    drag_to(loaded, 16)
    await_prediction(qtbot, loaded)
    loaded.composition.history.become(filled_history(slower)[0])
    loaded.composition.foresight.follow()
    assert below(loaded, "p50_s") == "then –"
    assert not loaded.composition.plots.latency.ghost
    assert loaded.window.views.remark.startswith(reason)


def test_that_without_a_load_nothing_is_foretold(batchscope: Batchscope) -> None:
    batchscope.composition.session.state = LifeCycle.RUNNING
    drag_to(batchscope, 16)
    assert not batchscope.composition.foresight.predictor.is_running
    batchscope.composition.session.state = LifeCycle.NOT_STARTED


def test_that_the_predictor_ends_with_the_window(qtbot: QtBot, loaded: Batchscope) -> None:
    drag_to(loaded, 16)
    predictor = loaded.composition.foresight.predictor
    qtbot.waitUntil(lambda: predictor.pid is not None)
    process = psutil.Process(predictor.pid)
    loaded.composition.session.state = LifeCycle.NOT_STARTED
    with qtbot.waitSignal(loaded.closed):
        loaded.close()
    assert not process.is_running()


def test_that_a_predictor_that_cannot_run_is_not_started_again_and_again(qtbot: QtBot, loaded: Batchscope) -> None:
    predictor, session = loaded.composition.foresight.predictor, loaded.composition.session
    frame = LoadFrame(at_s=0.0, clock=CLOCK, pattern=Poisson(rate_per_s=4.0), totals=ClientTotals())
    session.load_changed.emit(frame)
    with qtbot.waitSignal(predictor.logged):
        psutil.Process(predictor.pid).kill()
    session.load_changed.emit(frame)
    assert not predictor.is_running


def test_that_a_predictor_that_died_is_started_anew(qtbot: QtBot, loaded: Batchscope) -> None:
    predictor = loaded.composition.foresight.predictor
    drag_to(loaded, 16, let_go=True)
    await_prediction(qtbot, loaded)
    with qtbot.waitSignal(predictor.logged):
        psutil.Process(predictor.pid).kill()
    with qtbot.waitSignal(predictor.predicted):
        drag_to(loaded, 12)


def apply(batchscope: Batchscope, version: int, cap: int) -> None:
    settings = CALM.revised({"max_batch_size": cap})
    batchscope.composition.session.settings_applied.emit(VersionedSettings(version=version, settings=settings), 3.0)
