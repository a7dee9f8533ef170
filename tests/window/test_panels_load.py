"""The load as the user asks for it: patterns, lengths, pause."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLineEdit
from pytestqt.qtbot import QtBot

from gui.look import tokens
from gui.look.theme import Theme
from gui.panels.length import LengthControl, NameMenu
from gui.panels.load import LoadPanel
from gui.panels.load_knobs import CHOICES, KINDS, NUMBERS, NumberKnob, RatesKnob, Suited
from gui.widgets.buttons import Chooser
from gui.widgets.labels import ElidedLabel
from service.messages.load import (
    Burst,
    ClientTotals,
    ClosedLoop,
    ConstantRate,
    GammaArrivals,
    Length,
    LognormalLength,
    OnOff,
    Pattern,
    Poisson,
    Ramp,
    Steps,
    Trace,
    UniformLength,
)
from tests.window.seen import choose_file, file_dialog, named, pick, saying, texts

EVERY_PATTERN = (
    Poisson(rate_per_s=0.5),
    ConstantRate(rate_per_s=2.5),
    GammaArrivals(rate_per_s=3.0, shape=0.25),
    OnOff(rate_per_s=8.0, on_s=2.5, off_s=3.0),
    Ramp(rate_per_s=1.0, rate_to_per_s=9.0, over_s=45.0),
    Steps(rates_per_s=(1.0, 2.5, 16.0), step_s=20.0),
    Trace(path="/somewhere/day.jsonl", time_scale=0.5),
    ClosedLoop(users=32),
    ClosedLoop(users=32, think_s=1.5, think="exponential"),
    Burst(count=100),
)


@pytest.fixture
def load(qtbot: QtBot, theme: Theme) -> LoadPanel:
    panel = LoadPanel()
    qtbot.addWidget(panel)
    panel.resize(tokens.WIDTH_LEFT, 500)
    panel.show()
    panel.set_can_run(True)
    return panel


@pytest.fixture
def words(qtbot: QtBot, theme: Theme) -> LengthControl:
    control = LengthControl("prompt_words", "words", 32, "", is_optional=True)
    qtbot.addWidget(control)
    control.show()
    return control


def number(load: LoadPanel, field: str) -> NumberKnob:
    knob = load.knob(field)
    assert isinstance(knob, NumberKnob)
    return knob


def rates(load: LoadPanel) -> RatesKnob:
    knob = load.knob("rates_per_s")
    assert isinstance(knob, RatesKnob)
    return knob


def choose(load: LoadPanel, kind: str) -> None:
    title, remark = KINDS[kind]
    pick(named(load, Chooser, "Pattern of the load"), f"{title}, {remark}")


def type_into(field: QLineEdit, text: str) -> None:
    field.setFocus()
    field.selectAll()
    QTest.keyClicks(field, text)
    QTest.keyClick(field, Qt.Key.Key_Return)


def shown(load: LoadPanel) -> set[str]:
    return {field for fields in CHOICES.values() for field in fields if load.knob(field).isVisible()}


class TestAsking:
    def test_that_a_load_is_asked_for_and_again_when_it_is_changed(self, load: LoadPanel, qtbot: QtBot) -> None:
        load.set_load(Poisson(rate_per_s=4.0), 24)
        with qtbot.waitSignal(load.load_wanted) as run:
            load.button.click()
        assert run.args == [Poisson(rate_per_s=4.0), 24, None]
        load.show_running(Poisson(rate_per_s=4.0))
        with qtbot.waitSignal(load.load_wanted) as changed:
            type_into(number(load, "rate_per_s").field, "6.4")
        assert changed.args == [Poisson(rate_per_s=6.4), 24, None]
        with qtbot.waitSignal(load.stop_wanted):
            load.button.click()

    def test_that_nothing_is_asked_for_while_no_load_runs(self, load: LoadPanel, qtbot: QtBot) -> None:
        with qtbot.assertNotEmitted(load.load_wanted, wait=2 * tokens.SETTINGS_INTERVAL_MS):
            type_into(number(load, "rate_per_s").field, "6.4")
            choose(load, "closed")

    def test_that_a_burst_is_not_repeated_by_choosing_it(self, load: LoadPanel, qtbot: QtBot) -> None:
        load.show_running(Poisson(rate_per_s=1.0))
        with qtbot.assertNotEmitted(load.load_wanted, wait=2 * tokens.SETTINGS_INTERVAL_MS):
            choose(load, "burst")


class TestPatterns:
    def test_that_the_menu_has_every_pattern(self) -> None:
        assert set(KINDS) == set(CHOICES)

    @pytest.mark.parametrize("pattern", EVERY_PATTERN)
    def test_that_every_pattern_comes_back_as_it_was_set(self, load: LoadPanel, pattern: Pattern) -> None:
        load.set_load(pattern, 48)
        assert (load.pattern, load.max_tokens) == (pattern, 48)

    @pytest.mark.parametrize("kind", KINDS)
    def test_that_a_pattern_shows_its_own_controls_and_no_other(self, load: LoadPanel, kind: str) -> None:
        choose(load, kind)
        assert shown(load) == set(CHOICES[kind]) - {"think"}
        assert 1 <= len(shown(load)) <= 3

    def test_that_a_rate_stays_when_another_pattern_is_chosen(self, load: LoadPanel) -> None:
        load.set_load(Poisson(rate_per_s=7.5), 24)
        choose(load, "constant")
        assert load.pattern == ConstantRate(rate_per_s=7.5)

    def test_that_users_can_think_for_exponential_times(self, load: LoadPanel) -> None:
        choose(load, "closed")
        type_into(number(load, "think_s").field, "2")
        assert "think" in shown(load)
        type_into(number(load, "think_s").field, "0")
        assert "think" not in shown(load)

    def test_that_rates_are_typed_as_a_list(self, load: LoadPanel, qtbot: QtBot) -> None:
        choose(load, "steps")
        load.show_running(load.pattern)
        with qtbot.waitSignal(load.load_wanted) as asked:
            type_into(rates(load).field, "1 2.5,16")
        assert asked.args[0] == Steps(rates_per_s=(1.0, 2.5, 16.0), step_s=10.0)
        assert rates(load).field.text() == "1, 2.5, 16"

    def test_that_a_decimal_comma_is_not_read_as_two_rates(self, load: LoadPanel, qtbot: QtBot) -> None:
        choose(load, "steps")
        load.show_running(load.pattern)
        with qtbot.assertNotEmitted(load.load_wanted):
            type_into(rates(load).field, "2,5")
        refusal = rates(load).refusal
        assert refusal is not None
        assert refusal.startswith("Decimals take a point, not a comma")

    def test_that_rates_that_cannot_be_are_refused_at_the_control(self, load: LoadPanel) -> None:
        choose(load, "steps")
        for nonsense in (",", "2, fast", "0", "nan", "1, 99999"):
            type_into(rates(load).field, nonsense)
            assert rates(load).refusal == "Must be numbers from 0.001 to 10000, such as 2, 4, 8. Still 2, 4, 8."
            assert load.pattern == Steps(rates_per_s=(2.0, 4.0, 8.0), step_s=10.0)
        QTest.keyClick(rates(load).field, Qt.Key.Key_Escape)
        assert (rates(load).refusal, rates(load).field.text()) == (None, "2, 4, 8")
        type_into(rates(load).field, "fast")
        type_into(rates(load).field, "3")
        assert rates(load).refusal is None

    def test_that_a_trace_is_asked_for_before_it_runs(self, load: LoadPanel, qtbot: QtBot, tmp_path: Path) -> None:
        (trace := tmp_path / "day.jsonl").touch()
        choose(load, "trace")
        with qtbot.assertNotEmitted(load.load_wanted):
            load.button.click()
            file_dialog(load).reject()
        with qtbot.waitSignal(load.load_wanted) as asked:
            load.button.click()
            choose_file(load, trace)
        assert asked.args[0] == Trace(path=str(trace))

    def test_that_choosing_a_trace_that_has_no_file_leaves_the_running_load_alone(
        self, load: LoadPanel, qtbot: QtBot
    ) -> None:
        load.show_running(Poisson(rate_per_s=1.0))
        with qtbot.assertNotEmitted(load.load_wanted, wait=2 * tokens.SETTINGS_INTERVAL_MS):
            choose(load, "trace")


class TestLengths:
    @pytest.mark.parametrize(
        "length", [None, 7, UniformLength(low=8, high=64), LognormalLength(median=40, sigma=0.75, cap=200)]
    )
    def test_that_every_length_comes_back_as_it_was_set(self, words: LengthControl, length: Length | None) -> None:
        words.set_length(length)
        assert words.length == length

    def test_that_a_range_keeps_its_ends_in_order(self, words: LengthControl, qtbot: QtBot) -> None:
        words.pick("uniform")
        words.set_length(UniformLength(low=8, high=64))
        with qtbot.waitSignal(words.wanted):
            type_into(words.number("low").field, "100")
        assert words.length == UniformLength(low=100, high=100)
        type_into(words.number("high").field, "50")
        assert words.length == UniformLength(low=50, high=50)

    def test_that_a_length_changes_the_load_that_runs(self, load: LoadPanel, qtbot: QtBot) -> None:
        load.show_running(Poisson(rate_per_s=4.0))
        with qtbot.waitSignal(load.load_wanted) as asked:
            pick(named(load, NameMenu, "max_tokens"), "From … to …")
        assert asked.args == [Poisson(rate_per_s=4.0), UniformLength(low=8, high=128), None]
        with qtbot.waitSignal(load.load_wanted) as asked:
            pick(named(load, NameMenu, "prompt_words"), "Always the same")
        assert asked.args[2] == 32

    def test_that_only_the_numbers_of_the_chosen_kind_are_shown(self, words: LengthControl) -> None:
        def visible() -> set[str]:
            return {field for field in ("low", "high", "median", "sigma", "cap") if words.number(field).isVisible()}

        assert (visible(), words.fixed.field.isVisible()) == (set(), False)
        words.pick("fixed")
        assert (visible(), words.fixed.field.isVisible()) == (set(), True)
        words.pick("lognormal")
        assert (visible(), words.fixed.field.isVisible()) == ({"median", "sigma", "cap"}, False)


SUITED = {"rate_per_s": Suited(46.0, 160.0, "60 % of the capacity", "The slider ends at twice it")}


class TestSuiting:
    def test_that_a_rate_and_its_slider_follow_what_suits_the_service(self, load: LoadPanel, qtbot: QtBot) -> None:
        rate = number(load, "rate_per_s")
        with qtbot.assertNotEmitted(load.load_wanted, wait=2 * tokens.SETTINGS_INTERVAL_MS):
            load.suit(SUITED, moves=True)
        assert load.pattern == Poisson(rate_per_s=46.0)
        assert end_of(rate) == 160.0
        assert rate.toolTip().endswith("60 % of the capacity")
        load.suit({}, moves=True)
        assert (load.pattern, end_of(rate)) == (Poisson(rate_per_s=4.0), 200.0)
        assert rate.toolTip() == NUMBERS["rate_per_s"].tip

    def test_that_a_value_which_the_user_set_stays_and_its_slider_reaches_it(self, load: LoadPanel) -> None:
        rate = number(load, "rate_per_s")
        type_into(rate.field, "210")
        load.suit(SUITED, moves=True)
        assert load.pattern == Poisson(rate_per_s=210.0)
        assert end_of(rate) == 250.0
        assert rate.toolTip().endswith("The slider ends at twice it")
        assert load.usual_numbers == ()

    def test_that_nothing_moves_while_a_load_runs(self, load: LoadPanel) -> None:
        load.show_running(Poisson(rate_per_s=4.0))
        load.suit(SUITED, moves=True)
        assert (load.pattern, end_of(number(load, "rate_per_s"))) == (Poisson(rate_per_s=4.0), 200.0)

    def test_that_nothing_moves_under_the_user_s_hand(self, load: LoadPanel) -> None:
        rate = number(load, "rate_per_s")
        assert rate.slider is not None
        QTest.mousePress(rate.slider, Qt.MouseButton.LeftButton, pos=rate.slider.rect().center())
        held = rate.number
        load.suit(SUITED, moves=True)
        assert (rate.number, end_of(rate)) == (held, 200.0)
        QTest.mouseRelease(rate.slider, Qt.MouseButton.LeftButton)

    def test_that_nothing_moves_while_a_number_is_typed(self, load: LoadPanel) -> None:
        rate = number(load, "rate_per_s")
        rate.field.setFocus()
        rate.field.selectAll()
        QTest.keyClicks(rate.field, "7")
        load.suit(SUITED, moves=True)
        assert (rate.field.text(), rate.number) == ("7", 4.0)

    def test_that_only_the_slider_follows_where_values_are_to_stay(self, load: LoadPanel) -> None:
        load.suit(SUITED, moves=False)
        assert (load.pattern, end_of(number(load, "rate_per_s"))) == (Poisson(rate_per_s=4.0), 160.0)

    def test_that_a_slider_never_ends_below_what_can_be_dragged(self, load: LoadPanel) -> None:
        load.suit({"rate_per_s": Suited(0.02, 0.06, "", "")}, moves=True)
        assert (load.pattern, end_of(number(load, "rate_per_s"))) == (Poisson(rate_per_s=0.02), 1.0)


def end_of(knob: NumberKnob) -> float:
    assert knob.slider is not None
    return knob.slider.scale.high


class TestPause:
    def test_that_a_running_load_is_paused_and_resumed(self, load: LoadPanel, qtbot: QtBot) -> None:
        assert not load.pause.isVisible()
        load.show_running(Poisson(rate_per_s=4.0))
        with qtbot.waitSignal(load.pause_wanted) as paused:
            load.toggle_pause()
        assert paused.args == [True]
        load.show_running(Poisson(rate_per_s=4.0), is_paused=True)
        assert (load.pause.text(), load.button.text()) == ("Resume", "Stop load")
        with qtbot.waitSignal(load.pause_wanted) as resumed:
            load.toggle_pause()
        assert resumed.args == [False]

    def test_that_there_is_nothing_to_pause_in_a_burst_or_at_rest(self, load: LoadPanel, qtbot: QtBot) -> None:
        load.show_running(Burst(count=3))
        with qtbot.assertNotEmitted(load.pause_wanted):
            load.toggle_pause()
        load.show_running(None)
        assert not load.pause.isVisible()


class TestOutcome:
    def test_that_the_counts_say_what_was_dropped_and_refused(self, load: LoadPanel) -> None:
        load.show_totals(ClientTotals(sent=322), 0.84)
        assert {"322 sent, 0 dropped", "own lag p99 0.8 ms"} <= set(texts(load))

    def test_that_the_counts_say_how_many_repeated_answers_differ(self, load: LoadPanel) -> None:
        load.show_totals(ClientTotals(sent=322, ok=320, repeated=310, differing=0), 0.84)
        assert {"322 sent, 0 dropped", "0 of 310 repeated answers differ"} <= set(texts(load))
        load.show_totals(ClientTotals(sent=322, ok=320, repeated=310, differing=31), 0.84)
        assert "Did batching change an answer?" in saying(load, "31 of 310 repeated answers differ").toolTip()

    def test_that_the_own_lag_is_shown_where_room_is_scarce_too(self, load: LoadPanel) -> None:
        load.show_totals(ClientTotals(sent=322, dropped=2, refused=3), 24.3)
        assert "322 sent, 2 dropped, 3 refused" in texts(load)
        assert "How late" in saying(load, "lag 24 ms").toolTip()

    def test_that_the_counts_are_whole_beside_the_lag_to_a_pixel(self, load: LoadPanel) -> None:
        for refused in (0, 7, 76, 148):
            for sent in range(refused + 1, 1600, 89):
                load.show_totals(ClientTotals(sent=sent, refused=refused), sent / 10)
                QApplication.processEvents()
                [counts] = [each for each in load.findChildren(ElidedLabel) if " sent, " in each.text()]
                assert counts.shown_text == counts.text()

    def test_that_why_a_load_was_stopped_is_said_until_more_is_sent(self, load: LoadPanel) -> None:
        why = "The load was stopped. http://127.0.0.1:8000 cannot be reached: connection refused."
        load.show_running(Poisson(rate_per_s=4.0))
        load.show_totals(ClientTotals(sent=31), 0.84)
        load.show_refusal(why)
        load.show_running(None)
        for failed in (20, 22):  # the last ones that were sent end
            load.show_totals(ClientTotals(sent=33, failed=failed), 0.84)
            assert why in texts(load)
        load.show_totals(ClientTotals(sent=34, failed=22), 0.84)
        assert "34 sent, 22 failed" in texts(load)

    def test_that_run_waits_for_the_service_and_says_so(self, load: LoadPanel) -> None:
        load.set_can_run(False, "Waits for the service.")
        assert not load.button.isEnabled()
        assert "Waits for the service." in texts(load)
