"""Whether there can be other replicas: asked before, because Ray would wait for room, or the system end us."""

from __future__ import annotations

from collections.abc import Mapping

from service.messages.settings import SettingError

FIELD = "replicas"


def check_resources(more: int, each: Mapping[str, float], free: Mapping[str, float]) -> None:
    """Raise `SettingError` unless Ray can place so many `more` replicas, of which `each` takes so much.

    >>> check_resources(2, {"CPU": 1, "GPU": 1}, {"CPU": 8, "GPU": 1})
    Traceback (most recent call last):
    service.messages.settings.SettingError: replicas: 2 more take 2 of Ray's GPU, of which 1 is free.
    """
    for name, amount in each.items():
        if more * amount > free.get(name, 0):
            left = free.get(name, 0)
            are = "is" if left == 1 else "are"
            raise SettingError(
                FIELD, f"{more} more take {more * amount:g} of Ray's {name}, of which {left:g} {are} free."
            )


def check_memory(more: int, bytes_each: int, free_bytes: int) -> None:
    """Raise `SettingError` where so many `more` replicas would not fit, of which those that run take `bytes_each`.

    >>> check_memory(2, 600_000_000, 900_000_000)
    Traceback (most recent call last):
    service.messages.settings.SettingError: replicas: 2 more need about 1.2 GB of memory and 0.9 GB are free.
    """
    if more * bytes_each > free_bytes:
        needed = f"{more * bytes_each / 1e9:.1f} GB of memory and {free_bytes / 1e9:.1f} GB are free."
        raise SettingError(FIELD, f"{more} more need about {needed}")
