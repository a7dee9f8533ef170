"""How replicas and what Ray lets them hold were changed: marks that stand on every plot."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from service.analysis.observed.load_story import MOST_KEPT
from service.analysis.observed.marks import OuterMark
from service.messages.settings import Scale
from service.messages.telemetry import Deployment


@dataclass
class DeploymentStory:
    """
    Attributes:
        marks: redeployments, in order of time; when they were asked for.
    """

    marks: list[OuterMark] = field(default_factory=list)
    _wanted: Scale | None = None

    def note(self, deployment: Deployment | None, at_s: float) -> None:
        """What a service says of its deployment."""
        if deployment is None:
            return
        if self._wanted is not None and deployment.wanted != self._wanted:
            self.marks.append(OuterMark(at_s, describe_scale_change(self._wanted, deployment.wanted)))
        self._wanted = deployment.wanted

    def begin_service(self) -> None:
        """Another one begins, however it is deployed."""
        self._wanted = None

    def drop_before(self, at_s: float) -> None:
        self.marks = [mark for mark in self.marks[-MOST_KEPT:] if mark.at_s >= at_s]


def describe_scale_change(previous: Scale, scale: Scale) -> str:
    """
    >>> describe_scale_change(Scale(), Scale(replicas=2))
    'replicas 1 → 2'
    """
    before, now = msgspec.structs.asdict(previous), msgspec.structs.asdict(scale)
    return ", ".join(f"{name} {before[name]} → {value}" for name, value in now.items() if value != before[name])
