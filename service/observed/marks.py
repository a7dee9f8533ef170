"""Moments and spans that stand on every plot: changes of settings and load, failures, gaps."""

from __future__ import annotations

from dataclasses import dataclass

from service.messages import Burst, ClosedLoop, Pattern, Poisson, Settings

UNITS = {"batch_wait_timeout_s": "{:.3f}"}


@dataclass(frozen=True)
class SettingsMark:
    """The first batch that obeyed a version of the settings.

    Attributes:
        regime: counts such marks for as long as the window is open; versions begin anew with each service.
        text: what changed, "max_batch_size 4 → 16".
        detail: "in force after 3 ms", or empty.
    """

    at_s: float
    regime: int
    version: int
    text: str
    detail: str


@dataclass(frozen=True)
class LoadMark:
    """The load changed: "load 2.6 → 6.4 req/s"."""

    at_s: float
    text: str


@dataclass(frozen=True)
class Outage:
    """From `start_s` on there was no service or one replica less; open as long as `end_s` is ``None``.

    Attributes:
        text: "failed", "r1 lost", or "gap" for telemetry that was missed.
    """

    start_s: float
    end_s: float | None
    text: str


def describe_settings_change(previous: Settings, settings: Settings) -> str:
    """Say what differs, in the settings' own names.

    >>> describe_settings_change(Settings(max_batch_size=4), Settings(max_batch_size=16, batch_wait_timeout_s=0))
    'max_batch_size 4 → 16, batch_wait_timeout_s 0.050 → 0'
    """
    changes = [
        f"{name} {_value(name, getattr(previous, name))} → {_value(name, getattr(settings, name))}"
        for name in Settings.__struct_fields__
        if getattr(previous, name) != getattr(settings, name)
    ]
    return ", ".join(changes)


def _value(name: str, value: object) -> str:
    return "0" if value == 0 else UNITS.get(name, "{}").format(value)


def describe_load_change(previous: Pattern | None, pattern: Pattern | None) -> str:
    """Say how the load differs.

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
        case ClosedLoop(users=before_users), ClosedLoop(users=users):
            return f"load {before_users} → {users} users"
        case None, _:
            return f"load {_describe_pattern(pattern)}"
    return f"load {_describe_pattern(previous)} → {_describe_pattern(pattern)}"


def _describe_pattern(pattern: Pattern | None) -> str:
    match pattern:
        case Poisson(rate_per_s=rate):
            return f"{_rate(rate)} req/s"
        case ClosedLoop(users=users):
            return f"{users} users"
        case Burst(count=count):
            return f"burst of {count}"
    return "none"


def _rate(rate_per_s: float) -> str:
    return f"{rate_per_s:.1f}" if rate_per_s < 100 else f"{rate_per_s:.0f}"
