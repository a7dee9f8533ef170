"""The life cycle of the service as the window sees it, and what may be clicked in each state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal, TypeAlias

Step: TypeAlias = Literal["start", "cancel", "stop", "restart"]


class LifeCycle(Enum):
    """Where the service is in its life.

    ::

                       start                ready
        NOT_STARTED ──────────▶ STARTING ──────────▶ RUNNING
             ▲                   │  ▲  │                │  │
             │ stopped    cancel │  │  │ died      stop │  │ died
             │                   ▼  │  ▼                ▼  ▼
             └────────── STOPPING   │  FAILED ◀─────────┼──┘
                           ▲        └───┘ start         │
                           └────────────────────────────┘

    Where another program stops it, NOT_STARTED follows upon STARTING and RUNNING, too.
    """

    NOT_STARTED = "not started"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    FAILED = "failed"


class Event(Enum):
    """Events of the life cycle: two come from the user, three from the service."""

    START_WANTED = "start"
    STOP_WANTED = "stop"  # also: cancel a start
    READY = "ready"
    STOPPED = "stopped"
    DIED = "died"


class InvalidTransitionError(ValueError):
    """The event cannot happen in that state."""


_TRANSITIONS: Final[Mapping[tuple[LifeCycle, Event], LifeCycle]] = {
    (LifeCycle.NOT_STARTED, Event.START_WANTED): LifeCycle.STARTING,
    (LifeCycle.FAILED, Event.START_WANTED): LifeCycle.STARTING,
    (LifeCycle.STARTING, Event.READY): LifeCycle.RUNNING,
    (LifeCycle.STARTING, Event.STOP_WANTED): LifeCycle.STOPPING,
    (LifeCycle.STARTING, Event.DIED): LifeCycle.FAILED,
    (LifeCycle.RUNNING, Event.STOP_WANTED): LifeCycle.STOPPING,
    (LifeCycle.RUNNING, Event.DIED): LifeCycle.FAILED,
    (LifeCycle.STOPPING, Event.STOPPED): LifeCycle.NOT_STARTED,
    (LifeCycle.STARTING, Event.STOPPED): LifeCycle.NOT_STARTED,  # another program stopped it
    (LifeCycle.RUNNING, Event.STOPPED): LifeCycle.NOT_STARTED,
}


def after(state: LifeCycle, event: Event) -> LifeCycle:
    """The state that follows `state` when `event` happens; raises `InvalidTransitionError` where it cannot.

    >>> after(LifeCycle.STARTING, Event.READY)
    <LifeCycle.RUNNING: 'running'>
    """
    try:
        return _TRANSITIONS[state, event]
    except KeyError:
        raise InvalidTransitionError(f"{event.value} cannot happen while the service is {state.value}") from None


@dataclass(frozen=True)
class EnabledActions:
    """What may be clicked.

    Attributes:
        step: the next step of the life cycle, on the first button of the toolbar.
    """

    step: Step
    can_step: bool
    can_choose_model: bool
    can_change_settings: bool
    can_fire: bool
    can_run_load: bool
    can_cancel_requests: bool
    can_freeze: bool
    can_export: bool


_STEPS: Final[Mapping[LifeCycle, Step]] = {
    LifeCycle.NOT_STARTED: "start",
    LifeCycle.STARTING: "cancel",
    LifeCycle.RUNNING: "stop",
    LifeCycle.STOPPING: "stop",
    LifeCycle.FAILED: "restart",
}


def enabled(
    state: LifeCycle, has_data: bool = False, is_reserved: bool = False, is_closed: bool = False
) -> EnabledActions:
    """What may be clicked in `state`.

    Args:
        has_data: whether the history holds anything to show.
        is_reserved: whether a comparison or a lesson has the service to itself.
        is_closed: whether it takes no requests.
    """
    running = state is LifeCycle.RUNNING
    is_ours = running and not is_reserved
    at_rest = state in (LifeCycle.NOT_STARTED, LifeCycle.FAILED)
    return EnabledActions(
        step=_STEPS[state],
        can_step=state is not LifeCycle.STOPPING,
        can_choose_model=at_rest,
        can_change_settings=state is not LifeCycle.STOPPING and not is_reserved,
        can_fire=is_ours and not is_closed,
        can_run_load=is_ours and not is_closed,
        can_cancel_requests=running,
        can_freeze=running,
        can_export=has_data,
    )
