"""The smallest change of settings that carries the load, or the word that none does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from service.analysis.findings.facts import WORTH_IT, Facts, Rate
from service.messages.settings import Formation, SettingError, Settings
from service.messages.text import per_second, seconds
from service.messages.workload import TEXT

CAPS: Final = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
MOST_USED: Final = 0.9  # of the capacity: closer to it requests wait long although the load is carried
LESS_LOAD: Final = "send less, add replicas, or take a smaller model"


@dataclass(frozen=True)
class Advice:
    """The part of a `Finding` that says what to do; its attributes are the finding's."""

    advice: str
    control: str | None = None
    change: Mapping[str, object] | None = None
    expected: str = ""

    @classmethod
    def of(cls, facts: Facts, settings: Settings, expected: str, also: str = "") -> Advice:
        """To set what differs from the settings in force."""
        now = facts.settings
        change = {
            name: value for name in now.__struct_fields__ if (value := getattr(settings, name)) != getattr(now, name)
        }
        told = " and ".join(f"{name} to {value}" for name, value in change.items())
        return cls(f"Set {told}{also}.", next(iter(change), None), change, expected)


class _Candidate(NamedTuple):
    settings: Settings
    rate: Rate | None  # ``None`` where it is not known well enough


def carry_load(facts: Facts) -> Advice:
    """What carries the load, where more comes than full batches can do; else what takes the requests that wait."""
    offered, now = facts.offered, facts.rate(facts.settings)
    is_carried = now is not None and offered is not None and offered.per_s <= now.low_per_s
    if offered is None or facts.is_bounded_load or is_carried:
        return take_waiting(facts)
    candidates = [
        (settings, rate)
        for settings, rate in _candidates(facts)
        if now is None or rate is None or rate.per_s > WORTH_IT * now.per_s
    ]
    for used in (MOST_USED, 1.0):
        for settings, rate in candidates:
            if rate is not None and offered.per_s <= used * rate.low_per_s:
                return Advice.of(facts, settings, _expected(facts, offered, rate))
    unknown = [settings for settings, rate in candidates if rate is None]
    if unknown:
        settings = next((each for each in unknown if each.max_batch_size >= 2 * facts.cap), unknown[0])
        expected = f"Not known before batches of {settings.max_batch_size} have run."
        return Advice.of(facts, settings, expected, " and watch whether the queue still grows")
    most = max((rate.per_s for rate in (now, *(rate for _, rate in candidates)) if rate is not None), default=None)
    best = "" if most is None else f" The most that any gives is about {per_second(most)}."
    return Advice(f"No setting carries {per_second(offered.per_s)} here: {LESS_LOAD}.{best}")


def take_waiting(facts: Facts) -> Advice:
    """A cap that takes what waits, where users wait for their answers, so that no rate is offered."""
    now, wanted = facts.rate(facts.settings), facts.cap + -(-facts.waiting // facts.places)
    formation = _formations(facts)[0]
    larger = [
        each
        for each in _candidates(facts)
        if each.settings.formation == formation and each.settings.max_batch_size > facts.cap
    ]
    if not larger:
        return Advice(f"No larger batch is possible: {LESS_LOAD}.")
    settings, rate = next((each for each in larger if each.settings.max_batch_size >= wanted), larger[-1])
    if now is not None and rate is not None and rate.per_s <= WORTH_IT * now.per_s:
        return Advice(f"A larger batch would gain little: {LESS_LOAD}.")
    if now is None or rate is None:
        expected = f"Not known before batches of {settings.max_batch_size} have run."
        return Advice.of(facts, settings, expected, " and watch whether throughput grows")
    return Advice.of(facts, settings, f"Up to {rate.words} instead of {now.per_s:.1f}.")


def form_late(facts: Facts) -> Advice:
    """What mends batches that are sealed while the engine is busy."""
    late = facts.settings.revised({"formation": "late"})
    offered, rate = facts.offered, facts.rate(late)
    if offered is None or rate is None or facts.is_bounded_load:
        return Advice.of(facts, late, "Batches then form when the engine is free, and grow with the queue.")
    if offered.per_s > MOST_USED * rate.low_per_s:
        return carry_load(facts)
    return Advice.of(facts, late, _expected(facts, offered, rate))


def _expected(facts: Facts, offered: Rate, rate: Rate) -> str:
    carried = f"{offered.per_s:.1f} of {rate.words} if every batch is full"
    if facts.waiting <= facts.cap * facts.places:
        return f"{carried}."
    return f"{carried}: what waits is worked off in about {seconds(facts.waiting / (rate.per_s - offered.per_s))}."


def _candidates(facts: Facts) -> Iterator[_Candidate]:
    """Larger caps first, then another formation, each with the smallest cap first."""
    now, most = facts.settings, facts.memory_rows or CAPS[-1]
    larger = [cap for cap in CAPS if facts.cap < cap <= most]
    for formation in _formations(facts):
        for cap in larger if formation == now.formation else [facts.cap, *larger]:
            try:
                settings = now.revised({"formation": formation, "max_batch_size": cap})
            except SettingError:  # such as a batch that could never fill
                continue
            yield _Candidate(settings, facts.rate(settings))


def _formations(facts: Facts) -> list[Formation]:
    """Those that may be advised, the nearest to the present one first: `late` in the place of `early`."""
    now = facts.settings.formation
    formations: list[Formation] = [now if now != "early" else "late"]
    if facts.history.unit == TEXT.unit and "continuous" not in formations:
        formations.append("continuous")  # a function is called for whole batches
    return formations
