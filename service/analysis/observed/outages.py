"""Spans of time in which there was no service, one replica less, or no telemetry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

MOST_KEPT: Final = 500


@dataclass(frozen=True)
class Outage:
    """From `start_s` on there was no service or one replica less; open as long as `end_s` is ``None``.

    Attributes:
        text: "failed", "r1 lost", or "gap" for telemetry that was missed.
    """

    start_s: float
    end_s: float | None
    text: str


class Outages:
    """Those of the time that is kept, in order of `start_s`."""

    def __init__(self) -> None:
        self._outages: list[Outage] = []

    def __iter__(self) -> Iterator[Outage]:
        return iter(self._outages)

    def __len__(self) -> int:
        return len(self._outages)

    @property
    def failed_since_s(self) -> float | None:
        """Since when there has been no service, if it failed."""
        return next((o.start_s for o in self._outages if o.text == "failed" and o.end_s is None), None)

    def has_failed_at(self, at_s: float) -> bool:
        """Whether there was no service at that moment, because it had failed."""
        failed = (outage for outage in self._outages if outage.text == "failed")
        return any(o.start_s <= at_s and (o.end_s is None or at_s < o.end_s) for o in failed)

    def open(self, at_s: float, text: str) -> None:
        """Begin one, unless one of its kind lasts already."""
        if not any(outage.end_s is None and outage.text == text for outage in self._outages):
            self._outages = [*self._outages[-MOST_KEPT:], Outage(at_s, None, text)]

    def close(self, at_s: float, text: str | None = None) -> None:
        """End those that last, or only those of one kind."""
        self._outages = [
            replace(o, end_s=max(at_s, o.start_s)) if o.end_s is None and text in (None, o.text) else o
            for o in self._outages
        ]

    def close_one_loss(self, at_s: float) -> None:
        """A new replica stands in for the one that has been missing longest."""
        losses = [outage for outage in self._outages if outage.end_s is None and outage.text.endswith(" lost")]
        if losses:
            self.close(at_s, losses[0].text)

    def drop_before(self, at_s: float) -> None:
        self._outages = [outage for outage in self._outages if outage.end_s is None or outage.end_s >= at_s]
