"""The life cycle: which event leads where, and what may be clicked in each state."""

from __future__ import annotations

import pytest

from gui.session.lifecycle import Event, InvalidTransitionError, LifeCycle, after, enabled


@pytest.mark.parametrize(
    ("events", "end"),
    [
        ([Event.START_WANTED, Event.READY], LifeCycle.RUNNING),
        ([Event.START_WANTED, Event.STOP_WANTED, Event.STOPPED], LifeCycle.NOT_STARTED),
        ([Event.START_WANTED, Event.READY, Event.STOP_WANTED, Event.STOPPED], LifeCycle.NOT_STARTED),
        ([Event.START_WANTED, Event.DIED], LifeCycle.FAILED),
        ([Event.START_WANTED, Event.READY, Event.DIED, Event.START_WANTED], LifeCycle.STARTING),
        ([Event.START_WANTED, Event.READY, Event.STOPPED], LifeCycle.NOT_STARTED),
    ],
)
def test_that_events_lead_where_the_drawing_says(events: list[Event], end: LifeCycle) -> None:
    state = LifeCycle.NOT_STARTED
    for event in events:
        state = after(state, event)
    assert state is end


def test_that_an_event_out_of_place_is_refused_in_words() -> None:
    with pytest.raises(InvalidTransitionError, match="ready cannot happen while the service is not started"):
        after(LifeCycle.NOT_STARTED, Event.READY)


def test_that_every_state_can_be_left() -> None:
    for state in LifeCycle:
        assert any(_can_happen(state, event) for event in Event)


def test_that_the_first_button_is_the_next_step() -> None:
    steps = {state: enabled(state).step for state in LifeCycle}
    assert steps == {
        LifeCycle.NOT_STARTED: "start",
        LifeCycle.STARTING: "cancel",
        LifeCycle.RUNNING: "stop",
        LifeCycle.STOPPING: "stop",
        LifeCycle.FAILED: "restart",
    }


def test_that_the_step_waits_while_the_service_stops() -> None:
    assert [state for state in LifeCycle if not enabled(state).can_step] == [LifeCycle.STOPPING]


def test_that_prompts_and_load_need_a_running_service() -> None:
    for state in LifeCycle:
        actions = enabled(state, has_data=True)
        running = state is LifeCycle.RUNNING
        assert (actions.can_fire, actions.can_run_load, actions.can_freeze) == (running, running, running)


def test_that_the_model_is_chosen_while_nothing_runs() -> None:
    assert {state for state in LifeCycle if enabled(state).can_choose_model} == {
        LifeCycle.NOT_STARTED,
        LifeCycle.FAILED,
    }


def test_that_data_can_be_exported_in_every_state_once_there_are_any() -> None:
    assert all(enabled(state, has_data=True).can_export for state in LifeCycle)
    assert not any(enabled(state, has_data=False).can_export for state in LifeCycle)


def _can_happen(state: LifeCycle, event: Event) -> bool:
    try:
        after(state, event)
    except InvalidTransitionError:
        return False
    return True
