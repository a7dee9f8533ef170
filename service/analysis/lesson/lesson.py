"""What a lesson says: steps that run something on a service, ask, and tell what was seen."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Final

import msgspec

from service.analysis.observed.register import REGISTER, UNKNOWN_FIGURES, Figures, numbers
from service.messages.load import USUAL_PROMPTS, Length, Pattern, RunLoad
from service.messages.settings import Settings
from service.messages.text import UNKNOWN, percent, significant

GUESSED: Final = ("p50_s", "p95_s", "mean_batch", "requests_per_s", "tokens_per_s")  # both measured and predicted
CAPACITY: Final = "capacity"  # a word for a number beside the figures: requests a second in full batches
SHARES: Final[Mapping[str, str]] = {"share": "rate_per_s", "share_to": "rate_to_per_s", "shares": "rates_per_s"}
"""What names a rate of a pattern as a share of the capacity, and the rate."""
PLACE: Final = re.compile(r"\{(before\.)?(\w+)\}")
"""Where a figure is to stand in a text."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What requests of a load ask for."""

    max_tokens: Length = 24
    prompt_words: Length | None = None
    prompts: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] = USUAL_PROMPTS


class LessonLoad(msgspec.Struct, frozen=True, kw_only=True):
    """A load whose rates may be shares.

    Attributes:
        pattern: of arrivals; ``None``: none.
        is_share: its rates are shares of the capacity.
    """

    pattern: Pattern | None
    is_share: bool = False
    asked: Asked = Asked()

    def capacity_at(self, pattern: Pattern | None) -> float | None:
        """The capacity of a service on which the load was `pattern`; ``None`` where it has no shares."""
        if not self.is_share or pattern is None or not hasattr(pattern, self._rates[0]):
            return None
        share, rate = (next(_listed(getattr(each, self._rates[0]))) for each in (self.pattern, pattern))
        return rate / share

    def at(self, capacity_per_s: float) -> RunLoad | None:
        """The load on a service of that capacity; ``None`` where nothing is to come.

        >>> from service.messages.load import Poisson
        >>> LessonLoad(pattern=Poisson(rate_per_s=0.6), is_share=True).at(14.5).pattern
        Poisson(rate_per_s=8.7)
        """
        if self.pattern is None:
            return None
        pattern = self.pattern
        if self.is_share:
            rates = {name: _times(getattr(pattern, name), capacity_per_s) for name in self._rates}
            pattern = msgspec.structs.replace(pattern, **rates)
        return RunLoad(pattern=pattern, **{name: getattr(self.asked, name) for name in Asked.__struct_fields__})

    @property
    def _rates(self) -> list[str]:
        return [name for name in SHARES.values() if hasattr(self.pattern, name)]

    @property
    def share_words(self) -> str:
        """Its shares; empty where it has none.

        >>> from service.messages.load import Ramp
        >>> LessonLoad(pattern=Ramp(rate_per_s=0.3, rate_to_per_s=0.9, over_s=60), is_share=True).share_words
        '30 to 90 % of the capacity'
        """
        if not self.is_share:
            return ""
        shares = [share for name in self._rates for share in _listed(getattr(self.pattern, name))]
        *first, last = (percent(share) for share in shares)
        return " to ".join([*(each.removesuffix(" %") for each in first), last]) + " of the capacity"


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What a step does on the service.

    Attributes:
        settings: that are in force in it.
        load: that runs.
        for_s: how long, from the first batch of the settings on.
    """

    settings: Settings
    load: LessonLoad
    for_s: float


class Guess(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the reader is to guess of the next run."""

    figure: str

    def __post_init__(self) -> None:
        if self.figure not in GUESSED:
            raise ValueError(f"figure must be one of {', '.join(GUESSED)}")


class Question(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One with several answers.

    Attributes:
        right: the number of the right one, from 1 on.
        why: said once it is answered.
    """

    ask: str
    answers: Annotated[tuple[str, ...], msgspec.Meta(min_length=2, max_length=5)]
    right: Annotated[int, msgspec.Meta(ge=1)]
    why: str = ""

    @property
    def said(self) -> str:
        """The right answer, and why."""
        return f"{self.answers[self.right - 1]} {self.why}".rstrip()

    def __post_init__(self) -> None:
        if self.right > len(self.answers):
            raise ValueError(f"right must be from 1 to {len(self.answers)}")


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A page.

    Attributes:
        before, after: HTML, shown until its run is over, and then; the second has places for figures.
    """

    title: str
    before: str = ""
    after: str = ""
    run: Run | None = None
    guess: Guess | None = None
    questions: tuple[Question, ...] = ()


class Lesson(msgspec.Struct, frozen=True, kw_only=True):
    """What a file says.

    Attributes:
        workload: the name of the one that it is for.
        settings: by whose full batches shares of the capacity are meant.
        recording: the name of a file beside the lesson's, which is played where no service runs; empty: none.
        steps: the first says what it is about, and neither runs nor asks.
    """

    title: str
    workload: str
    settings: Settings
    recording: str
    steps: tuple[Step, ...]

    def capacity_by(self, pattern_of: Callable[[Step], Pattern | None]) -> float | None:
        """That of a service, by the loads that its steps had there; ``None`` where none was a share of it."""
        known = (step.run.load.capacity_at(pattern_of(step)) for step in self.steps if step.run is not None)
        return next((each for each in known if each is not None), None)

    def run_after(self, place: int) -> Run | None:
        """The run of the step after this one."""
        return self.steps[place + 1].run if place + 1 < len(self.steps) else None


def filled(html: str, now: Figures | None, before: Figures | None, capacity_per_s: float | None) -> str:
    """The text with figures in its places: of the last run, and after `before.` of the one before that.

    >>> filled("{before.requests_per_s}, then {requests_per_s} of {capacity}", Figures(requests_per_s=9.0), None, 14.5)
    '–, then 9.0 of 14.5'
    """
    known, earlier = (_written(each or UNKNOWN_FIGURES, capacity_per_s) for each in (now, before))
    return PLACE.sub(lambda place: (earlier if place[1] else known)[place[2]], html)


def _written(known: Figures, capacity_per_s: float | None) -> dict[str, str]:
    found = numbers(known)
    written = {key: number if number == UNKNOWN else f"{number} {REGISTER[key].unit}" for key, number in found.items()}
    return {
        **{key: each.rstrip() for key, each in written.items()},
        CAPACITY: REGISTER["requests_per_s"].number(capacity_per_s),
    }


def _times(rates: float | tuple[float, ...], factor: float) -> float | tuple[float, ...]:
    return (
        tuple(significant(each * factor) for each in rates) if isinstance(rates, tuple) else significant(rates * factor)
    )


def _listed(rates: float | tuple[float, ...]) -> Iterator[float]:
    yield from rates if isinstance(rates, tuple) else (rates,)
