"""How many replicas there are and what Ray lets each hold: what is wanted, and how far that is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from service.messages.life import Unit
from service.messages.settings import Bounds, SettingError

SCALE_BOUNDS: Final[Mapping[str, Bounds]] = {
    "replicas": Bounds(1, 64, integral=True),
    "max_ongoing_requests": Bounds(1, 999_999, integral=True),
}


class Scale(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What takes a redeployment. A value that exists is valid: construction checks it and raises `SettingError`.

    Attributes:
        replicas: copies of the model, each with a queue of its own.
        max_ongoing_requests: how many requests Ray lets a replica hold, those that read its telemetry included. Ray's
            own default of 5 would cap every batch, and nobody would see; the queue is ours, so only those who want to
            see that fault set it low.
    """

    replicas: int = 1
    max_ongoing_requests: int = 100_000

    def __post_init__(self) -> None:
        for field, bounds in SCALE_BOUNDS.items():
            bounds.check(field, getattr(self, field))

    def revised(self, changes: Mapping[str, object]) -> Scale:
        """This with `changes` in place; raises `SettingError` at the first that is unknown or refused."""
        for field in changes:
            if field not in self.__struct_fields__:
                known = " and ".join(self.__struct_fields__)
                raise SettingError(str(field), f"Unknown here. What takes a redeployment are {known}.")
        return msgspec.structs.replace(self, **changes)


class Loading(msgspec.Struct, frozen=True, kw_only=True):
    """How far a replica is with loading its model: so many of a total of them are done."""

    unit: Unit
    done: int
    total: int


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """How the service is deployed; the body of `GET` and `PUT /deployment`.

    Attributes:
        at_s: when it was seen so, on the service's clock.
        wanted: what was asked for last; it holds where `is_settled`.
        running: replicas that take requests.
        leaving: replicas that take no more of them, and answer those they hold before they go.
        loading: of the replica that is furthest behind, while one loads a model.
        failure: why the last redeployment was taken back, as a sentence for the user.
    """

    at_s: float
    wanted: Scale
    running: int
    leaving: int = 0
    loading: Loading | None = None
    is_settled: bool = True
    failure: str | None = None
