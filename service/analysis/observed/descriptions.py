"""Settings, loads and replicas in words: what they are, and what changed."""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

import msgspec

from service.messages.load import (
    Burst,
    ClosedLoop,
    ConstantRate,
    GammaArrivals,
    Length,
    LognormalLength,
    OnOff,
    Pattern,
    Poisson,
    Ramp,
    RunLoad,
    Steps,
    Trace,
    UniformLength,
)
from service.messages.settings import Scale, Settings, setting_text

UNITS: Final = {"batch_wait_timeout_s": "{:.3f}", "stride_s": "{:.3f}"}


def describe_settings_change(previous: Settings, settings: Settings) -> str:
    """The settings that differ, by their own names.

    >>> describe_settings_change(Settings(max_batch_size=4), Settings(max_batch_size=16, batch_wait_timeout_s=0))
    'max_batch_size 4 → 16, batch_wait_timeout_s 0.050 → 0'
    >>> describe_settings_change(Settings(), Settings(allow_small_batch=False))
    'allow_small_batch on → off'
    """
    changes = [
        f"{name} {_value(name, getattr(previous, name))} → {_value(name, getattr(settings, name))}"
        for name in Settings.__struct_fields__
        if getattr(previous, name) != getattr(settings, name)
    ]
    return ", ".join(changes)


def _value(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "0" if value == 0 else UNITS.get(name, "{}").format(value)


def describe_scale_change(previous: Scale, scale: Scale) -> str:
    """
    >>> describe_scale_change(Scale(), Scale(replicas=2))
    'replicas 1 → 2'
    """
    before, now = msgspec.structs.asdict(previous), msgspec.structs.asdict(scale)
    return ", ".join(f"{name} {before[name]} → {value}" for name, value in now.items() if value != before[name])


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
            return f"load {_rate(before)} → {_rate(now)} req/s"
        case ClosedLoop(users=before_users, think_s=0), ClosedLoop(users=users, think_s=0):
            return f"load {before_users} → {users} users"
        case None, _:
            return f"load {describe_pattern(pattern)}"
    return f"load {describe_pattern(previous)} → {describe_pattern(pattern)}"


def describe_pattern(pattern: Pattern | None) -> str:
    """The load in a few words.

    >>> describe_pattern(Ramp(rate_per_s=1, rate_to_per_s=8, over_s=60))
    '1.0 to 8.0 req/s within 60 s'
    """
    match pattern:
        case ConstantRate(rate_per_s=rate):
            return f"{_rate(rate)} req/s, constant"
        case Poisson(rate_per_s=rate):
            return f"{_rate(rate)} req/s"
        case GammaArrivals(rate_per_s=rate, shape=shape):
            return f"{_rate(rate)} req/s, shape {shape:g}"
        case OnOff(rate_per_s=rate, on_s=on_s, off_s=off_s):
            return f"{_rate(rate)} req/s, {on_s:g} s on, {off_s:g} s off"
        case Ramp(rate_per_s=rate, rate_to_per_s=rate_to, over_s=over_s):
            return f"{_rate(rate)} to {_rate(rate_to)} req/s within {over_s:g} s"
        case Steps(rates_per_s=rates, step_s=step_s):
            return f"{', '.join(map(_rate, rates))} req/s, {step_s:g} s each"
        case Trace(path=path):
            return f"trace {PurePath(path).name}"
        case ClosedLoop(users=users, think_s=think_s):
            return f"{users} users" + (f", thinking {think_s:g} s" if think_s else "")
        case Burst(count=count):
            return f"burst of {count}"
    return "none"


def format_length(length: Length) -> str:
    """The length as the command line accepts it."""
    match length:
        case UniformLength(low=low, high=high):
            return f"{low}-{high}"
        case LognormalLength(median=median, sigma=sigma, cap=cap):
            return f"lognormal({median},{sigma:g},{cap})"
        case _:
            return str(length)


def _rate(rate_per_s: float) -> str:
    return f"{rate_per_s:.1f}" if rate_per_s < 100 else f"{rate_per_s:.0f}"


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
