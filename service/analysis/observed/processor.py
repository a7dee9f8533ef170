"""How much of the processor time that the engine asked for it got, as the replicas report it."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from service.analysis.observed.columns import Bools, Floats
from service.analysis.observed.history import History
from service.analysis.observed.rolling import WINDOW_S

LEAST_ASKED: Final = 0.05  # of the time: the wake-ups of an engine that is idle say nothing


class ProcessorSpans(NamedTuple):
    """Spans between two reports of a replica, one entry each, and the processor time of its engine in them, in seconds.

    Attributes:
        start_s, end_s: on the service's clock.
        got_s: that the engine's threads ran.
        asked_s: that, and what they waited for a core.
    """

    start_s: Floats
    end_s: Floats
    got_s: Floats
    asked_s: Floats

    def share(self, which: Bools) -> float | None:
        """What was got of what was asked for in these spans; ``None`` where next to nothing was."""
        asked_s = float(self.asked_s[which].sum())
        least_s = LEAST_ASKED * float((self.end_s - self.start_s)[which].sum())
        return float(self.got_s[which].sum()) / asked_s if asked_s > least_s else None


def processor_spans(history: History, start_s: float, end_s: float) -> ProcessorSpans:
    """The spans whose reports came from `start_s` to `end_s`, where the replicas report their processor time."""
    reported = history.statuses.replicas
    chosen = np.flatnonzero((reported["at"] >= start_s) & (reported["at"] <= end_s) & np.isfinite(reported["got"]))
    chosen = chosen[np.lexsort((reported["at"][chosen], reported["slot"][chosen]))]
    slot, pid, at_s, got_s, waited_s = (reported[name][chosen] for name in ("slot", "pid", "at", "got", "waited"))
    follows = (slot[1:] == slot[:-1]) & (pid[1:] == pid[:-1])
    got = np.maximum(np.diff(got_s), 0.0)[follows]
    waited = np.maximum(np.diff(waited_s), 0.0)[follows]
    return ProcessorSpans(at_s[:-1][follows], at_s[1:][follows], got, got + waited)


def processor_share(history: History, start_s: float, end_s: float) -> float | None:
    """The share of the processor time from `start_s` to `end_s` that all engines got of what they asked for.

    ``None`` where no replica reports it, or where they asked for next to none.
    """
    spans = processor_spans(history, start_s, end_s)
    return spans.share(np.ones(len(spans.start_s), np.bool_))


def least_processor_share(history: History, start_s: float, end_s: float) -> float | None:
    """The same of the ten seconds, of those that follow one another from `start_s` on, in which it was least."""
    spans = processor_spans(history, start_s, end_s)
    part = ((spans.end_s - start_s) // WINDOW_S).astype(int)
    shares = (spans.share(part == number) for number in np.unique(part))
    return min((share for share in shares if share is not None), default=None)
