"""Where a request's time goes: durations of its stages that add up to its latency."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from service.analysis.observed.columns import Columns, Floats, Ints
from service.messages.workload import TEXT

MARKS: Final = (
    "intended",
    "sent",
    "received",
    "queued",
    "formed",
    "started",
    "first_token",
    "finished",
    "client_finished",
)


@dataclass(frozen=True)
class Stage:
    """The span from one mark of a request to the next.

    Attributes:
        name: stable, for files.
        title: for users.
        meaning: what happens in it, as a sentence without a full stop.
    """

    name: str
    title: str
    meaning: str


STAGES: Final = (
    Stage("load_lag", "Load lag", "the load generator sent it later than intended"),
    Stage("network_in", "Way in", "through the network and Ray's proxy to the replica"),
    Stage("admission", "Admission", "tokenised and put into the queue"),
    Stage("waiting", "Waiting", "in the queue until its batch was formed"),
    Stage("sealed", "Sealed", "its batch could no longer grow and waited for the engine"),
    Stage("prefill", "Prefill", "the prompts of its batch were read, up to the first token"),
    Stage("decode", "Decode", "the further tokens"),
    Stage("delivery", "Way out", "from the replica until the client had the last of it"),
)
OF_FUNCTIONS: Final = (
    Stage("admission", "Admission", "checked and put into the queue"),
    Stage("prefill", "Call", "its batch was computed, up to the first piece of its result"),
    Stage("decode", "Stream", "the further pieces of a result that is streamed"),
)
OF_SERVERS: Final = (
    Stage("network_in", "Way in", "through the network to the relay in front of the server"),
    Stage("admission", "Passed on", "taken by the relay and handed to the server"),
    Stage("waiting", "Waiting", "in the server's queue, as its reports let one infer, to a quarter of a second"),
    Stage("prefill", "Prefill", "the server read its prompt, up to the first token"),
    Stage("delivery", "Way out", "from the relay until the client had the last of it"),
)


def stages_of(unit: str, server: str = "") -> tuple[Stage, ...]:
    """The `STAGES` in the words of a workload, which is known by the unit of its tokens, or of another `server`.

    >>> [stage.title for stage in stages_of("houses")][5:]
    ['Call', 'Stream', 'Way out']
    """
    differing = OF_SERVERS if server else () if unit == TEXT.unit else OF_FUNCTIONS
    words = {stage.name: stage for stage in differing}
    return tuple(words.get(stage.name, stage) for stage in STAGES)


def marks(columns: Columns, rows: Ints) -> Floats:
    """The times of the `MARKS` of these rows of the request table, in seconds, one line each; infinite is unknown.

    A request whose sender is unknown counts as sent when it was received and as answered when it was finished.
    """
    places = rows - columns.first
    times: Floats = np.stack([columns[name][places] for name in MARKS], axis=1)
    alone = np.isinf(times[:, 0])
    times[alone, 0] = times[alone, 1] = times[alone, MARKS.index("received")]
    times[alone, -1] = times[alone, MARKS.index("finished")]
    return times


def durations(times: Floats, until_s: float = np.inf) -> Floats:
    """The duration of each of the `STAGES`, in seconds, one line a request, from its `marks`.

    A line's sum is the latency, from the intended send time to the end of the answer. A mark that was never reached
    or is unknown leaves its time to the stage before it. A request under way is counted up to `until_s`; without
    that its line is NaN.

    >>> durations(np.array([[0.0, 0.1, 0.3, 0.3, 1.0, 1.0, 1.5, 2.0, 2.5]])).round(1).tolist()
    [[0.1, 0.2, 0.0, 0.7, 0.0, 0.5, 0.5, 0.5]]
    """
    ended = np.minimum(times[:, -1:], until_s)
    known = np.minimum.accumulate(times[:, ::-1], axis=1)[:, ::-1]  # an unknown mark falls on the next that is known
    with np.errstate(invalid="ignore"):
        spans: Floats = np.diff(np.clip(known, times[:, :1], ended), axis=1)
    return np.where(np.isfinite(ended), spans, np.nan)
