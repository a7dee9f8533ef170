"""What a bench measures: which batches, how often, under which options of the service."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import cycle, islice
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from service.messages.load import USUAL_PROMPTS
from service.messages.options import ServiceOptions

Subject: TypeAlias = Literal["engine", "http", "http_whole", "generate"]

HTTP: Final[Mapping[Subject, bool]] = {"http": True, "http_whole": False}  # through it, and whether answers stream
NAMES: Final[Mapping[Subject, str]] = {
    "engine": "engine",
    "http": "HTTP, streamed",
    "http_whole": "HTTP, in one piece",
    "generate": "generate",
}
CPU_SIZES: Final = (1, 4, 16, 32, 64)
GPU_SIZES: Final = (*CPU_SIZES, 128, 256)
QUICK_SIZES: Final = (1, 16)
WARM_UP_TOKENS: Final = 4


class BenchPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a bench measures, and how often.

    Attributes:
        sizes: prompts that are decoded at a time; ``None`` for the usual ones of the device.
        tokens: generated for each prompt.
        batches: one after the other, in each run.
    """

    service: ServiceOptions = ServiceOptions()
    sizes: tuple[int, ...] | None = None
    tokens: int = 24
    rounds: int = 3
    batches: int = 3

    def sizes_on(self, device: str) -> tuple[int, ...]:
        """
        >>> BenchPlan().sizes_on("cpu"), BenchPlan(sizes=(2,)).sizes_on("cuda:1")
        ((1, 4, 16, 32, 64), (2,))
        """
        if self.sizes is not None:
            return self.sizes
        return GPU_SIZES if device.startswith("cuda") else CPU_SIZES


class PlannedRun(NamedTuple):
    """One run of a subject, in the round of that number."""

    round: int
    size: int
    subject: Subject

    @property
    def weight(self) -> float:
        """About how long it takes, in an unknown unit: a step of ten rows takes twice that of a single one."""
        return 1.0 + self.size / 10


def interleaved(subjects: tuple[Subject, ...], sizes: tuple[int, ...], rounds: int) -> Iterator[PlannedRun]:
    """Every size in every round; the first subject changes, so that a machine that slows down slows all of them."""
    for number in range(rounds):
        first = number % len(subjects)
        for size in sizes:
            for subject in subjects[first:] + subjects[:first]:
                yield PlannedRun(number, size, subject)


def prompts_for(size: int) -> list[str]:
    """The usual prompts, over and over until there are `size`."""
    return list(islice(cycle(USUAL_PROMPTS), size))
