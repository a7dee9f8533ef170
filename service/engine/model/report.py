"""What fetching and loading a model report: how far they are, and why a model cannot be used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias, TypeVar

from service.messages.life import LoadProgress, StageName, Unit
from service.messages.text import UserError


class ModelError(UserError):
    """The model cannot be had or used; `str()` of it is one sentence for the user that says what to do."""


Item = TypeVar("Item")

Report: TypeAlias = Callable[[StageName, float, float | None], None]
"""Called with the stage (`fetch` or `convert`), how much is done, and of how much, if that is known.

`fetch` counts bytes; `convert` counts from 0 to 1. It is called a few times a second, also when nothing moved, so that
the caller can show the time; what it raises ends the work and every child process of it.
"""


def ignore(stage: StageName, done: float, total: float | None) -> None:
    """A `Report` that does nothing."""


LoadReport: TypeAlias = Callable[[LoadProgress], None]
"""Called in the thread that loads, when a unit begins and whenever one more of it is done."""


def keep_quiet(progress: LoadProgress) -> None:
    """A `LoadReport` that does nothing."""


def reported(items: Iterable[Item], unit: Unit, report: LoadReport) -> Iterator[Item]:
    """Yields each of `items`, and reports it done when the next one is requested."""
    listed = list(items)
    report(LoadProgress(unit, 0, len(listed)))
    for done, item in enumerate(listed, start=1):
        yield item
        report(LoadProgress(unit, done, len(listed)))
