"""What any engine is given and what it reports: jobs in, results out, batch by batch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from service.messages.telemetry import BatchWork

FinishReason: TypeAlias = Literal["stop", "length", "cancelled", "error"]


class Line(str):
    """An input as a person types it, and not yet as the engine takes it."""

    __slots__ = ()


class Job:
    """One input on its way through an engine.

    Attributes:
        id: the caller's name for it.
        prompt_tokens, max_tokens: what goes in, and what comes out at most; 0 and 1 where there are no tokens.
    """

    def __init__(self, id: str, prompt_tokens: int = 0, max_tokens: int = 1) -> None:
        self.id = id
        self.prompt_tokens = prompt_tokens
        self.max_tokens = max_tokens
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        """Ask the engine to leave this one out from its next step on; from any thread, at any time."""
        self._cancelled.set()

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled.is_set()


@dataclass(frozen=True, slots=True)
class Progress:
    """What one step did for one job; the last of a job has a `finish_reason`.

    Attributes:
        text: new since the last; the result is the sum. May be empty while a character or a possible stop text is
            incomplete.
        tokens: generated so far; 1 for the result of a function.
        error: a sentence, where `finish_reason` is `error`.
    """

    job: Job
    text: str
    tokens: int
    finish_reason: FinishReason | None = None
    error: str | None = None


# What a step did for each job; and the jobs that join, given what was computed so far and whether one can.
Emit: TypeAlias = Callable[[list[Progress]], None]
Admit: TypeAlias = Callable[[BatchWork, bool], Sequence[Any]]


class Engine(Protocol):
    """What computes batches.

    Attributes:
        name: of its model or function.
    """

    name: str

    def job(self, id: str, input: Any, sampling: Any) -> Job:
        """For a `Line`, or an input as JSON has it; raises a `ValueError` that says why it cannot be computed.

        Any thread may call it.
        """

    def generate(self, jobs: list[Any], emit: Emit, admit: Admit | None = None) -> BatchWork:
        """Compute jobs that `job` has made; blocks, and ends each of them with one last `Progress`.

        With `admit` it asks between two steps which jobs join.
        """
