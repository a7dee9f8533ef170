"""Makes the loop that a load declares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from service.load.clock import Clock
from service.load.loops import Arrive, Loop, ScheduleLoop, UserLoop
from service.load.patterns.arrivals import BurstArrivals, OpenArrivals, ReplayArrivals, rated_arrivals
from service.load.trace_file import TraceEntry, TraceError, read_trace
from service.messages.load import Burst, ClosedLoop, RunLoad, Trace


class CannotRunError(ValueError):
    """The load cannot be run; the text is a sentence that says why."""


class Plan(NamedTuple):
    """A load that can be run, and the trace that it replays."""

    load: RunLoad
    trace: Sequence[TraceEntry] = ()


def plan(load: RunLoad, running: Plan | None, max_connections: int) -> Plan:
    """Check `load` and read its trace, unless `running` replays that trace already; raises `CannotRunError`."""
    trace = _trace(load, running)
    if not load.prompts and not (trace and all(entry.prompt is not None for entry in trace)):
        raise CannotRunError("A load needs at least one prompt.")
    if isinstance(load.pattern, ClosedLoop) and load.pattern.users > max_connections:
        raise CannotRunError(f"{load.pattern.users:,} users are too many: {max_connections:,} connections can be open.")
    return Plan(load, trace)


def make_loop(planned: Plan, clock: Clock, arrive: Arrive, ended: Callable[[], None]) -> Loop:
    """The loop that the load's pattern declares; `ended` is called when it has nothing more to send."""
    load = planned.load
    if isinstance(load.pattern, ClosedLoop):
        return UserLoop(load.pattern, load.seed, clock, arrive)
    return ScheduleLoop(_arrivals(planned), clock, arrive, ended)


def _trace(load: RunLoad, running: Plan | None) -> Sequence[TraceEntry]:
    if not isinstance(load.pattern, Trace):
        return ()
    before = None if running is None else running.load.pattern
    if running is not None and isinstance(before, Trace) and before.path == load.pattern.path:
        return running.trace
    try:
        return read_trace(load.pattern.path)
    except TraceError as e:
        raise CannotRunError(str(e)) from e


def _arrivals(planned: Plan) -> OpenArrivals:
    match planned.load.pattern:
        case Burst(count=count):
            return BurstArrivals(count)
        case Trace() as trace:
            return ReplayArrivals(trace, [entry.offset_s for entry in planned.trace])
        case pattern:
            return rated_arrivals(pattern, planned.load.seed)
