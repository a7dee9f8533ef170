"""The search and the holding of a goal for the window: a task comes in as a line, events go out as lines.

in   {"observation": {…}, "goal": {…}, "base": {…}, "prompts": […]}
out  {"event": "searching", …}, and at last {"event": "searched", …} or {"event": "refused", …}; where nothing holds,
     {"event": "planned", …} follows

in   {"objectives": {…}}
out  {"event": "moved", …}, {"event": "said", …}
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import msgspec

from service.analysis.compare.progress import Refused
from service.analysis.compare.run_plan import SweepPlan
from service.analysis.goal.hold import Said
from service.analysis.goal.planner import ReplicaPlan, plan_of
from service.analysis.goal.search import MOST_PLACES, Goal, GoalSearch, SearchProgress, choices_of, search
from service.analysis.predict.control import NICENESS
from service.analysis.predict.load import PresentLoad
from service.analysis.predict.observation import Observation, as_array
from service.analysis.predict.predict import Predictor
from service.messages.load import Pattern
from service.messages.objectives import Objectives
from service.messages.pipes import ExitCode, write_event
from service.messages.settings import SettingError, Settings
from service.messages.text import UserError

ROUNDS: Final = 3
RUN_S: Final = 15.0
STDIN: Final = 0
READ_BYTES: Final = 4096
NOT_PREDICTED: Final = "Requests that come as this load says can't be predicted: choose a rate or users instead."


class SearchTask(msgspec.Struct, frozen=True, kw_only=True):
    """A goal to be searched for.

    Attributes:
        base: the settings in force, for what is not searched.
        pattern: of arrivals, instead of the observed ones.
        prompts: of the load by which the best are measured.
    """

    observation: Observation
    goal: Goal
    base: Settings
    prompts: tuple[str, ...]
    pattern: Pattern | None = None


class Searched(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="searched"):
    """The result.

    Attributes:
        plan: that measures the best on the service; ``None`` where no setting holds on its replicas.
        runs: that were simulated.
    """

    search: GoalSearch
    plan: SweepPlan | None
    runs: int


class HoldTask(msgspec.Struct, frozen=True, kw_only=True):
    """Objectives to be held."""

    objectives: Objectives
    max_batch_size_up_to: int = MOST_PLACES


class Moved(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="moved"):
    """Hold has put settings in force.

    Attributes:
        version: of the settings.
        at_s: on the service's clock.
    """

    version: int
    at_s: float
    before: Settings
    settings: Settings
    reason: str


SearchEvent: TypeAlias = SearchProgress | Searched | ReplicaPlan | Refused
HoldEvent: TypeAlias = Moved | Said | Refused


def measuring_plan(
    found: GoalSearch,
    replicas: int,
    load: PresentLoad,
    prompts: Sequence[str],
    *,
    duration_s: float = RUN_S,
    rounds: int = ROUNDS,
) -> SweepPlan | None:
    """A measurement of the cheapest that hold, in paired rounds; ``None`` where no setting holds on those replicas."""
    best = [found.candidates[place] for place in found.holding]
    points = tuple([each.settings for each in best if each.replicas == replicas])
    if not points:
        return None
    objectives = found.goal.objectives
    return SweepPlan(
        points=points, load=load.as_sent(prompts), duration_s=duration_s, rounds=rounds, objectives=objectives
    )


def carry_out(task: SearchTask, notify: Callable[[SearchEvent], None]) -> None:
    """Search; a `Searched`, a `ReplicaPlan` after it or a `Refused` is the last event."""
    runs = 0
    predictor = Predictor.of(task.observation)
    load = predictor.load if task.pattern is None else predictor.load.of_pattern(task.pattern)
    if load is None:
        notify(Refused(reason=NOT_PREDICTED))
        return
    predictor = replace(predictor, load=load)

    def take(progress: SearchProgress) -> None:
        nonlocal runs
        runs = progress.runs
        notify(progress)

    try:
        found = search(predictor, task.goal, choices_of(predictor, task.goal, task.base), take)
    except UserError as error:
        notify(Refused(reason=str(error)))
        return
    plan = measuring_plan(found, predictor.conditions.replicas, load, task.prompts)
    notify(Searched(search=found, plan=plan, runs=runs))
    replicas = plan_of(predictor, found, task.base)
    if replicas is not None:
        notify(replicas)


def main() -> int:
    """Carry out the task of the first line of standard input; the end of the input, as of the window, ends it."""
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    try:
        task = msgspec.json.decode(sys.stdin.buffer.readline(), type=SearchTask, dec_hook=as_array)
    except (msgspec.MsgspecError, SettingError, ValueError) as error:
        write_event(Refused(reason=f"The goal was not understood: {error}."))
        return ExitCode.CANNOT
    threading.Thread(target=_end_with_input, name="end of input", daemon=True).start()
    carry_out(task, write_event)
    return ExitCode.DONE


def _end_with_input() -> None:
    while os.read(STDIN, READ_BYTES):
        pass
    os._exit(ExitCode.INTERRUPTED)  # a search holds nothing that would have to be given back
