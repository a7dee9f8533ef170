"""Moments and spans that stand on every plot: changes of settings, load and replicas, drains, outages, silences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from service.analysis.observed.descriptions import describe_change, describe_load_change
from service.messages.load import Burst, ConstantRate, GammaArrivals, Pattern, Poisson
from service.messages.settings import Scale, SettingsChange
from service.messages.telemetry import Deployment
from service.messages.text import about_time, counted

MARK_GAP_S: Final = 1.0  # changes closer than this (a slider that is dragged) become one
MOST_KEPT: Final = 500
LEAST_JUMP_S: Final = 1.0  # of the time of day; the corrections of a clock that is kept right are smaller


@dataclass(frozen=True)
class SettingsMark:
    """The first batch that obeyed a version of the settings.

    Attributes:
        regime: the number of the regime that begins; versions begin anew with each service.
        text: what changed, "max_batch_size 4 → 16".
        detail: the reason of the program that made the change, else "in force after 3 ms", or empty.
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
    """A change of the load or the replicas, "load 2.6 → 6.4 req/s", "replicas 1 → 2", or a note."""

    at_s: float
    text: str


def continues(earlier: SettingsChange, later: SettingsChange) -> bool:
    """Whether both are of one drag: of the same settings, and one soon after the other."""
    return (
        later.requested_s - earlier.requested_s < MARK_GAP_S
        and later.changed_fields == earlier.changed_fields
        and later.version == earlier.version + 1
        and not later.reason
    )


def as_one(changes: Sequence[SettingsChange]) -> SettingsChange:
    """The last change, with those of the same drag before it.

    >>> from service.messages.settings import Settings
    >>> def to(cap: int, version: int) -> SettingsChange:
    ...     before, after = Settings(max_batch_size=cap - 1), Settings(max_batch_size=cap)
    ...     return SettingsChange(version=version, previous=before, settings=after, requested_s=0.1, in_force_s=0.2)
    >>> as_one([to(4, 2), to(5, 3), to(6, 4)]).previous.max_batch_size
    3
    """
    first = last = changes[-1]
    for earlier in reversed(changes[:-1]):
        if not continues(earlier, first):
            break
        first = earlier
    return msgspec.structs.replace(last, previous=first.previous)


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

    def offered_at(self, at_s: float) -> float | None:
        """Requests a second that an open loop offered at that moment."""
        return next((rate for since_s, rate in reversed(self.offered) if since_s <= at_s), None)

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
    """The redeployments, marked when they were asked for.

    Attributes:
        wanted: the scale that was asked for last; ``None`` for a new service, which begins with its own.
    """

    marks: list[OuterMark] = field(default_factory=list)
    wanted: Scale | None = None

    def note(self, deployment: Deployment | None, at_s: float) -> None:
        """Note the deployment that a service reports."""
        if deployment is None:
            return
        if self.wanted is not None and deployment.wanted != self.wanted:
            self.marks.append(OuterMark(at_s, describe_change(self.wanted, deployment.wanted)))
        self.wanted = deployment.wanted

    def drop_before(self, at_s: float) -> None:
        self.marks = [mark for mark in self.marks[-MOST_KEPT:] if mark.at_s >= at_s]


@dataclass(frozen=True)
class Drain:
    """From when a change was in force to the end of the last batch formed before it; open while one is left."""

    in_force_s: float
    end_s: float | None

    @property
    def words(self) -> str:
        """
        >>> Drain(1.0, 2.8).words, Drain(1.0, None).words
        ('old settings drained after 1.8 s', 'old settings still drain')
        """
        if self.end_s is None:
            return "old settings still drain"
        return f"old settings drained after {self.end_s - self.in_force_s:.1f} s"

    @property
    def brief(self) -> str:
        """The same for narrow places."""
        return "draining" if self.end_s is None else f"drained {self.end_s - self.in_force_s:.1f} s"


@dataclass(frozen=True)
class Predecessors:
    """Batches under way that were formed under older settings.

    Attributes:
        requests: in these batches, formed or running.
        left_s: about how long they still take; ``None`` where no such batch has ended yet, or one that runs takes
            longer than usual.
    """

    requests: int
    left_s: float | None

    @property
    def words(self) -> str:
        """What comes before the first batch under the settings in force.

        >>> Predecessors(27, 9.4).words, Predecessors(1, None).words
        ('27 requests formed before it come first, about 9 s', '1 request formed before it comes first')
        """
        come = "comes" if self.requests == 1 else "come"
        about = "" if self.left_s is None else f", about {about_time(self.left_s)}"
        return f"{counted(self.requests, 'request')} formed before it {come} first{about}"

    @property
    def brief(self) -> str:
        """The same for narrow places.

        >>> Predecessors(27, 9.4).brief, Predecessors(1, None).brief
        ('after 27 formed, ~9 s', 'after 1 formed')
        """
        return f"after {self.requests} formed" + ("" if self.left_s is None else f", ~{about_time(self.left_s)}")


