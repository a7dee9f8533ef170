"""How batches are formed: values that check themselves, and what a change of them was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import msgspec

Formation: TypeAlias = Literal["late", "early", "continuous"]
ReleaseReason: TypeAlias = Literal["full", "timeout", "drained", "joined", "left"]

FORMATIONS: Final[tuple[Formation, ...]] = ("late", "early", "continuous")
RELEASE_REASONS: Final[tuple[ReleaseReason, ...]] = ("full", "timeout", "drained", "joined", "left")


class SettingError(ValueError):
    """A value was refused; nothing changed.

    Attributes:
        field: the setting's name, or the unknown name as it was given.
        rule: what would be accepted, as a sentence: "Must be from 1 to 256."
    """

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(field, rule)  # both, so that the error survives being pickled
        self.field = field
        self.rule = rule

    def __str__(self) -> str:
        return f"{self.field}: {self.rule}"


class Bounds(msgspec.Struct, frozen=True):
    """The closed interval a numeric setting must lie in."""

    low: float
    high: float
    integral: bool

    def check(self, field: str, value: object) -> None:
        """Raise `SettingError` unless `value` is a finite number (whole where `integral`) in the interval."""
        kind = "a whole number" if self.integral else "a number"
        rule = f"Must be {kind} from {self.low:g} to {self.high:g}."
        right_type = isinstance(value, int) if self.integral else isinstance(value, int | float)
        if isinstance(value, bool) or not right_type:
            raise SettingError(field, rule)
        assert isinstance(value, int | float)
        if not self.low <= value <= self.high:  # also false for NaN
            raise SettingError(field, rule)


BOUNDS: Final[Mapping[str, Bounds]] = {
    "max_batch_size": Bounds(1, 256, integral=True),
    "batch_wait_timeout_s": Bounds(0, 5, integral=False),
    "max_queued_requests": Bounds(1, 4096, integral=True),
}


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How batches are formed. A value that exists is valid: construction checks it and raises `SettingError`.

    Attributes:
        formation: `late` forms a batch when the engine is free; `early` is Ray's `@serve.batch` as shipped; in
            `continuous` requests join and leave the running batch between two decode steps.
        max_batch_size: requests a batch may hold (the cap); in `continuous` those that run at a time.
        batch_wait_timeout_s: how long a free engine waits for a batch to fill, from its first request on.
        max_queued_requests: requests a replica lets wait before it refuses more with 503.
    """

    formation: Formation = "late"
    max_batch_size: int = 16
    batch_wait_timeout_s: float = 0.05
    max_queued_requests: int = 256

    def __post_init__(self) -> None:
        if self.formation not in FORMATIONS:
            raise SettingError("formation", f"Must be one of {', '.join(FORMATIONS)}.")
        for field, bounds in BOUNDS.items():
            bounds.check(field, getattr(self, field))

    @property
    def max_concurrent_batches(self) -> int:
        """Batches a replica runs at once: there is one engine."""
        return 1

    @property
    def max_ongoing_requests(self) -> int:
        """Requests a replica holds at most: a full batch and a full queue, so that it never caps the batch."""
        return self.max_batch_size * self.max_concurrent_batches + self.max_queued_requests

    def revised(self, changes: Mapping[str, object]) -> Settings:
        """These settings with `changes` in place; raises `SettingError` at the first that is unknown or refused."""
        for field in changes:
            if field not in self.__struct_fields__:
                known = ", ".join(self.__struct_fields__)
                raise SettingError(str(field), f"Unknown setting. The settings are {known}.")
        revised = msgspec.structs.replace(self, **changes)
        # 5 and 5.0 are one timeout; -0.0 is 0.
        return msgspec.structs.replace(revised, batch_wait_timeout_s=float(revised.batch_wait_timeout_s) + 0.0)


class VersionedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings in force and their number; the body of `GET` and `PUT /batching`."""

    version: int
    settings: Settings


class SettingsChange(msgspec.Struct, frozen=True, kw_only=True):
    """One accepted `PUT /batching`.

    Attributes:
        requested_s: when the service had the request.
        in_force_s: when the last of the replicas had adopted it.
    """

    version: int
    previous: Settings
    settings: Settings
    requested_s: float
    in_force_s: float

    @property
    def in_force_after_ms(self) -> float:
        return (self.in_force_s - self.requested_s) * 1e3

    @property
    def changed_fields(self) -> tuple[str, ...]:
        """Names of the settings whose value differs, in the order of `Settings`."""
        names = Settings.__struct_fields__
        return tuple(n for n in names if getattr(self.previous, n) != getattr(self.settings, n))
