"""What Serve's controller says of a deployment at one moment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from service.messages.settings import Scale

_MODEL_ERROR = re.compile(r"^(?:[\w.]+\.)?ModelError: (.+)$", re.MULTILINE)


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


def reason_of(message: str) -> str:
    """The sentence for the user in what Serve says of a replica that failed: the model's own, or the last line."""
    sentences: list[str] = _MODEL_ERROR.findall(message)
    if sentences:
        return sentences[-1]
    lines = [line.strip() for line in message.splitlines() if line.strip()] or ["no reason was given"]
    return f"The model could not be loaded: {lines[-1].rstrip('.')}. The log says more."
