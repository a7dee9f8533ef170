"""How the long stages of getting a model tell how far they are."""

from collections.abc import Callable
from typing import TypeAlias

from service.messages.life import StageName

Report: TypeAlias = Callable[[StageName, float, float | None], None]
"""Called with the stage (`fetch` or `convert`), how much is done, and of how much, if that is known.

`fetch` counts bytes; `convert` counts from 0 to 1. It is called a few times a second, also when nothing moved, so that
the caller can show the time; what it raises ends the work and every child process of it.
"""


def ignore(stage: StageName, done: float, total: float | None) -> None:
    """A `Report` for callers that do not care."""
