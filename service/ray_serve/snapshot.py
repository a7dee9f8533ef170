"""What Serve's controller says of a deployment at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from service.messages.deployment import Scale


@dataclass(frozen=True)
class Sight:
    """
    Attributes:
        wanted: what Serve is bringing about, or has.
        running, starting, leaving: replicas, by Serve's names for them.
        resources: what each replica takes of Ray's.
        is_autoscaled: Serve itself decides how many replicas there are.
        is_settled: Serve has nothing more to do.
        failure: what it says of a replica that did not start.
    """

    wanted: Scale
    running: frozenset[str]
    starting: frozenset[str]
    leaving: frozenset[str]
    resources: Mapping[str, float]
    is_autoscaled: bool
    is_settled: bool
    failure: str | None = None
