"""A service that has just started: what it is offered first, scenarios, and Show me.

Show me: requests one by one, a queue that grows, and batches that work it off, on the service that runs.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QMenu, QPushButton
from pytestqt.qtbot import QtBot

from gui.app import Batchscope
from gui.control.show_me import Times, said_of
from gui.panels.load_knobs import kind_of
from gui.panels.scenarios import ScenarioTile
from gui.session.lifecycle import LifeCycle
from service.analysis.findings.verdict import LONGEST
from service.analysis.observed.register import Figures, numbers
from service.messages.load import ClosedLoop, longest
from service.messages.settings import Settings, VersionedSettings
from tests.window.children import scripted
from tests.window.conftest import MakeBatchscope, start_service
from tests.window.seen import named, texts

TIMES = Times(measuring=2.0, growing=4.0, draining=8.0, steady=0.5)
USERS = Settings(max_batch_size=12)
SCENES = (
    r"In batches of 1: .* requests are answered a second\.",
    r".* are answered a second, .* come; .* wait\.",
    r"In batches of up to 12: .* requests? wait\.",
    r".* times as many tokens a second in batches of .* as one by one: .*\.",
)


@pytest.fixture
def ready(qtbot: QtBot, make_batchscope: MakeBatchscope) -> Batchscope:
    """The window of a service that has just started, whose batches take as long as one request."""
    batchscope = make_batchscope(scripted("--step-s=0.01", "--trial-s=0.01", settings=USERS))
    batchscope.window.batching.show_settings(USERS)
    batchscope.composition.show_me.times = TIMES
    start_service(qtbot, batchscope)
    return batchscope


def in_force(batchscope: Batchscope) -> VersionedSettings:
    settings = batchscope.composition.history.in_force
    assert settings is not None
    return settings


def cap_in_force(batchscope: Batchscope) -> int:
    return in_force(batchscope).settings.max_batch_size


def runs_a_load(batchscope: Batchscope) -> bool:
    load = batchscope.composition.history.load
    return load is not None and load.pattern is not None


def requests_sent(batchscope: Batchscope) -> int:
    load = batchscope.composition.history.load
    return load.totals.sent if load is not None else 0


def begin(qtbot: QtBot, batchscope: Batchscope) -> None:
    named(batchscope.window.notice, QPushButton, "Show me").click()
    qtbot.waitUntil(lambda: cap_in_force(batchscope) == 1 and runs_a_load(batchscope))


def test_that_a_service_without_requests_invites_to_them_with_one_stressed_button(ready: Batchscope) -> None:
    window = ready.window
    assert "See why batching matters" in texts(window.notice)
    stressed = [
        b for b in window.findChildren(QPushButton) if b.isVisibleTo(window) and b.property("role") == "primary"
    ]
    assert stressed == [named(window.notice, QPushButton, "Show me")]
    assert QApplication.focusWidget() is stressed[0]
    assert window.verdict.button.isHidden()
    assert window.verdict.text == "Ready: no request but the start's own has come."


@pytest.mark.parametrize("name", ["Fire", "Run load"])
def test_that_the_invitation_goes_with_the_first_requests(ready: Batchscope, qtbot: QtBot, name: str) -> None:
    with qtbot.waitSignal(ready.composition.session.load_changed):
        named(ready.window.notice, QPushButton, name).click()
    assert ready.window.notice.isHidden()
    assert ready.window.prompts.button.property("role") == "primary"


def test_that_the_invitation_goes_where_another_client_sends_requests(ready: Batchscope, qtbot: QtBot) -> None:
    ready.composition.session.fire(("from elsewhere",), 1, 2)
    qtbot.waitUntil(ready.window.notice.isHidden)


@pytest.mark.parametrize(
    ("title", "pattern"),
    [("Overload", "poisson"), ("Rush hour", "ramp"), ("Bursts", "gamma"), ("Stuck in line", "closed")],
)
def test_that_a_scenario_runs_as_a_share_of_what_was_measured(
    ready: Batchscope, qtbot: QtBot, title: str, pattern: str
) -> None:
    capacity = ready.composition.load_defaults.capacity(USERS.max_batch_size, 1)
    assert capacity is not None
    tile(ready, title).click()
    qtbot.waitUntil(lambda: runs_a_load(ready))
    running = ready.composition.history.load.pattern
    assert kind_of(running) == pattern
    assert ready.window.load.pattern == running, "the panel of the load shows it"
    if title == "Overload":
        assert running.rate_per_s == pytest.approx(1.3 * capacity.per_s, rel=0.01)
    assert ready.window.notice.isHidden()


def test_that_what_shares_are_of_is_said_before_a_load_has_run(ready: Batchscope) -> None:
    """The engine alone has more than the service that hands its answers on."""
    ready.composition.load_defaults.follow()
    assert any(text.endswith(" requests/s that the engine alone computes") for text in texts(ready.window.notice))


def test_that_a_scenario_may_ask_for_lengths_of_its_own(ready: Batchscope, qtbot: QtBot) -> None:
    tile(ready, "Long among short").click()
    qtbot.waitUntil(lambda: runs_a_load(ready))
    assert longest(ready.window.load.max_tokens) == 160


def test_that_scenarios_leave_their_room_to_the_plots_of_a_low_window(ready: Batchscope) -> None:
    ready.window.resize(1024, 700)
    assert not any(each.isVisibleTo(ready.window) for each in ready.window.findChildren(ScenarioTile))
    assert named(ready.window.notice, QPushButton, "Show me").isVisible()
    ready.window.resize(1440, 900)
    assert sum(each.isVisibleTo(ready.window) for each in ready.window.findChildren(ScenarioTile)) == 6


def test_that_scenarios_are_offered_later_with_the_patterns(ready: Batchscope, qtbot: QtBot) -> None:
    ready.composition.load_defaults.follow()
    panel = ready.window.load
    menu = next(menu for menu in panel.findChildren(QMenu) if any("Overload" in a.text() for a in menu.actions()))
    titles = [action.text().partition(",")[0] for action in menu.actions() if action.isVisible()]
    assert titles[:7] == ["Calm", "Rush hour", "Bursts", "Long among short", "Overload", "Stuck in line", ""]
    assert "Poisson" in titles[7:]
    panel.toggle()
    qtbot.waitUntil(lambda: panel.is_running)
    next(action for action in menu.actions() if action.text().startswith("Stuck in line")).trigger()
    qtbot.waitUntil(lambda: kind_of(ready.composition.history.load.pattern) == "closed")


def tile(batchscope: Batchscope, title: str) -> ScenarioTile:
    batchscope.composition.load_defaults.follow()
    tiles = batchscope.window.notice.findChildren(ScenarioTile)
    [found] = [each for each in tiles if each.scenario is not None and each.scenario.title == title]
    return found


def test_that_it_shows_a_queue_that_grows_and_is_worked_off_and_says_what_batches_gave(
    ready: Batchscope, qtbot: QtBot
) -> None:
    said, rows, presenter = list[str](), list[Figures](), ready.composition.presenter
    presenter.numbers_shown.connect(lambda: said.append(ready.window.verdict.text))
    presenter.numbers_shown.connect(lambda: rows.append(presenter.present))
    chosen = ready.window.load.chosen
    begin(qtbot, ready)
    assert ready.window.notice.isHidden()
    assert ready.window.player.isVisible()
    assert ready.window.focusWidget() is ready.window, "nothing else is stressed in the place of the button"
    qtbot.waitUntil(lambda: ready.window.load.pattern == ready.composition.history.load.pattern)
    qtbot.waitUntil(lambda: not ready.composition.show_me.is_playing)

    result = re.fullmatch(
        r"(.*) times as many tokens a second in batches of (.*) as one by one: (.*)\.", ready.window.verdict.text
    )
    assert result is not None, ready.window.verdict.text
    row = rows[said.index(result.group())]
    assert result.group(1) == f"{row.speedup_over_batch_1:.1f}", "the row says the same"
    assert [*result.groups()[1:]] == [numbers(row)[key] for key in ("mean_batch", "tokens_per_s")]
    times, mean_batch, _ = map(float, result.groups())
    assert times == pytest.approx(mean_batch, rel=0.4), "a batch takes as long as a request"
    begun = [next(number for number, text in enumerate(said) if re.match(scene, text)) for scene in SCENES]
    assert begun == sorted(set(begun))
    qtbot.waitUntil(lambda: cap_in_force(ready) == USERS.max_batch_size and not runs_a_load(ready))
    assert ready.window.batching.settings == USERS
    assert ready.window.load.chosen == chosen
    assert not ready.window.player.isVisible()


def test_that_more_than_batches_can_give_is_not_put_down_to_them() -> None:
    batches = Figures(tokens_per_s=2750.0, mean_batch=12.0, speedup_over_batch_1=18.6)
    said = said_of(batches, "tokens")
    assert said.text == "18.6 times as many tokens a second in batches of 12.0: the machine's speed changed too."
    assert said.state == "unjudged"
    assert len(said.text) <= LONGEST
    slower = said_of(replace(batches, speedup_over_batch_1=10.1), "tokens")
    assert slower.text == "10.1 times as many tokens a second in batches of 12.0 as one by one: 2750."
    assert slower.state == "well"


def test_that_an_engine_that_answers_nothing_is_given_up(qtbot: QtBot, make_batchscope: MakeBatchscope) -> None:
    batchscope = make_batchscope(scripted("--step-s=60"))
    batchscope.composition.show_me.times = Times(0.2, 0.2, 0.2, 0.2)
    start_service(qtbot, batchscope)
    before = in_force(batchscope)
    caps = list[int]()
    batchscope.composition.session.settings_applied.connect(
        lambda applied, _: caps.append(applied.settings.max_batch_size)
    )
    named(batchscope.window.notice, QPushButton, "Show me").click()
    assert batchscope.composition.show_me.is_playing
    qtbot.waitUntil(lambda: not batchscope.composition.show_me.is_playing)
    assert batchscope.window.verdict.text == "Too little was answered to say what batches give."
    qtbot.waitUntil(lambda: in_force(batchscope).version == before.version + 2 and not runs_a_load(batchscope))
    assert in_force(batchscope).settings == before.settings
    assert 1 in caps
    qtbot.waitUntil(lambda: requests_sent(batchscope) > 0)


def test_that_escape_ends_it_and_puts_the_settings_back(ready: Batchscope, qtbot: QtBot) -> None:
    begin(qtbot, ready)
    qtbot.keyClick(ready.window, Qt.Key.Key_Escape)
    assert ready.window.batching.settings == USERS
    qtbot.waitUntil(lambda: cap_in_force(ready) == USERS.max_batch_size and not runs_a_load(ready))
    assert not re.match(SCENES[0], ready.window.verdict.text)


@pytest.mark.parametrize(
    ("change", "cap"), [({"max_batch_size": 5}, 5), ({"batch_wait_timeout_s": 0.2}, USERS.max_batch_size)]
)
def test_that_it_ends_where_the_user_changes_a_setting_which_then_holds(
    ready: Batchscope, qtbot: QtBot, change: dict[str, object], cap: int
) -> None:
    begin(qtbot, ready)
    ready.window.batching.want(change)
    assert not ready.composition.show_me.is_playing
    wanted = USERS.revised({"max_batch_size": cap, **change})
    qtbot.waitUntil(lambda: ready.composition.history.in_force.settings == wanted and not runs_a_load(ready))


def test_that_a_load_of_the_user_goes_on_in_its_place(ready: Batchscope, qtbot: QtBot) -> None:
    begin(qtbot, ready)
    ready.window.load.set_load(ClosedLoop(users=3), 4)
    ready.window.load.load_wanted.emit(*[None] * 3)
    qtbot.waitUntil(lambda: ready.composition.history.load.pattern == ClosedLoop(users=3))
    qtbot.waitUntil(lambda: cap_in_force(ready) == USERS.max_batch_size)
    assert runs_a_load(ready)


def test_that_it_is_over_with_the_service_and_leaves_the_user_s_settings(ready: Batchscope, qtbot: QtBot) -> None:
    begin(qtbot, ready)
    ready.window.toolbar.step_wanted.emit("stop")
    assert not ready.composition.show_me.is_playing
    assert ready.window.batching.settings == USERS
    qtbot.waitUntil(lambda: ready.composition.session.state is LifeCycle.NOT_STARTED)