@dataclass(frozen=True)
class Outage:
    """A span without a service, with a replica less, or without telemetry; open while `end_s` is ``None``.

    Attributes:
        text: "failed", "r1 lost", or "gap" for missed telemetry.
    """

    start_s: float
    end_s: float | None
    text: str

    @property
    def is_loss(self) -> bool:
        """Whether a replica ended unasked."""
        return self.text.endswith(" lost")

    def lasts_at(self, at_s: float) -> bool:
        return self.start_s <= at_s and (self.end_s is None or at_s < self.end_s)


class Outages:
    """The outages of the time that is kept, in order of `start_s`; at most one of each text is open."""

    def __init__(self) -> None:
        self._outages: list[Outage] = []

    def __iter__(self) -> Iterator[Outage]:
        return iter(self._outages)

    @property
    def failed_since_s(self) -> float | None:
        """The beginning of the failure that lasts, if the service failed."""
        return next((o.start_s for o in self._outages if o.text == "failed" and o.end_s is None), None)

    def has_failed_at(self, at_s: float) -> bool:
        """Whether there was no service at that moment because it had failed."""
        return any(outage.text == "failed" and outage.lasts_at(at_s) for outage in self._outages)

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
        losses = [outage for outage in self._outages if outage.end_s is None and outage.is_loss]
        if losses:
            self.close(at_s, losses[0].text)

    def drop_before(self, at_s: float) -> None:
        self._outages = [outage for outage in self._outages if outage.end_s is None or outage.end_s >= at_s]


@dataclass(frozen=True)
class Stretch:
    """A span that is marked on the time axis with its text; open while `end_s` is ``None``.

    Attributes:
        hides: whether nothing of this span is known, not even from what was heard later.
    """

    start_s: float
    end_s: float | None
    text: str
    hides: bool = False

    def overlaps(self, start_s: float, end_s: float) -> bool:
        return self.start_s < end_s and (self.end_s is None or self.end_s > start_s)


class Silence(Stretch):
    """A span in which a replica, or the whole service, reported nothing: "r1 silent for 7 s"."""


class Notes:
    """What was noted of moments, in order of time."""

    def __init__(self) -> None:
        self._notes: list[OuterMark] = []

    def __iter__(self) -> Iterator[OuterMark]:
        return iter(self._notes)

    def add(self, at_s: float, text: str) -> None:
        notes = sorted([*self._notes, OuterMark(at_s, text)], key=lambda note: note.at_s)
        self._notes = notes[-MOST_KEPT:]

    def drop_before(self, at_s: float) -> None:
        self._notes = [note for note in self._notes if note.at_s >= at_s]


class Silences:
    """The silences of the time that is kept, in the order in which they were noted."""

    def __init__(self) -> None:
        self._silences: list[Silence] = []

    def __iter__(self) -> Iterator[Silence]:
        return iter(self._silences)

    def add(self, silence: Silence) -> None:
        self._silences = [*self._silences[-MOST_KEPT:], silence]

    def drop_before(self, at_s: float) -> None:
        self._silences = [each for each in self._silences if each.end_s is None or each.end_s >= at_s]


@dataclass(frozen=True)
class ClockJump:
    """Between two reports, at `start_s` and `end_s`, the time of day went `by_s` further than the time that passed."""

    start_s: float
    end_s: float
    by_s: float


class ClockJumps:
    """The jumps of the time of day: the machine slept, or its clock was set."""

    def __init__(self) -> None:
        self._jumps: list[ClockJump] = []
        self._last: tuple[float, float] | None = None

    def __iter__(self) -> Iterator[ClockJump]:
        return iter(self._jumps)

    def note(self, ahead_s: float, at_s: float) -> ClockJump | None:
        """Note by how much the time of day is ahead of a clock that never jumps, at `at_s`; returns a new jump."""
        last, self._last = self._last, (ahead_s, at_s)
        if last is None or abs(ahead_s - last[0]) < LEAST_JUMP_S:
            return None
        jump = ClockJump(last[1], at_s, ahead_s - last[0])
        self.add(jump)
        return jump

    def add(self, jump: ClockJump) -> None:
        """Add a jump that is known from elsewhere, as from a recording; it is later than the others."""
        self._jumps = [*self._jumps[-MOST_KEPT:], jump]

    @property
    def latest(self) -> ClockJump | None:
        return self._jumps[-1] if self._jumps else None

    def drop_before(self, at_s: float) -> None:
        self._jumps = [jump for jump in self._jumps if jump.end_s >= at_s]


def describe_silence(replicas: Sequence[str], for_s: float) -> str:
    """
    >>> describe_silence(["r1"], 7.2), describe_silence([], 7.2)
    ('r1 silent for 7 s', 'nothing heard for 7 s')
    """
    return f"{' and '.join(replicas)} silent for {for_s:.0f} s" if replicas else f"nothing heard for {for_s:.0f} s"
