"""Moments and spans of time that stand on every plot: changes of settings, load and replicas, drains, outages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from service.analysis.observed.columns import Columns
from service.analysis.observed.descriptions import describe_load_change, describe_scale_change
from service.messages.load import Burst, ConstantRate, GammaArrivals, Pattern, Poisson
from service.messages.settings import Scale
from service.messages.telemetry import Deployment

MARK_GAP_S: Final = 1.0  # changes of load closer than this (a slider that is dragged) become one mark
LAST_REPORT_S: Final = 5.0  # after a change, the service reports on batches formed before it for at most so long
MOST_KEPT: Final = 500


@dataclass(frozen=True)
class SettingsMark:
    """The first batch that obeyed a version of the settings.

    Attributes:
        regime: the number of the regime that begins; versions begin anew with each service.
        text: what changed, "max_batch_size 4 → 16".
        detail: "in force after 3 ms", or empty.
        drained: "old settings drained after 1.8 s", or empty where no batch formed under them was left.
    """

    at_s: float
    regime: int
    version: int
    text: str
    detail: str
    drained: str = ""


@dataclass(frozen=True)
class OuterMark:
    """A change of the load or the replicas: "load 2.6 → 6.4 req/s", "replicas 1 → 2"."""

    at_s: float
    text: str


@dataclass
class LoadTimeline:
    """The load over time.

    Attributes:
        marks: its changes.
        offered: moments at which the offered rate changed and the rate from then on (``None``: not an open loop).
    """

    marks: list[OuterMark] = field(default_factory=list)
    offered: list[tuple[float, float | None]] = field(default_factory=list)
    _marked_from: Pattern | None = None

    def note(self, previous: Pattern | None, pattern: Pattern | None, at_s: float, *, has_failed: bool) -> None:
        """Note a change of the pattern; `has_failed` says that there is no service to send it to."""
        rate = pattern.rate_per_s if isinstance(pattern, ConstantRate | Poisson | GammaArrivals) else None
        self.offered = [*self.offered[-MOST_KEPT:], (at_s, rate)]
        if pattern is None and (isinstance(previous, Burst) or has_failed):
            return  # a burst ends by itself, any load with its service
        follows = bool(self.marks) and at_s - self.marks[-1].at_s < MARK_GAP_S
        self._marked_from = self._marked_from if follows else previous
        first_s = self.marks.pop().at_s if follows else at_s
        self.marks.append(OuterMark(first_s, describe_load_change(self._marked_from, pattern)))

    def drop_before(self, at_s: float) -> None:
        self.marks = [mark for mark in self.marks[-MOST_KEPT:] if mark.at_s >= at_s]
        self.offered = [o for n, o in enumerate(self.offered) if o[0] >= at_s or n == len(self.offered) - 1]


@dataclass
class DeploymentTimeline:
    """The redeployments, marked when they were asked for."""

    marks: list[OuterMark] = field(default_factory=list)
    _wanted: Scale | None = None

    def note(self, deployment: Deployment | None, at_s: float) -> None:
        """Note the deployment that a service reports."""
        if deployment is None:
            return
        if self._wanted is not None and deployment.wanted != self._wanted:
            self.marks.append(OuterMark(at_s, describe_scale_change(self._wanted, deployment.wanted)))
        self._wanted = deployment.wanted

    def begin_service(self) -> None:
        """Forget the scale, since a new service begins with its own."""
        self._wanted = None

    def drop_before(self, at_s: float) -> None:
        self.marks = [mark for mark in self.marks[-MOST_KEPT:] if mark.at_s >= at_s]


@dataclass(frozen=True)
class Drain:
    """From when a change was in force to the end of the last batch formed before it; open while one is left."""

    in_force_s: float
    end_s: float | None

    @property
    def after_s(self) -> float | None:
        return None if self.end_s is None else self.end_s - self.in_force_s

    @property
    def words(self) -> str:
        """
        >>> Drain(1.0, 2.8).words, Drain(1.0, None).words
        ('old settings drained after 1.8 s', 'old settings still drain')
        """
        return "old settings still drain" if self.end_s is None else f"old settings drained after {self.after_s:.1f} s"

    @property
    def brief(self) -> str:
        """The same for narrow places."""
        return "draining" if self.end_s is None else f"drained {self.after_s:.1f} s"


class Drains:
    """The drain of each change, read from the table of batches and kept once it is over."""

    def __init__(self, batches: Columns) -> None:
        self._batches = batches
        self._known: dict[int, Drain | None] = {}

    def of(self, regime: int, in_force_s: float) -> Drain | None:
        """The drain of the change that began a regime; ``None`` if no older batch was left when it was in force."""
        if regime not in self._known:
            found = self._find(regime, in_force_s)
            formed = self._batches["formed"]
            newest_s = float(formed[-1]) if len(formed) else -np.inf
            if (found is not None and found.end_s is None) or newest_s < in_force_s + LAST_REPORT_S:
                return found
            self._known[regime] = found
        return self._known[regime]

    def forget_before(self, regime: int) -> None:
        self._known = {number: drain for number, drain in self._known.items() if number >= regime}

    def _find(self, regime: int, in_force_s: float) -> Drain | None:
        finished = self._batches["finished"]
        left = finished[(self._batches["regime"] < regime) & (finished > in_force_s)]
        if not len(left):
            return None
        return Drain(in_force_s, None if np.isinf(left.max()) else float(left.max()))


@dataclass(frozen=True)
class Outage:
    """A span without a service, with a replica less, or without telemetry; open while `end_s` is ``None``.

    Attributes:
        text: "failed", "r1 lost", or "gap" for missed telemetry.
    """

    start_s: float
    end_s: float | None
    text: str


class Outages:
    """The outages of the time that is kept, in order of `start_s`; at most one of each text is open."""

    def __init__(self) -> None:
        self._outages: list[Outage] = []

    def __iter__(self) -> Iterator[Outage]:
        return iter(self._outages)

    def __len__(self) -> int:
        return len(self._outages)

    @property
    def failed_since_s(self) -> float | None:
        """The beginning of the failure that lasts, if the service failed."""
        return next((o.start_s for o in self._outages if o.text == "failed" and o.end_s is None), None)

    def has_failed_at(self, at_s: float) -> bool:
        """Whether there was no service at that moment because it had failed."""
        failed = (outage for outage in self._outages if outage.text == "failed")
        return any(o.start_s <= at_s and (o.end_s is None or at_s < o.end_s) for o in failed)

    def open(self, at_s: float, text: str) -> None:
        """Begin an outage unless one with this text lasts."""
        if not any(outage.end_s is None and outage.text == text for outage in self._outages):
            self._outages = [*self._outages[-MOST_KEPT:], Outage(at_s, None, text)]

    def close(self, at_s: float, text: str | None = None) -> None:
        """End the outages that last: all, or the one with this text."""
        self._outages = [
            replace(o, end_s=max(at_s, o.start_s)) if o.end_s is None and text in (None, o.text) else o
            for o in self._outages
        ]

    def close_one_loss(self, at_s: float) -> None:
        """End the longest loss of a replica, which a new replica replaces."""
        losses = [outage for outage in self._outages if outage.end_s is None and outage.text.endswith(" lost")]
        if losses:
            self.close(at_s, losses[0].text)

    def drop_before(self, at_s: float) -> None:
        self._outages = [outage for outage in self._outages if outage.end_s is None or outage.end_s >= at_s]
