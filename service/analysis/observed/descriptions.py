"""Settings, loads and replicas in words: what they are, and what changed."""

from __future__ import annotations

from typing import Final

from service.messages.load import (
    ClosedLoop,
    Length,
    LognormalLength,
    Pattern,
    Poisson,
    RunLoad,
    UniformLength,
    describe_pattern,
    format_rate,
)
from service.messages.settings import SECONDS, Scale, Settings, setting_text

UNITS: Final = dict.fromkeys(SECONDS, "{:.3f}")


def describe_change(previous: Settings | Scale, now: Settings | Scale) -> str:
    """The settings that differ, by their own names; both are of one kind.

    >>> describe_change(Settings(max_batch_size=4), Settings(max_batch_size=16, batch_wait_timeout_s=0))
    'max_batch_size 4 → 16, batch_wait_timeout_s 0.050 → 0'
    >>> describe_change(Settings(), Settings(allow_small_batch=False)), describe_change(Scale(), Scale(replicas=2))
    ('allow_small_batch on → off', 'replicas 1 → 2')
    """
    changes = [
        f"{name} {_value(name, getattr(previous, name))} → {_value(name, getattr(now, name))}"
        for name in now.__struct_fields__
        if getattr(previous, name) != getattr(now, name)
    ]
    return ", ".join(changes)


def _value(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "0" if value == 0 else UNITS.get(name, "{}").format(value)


def describe_load_change(previous: Pattern | None, pattern: Pattern | None) -> str:
    """The change of the load, which is a pattern or ``None``.

    >>> describe_load_change(Poisson(rate_per_s=2.6), Poisson(rate_per_s=6.4))
    'load 2.6 → 6.4 req/s'
    >>> describe_load_change(ClosedLoop(users=8), None)
    'load stopped'
    """
    match previous, pattern:
        case _, None:
            return "load stopped"
        case Poisson(rate_per_s=before), Poisson(rate_per_s=now):
            return f"load {format_rate(before)} → {format_rate(now)} req/s"
        case ClosedLoop(users=before_users, think_s=0), ClosedLoop(users=users, think_s=0):
            return f"load {before_users} → {users} users"
        case None, _:
            return f"load {describe_pattern(pattern)}"
    return f"load {describe_pattern(previous)} → {describe_pattern(pattern)}"


def format_length(length: Length) -> str:
    """The length as the command line accepts it."""
    match length:
        case UniformLength(low=low, high=high):
            return f"{low}-{high}"
        case LognormalLength(median=median, sigma=sigma, cap=cap):
            return f"lognormal({median},{sigma:g},{cap})"
        case _:
            return str(length)


def settings_text(settings: Settings, names: tuple[str, ...] = Settings.__struct_fields__) -> str:
    """Names and values.

    >>> settings_text(Settings(), ("formation", "max_batch_size"))
    'formation late, max_batch_size 16'
    """
    return ", ".join(f"{name} {setting_text(getattr(settings, name))}" for name in names)


def load_text(load: RunLoad) -> str:
    """
    >>> from service.messages.load import Poisson
    >>> load_text(RunLoad(pattern=Poisson(rate_per_s=4), prompts=("Once",), max_tokens=24))
    '4.0 req/s, 24 tokens a request'
    """
    words = "" if load.prompt_words is None else f", prompts of {format_length(load.prompt_words)} words"
    tokens = "" if load.max_tokens == 1 else f", {format_length(load.max_tokens)} tokens a request"
    whole = "" if load.stream else ", not streamed"
    return f"{describe_pattern(load.pattern)}{words}{tokens}{whole}"
