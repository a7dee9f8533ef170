"""From the declaration of a load to the objects that carry it out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from service.load.clock import Clock
from service.load.loops import Arrive, Loop, ScheduleLoop, UserLoop
from service.load.patterns.arrivals import OpenArrivals, rated_arrivals
from service.load.patterns.burst import BurstArrivals
from service.load.patterns.replay import ReplayArrivals
from service.load.trace_file import TraceEntry
from service.messages import Burst, ClosedLoop, RunLoad, Trace


def make_loop(
    load: RunLoad, trace: Sequence[TraceEntry], clock: Clock, arrive: Arrive, ended: Callable[[], None]
) -> Loop:
    """The loop that the load's pattern declares; `ended` is called when it has nothing more to send."""
    if isinstance(load.pattern, ClosedLoop):
        return UserLoop(load.pattern, load.seed, clock, arrive)
    return ScheduleLoop(_arrivals(load, trace), clock, arrive, ended)


def _arrivals(load: RunLoad, trace: Sequence[TraceEntry]) -> OpenArrivals:
    match load.pattern:
        case Burst(count=count):
            return BurstArrivals(count)
        case Trace():
            return ReplayArrivals(load.pattern, [entry.offset_s for entry in trace])
        case pattern:
            return rated_arrivals(pattern, load.seed)
