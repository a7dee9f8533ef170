"""What can be set while the service runs: how batches are formed, and how many replicas there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import msgspec

from service.messages.text import UserError, parse_number

Formation: TypeAlias = Literal["late", "early", "continuous"]
ReleaseReason: TypeAlias = Literal["full", "timeout", "drained", "joined", "left"]

FORMATIONS: Final[tuple[Formation, ...]] = ("late", "early", "continuous")


SECONDS: Final = ("batch_wait_timeout_s", "stride_s")
USUAL_CHUNK_TOKENS: Final[Mapping[str, int]] = {"cpu": 128, "gpu": 1024}
"""`prefill_chunk_tokens` where it is not set: a tenth of a second on two cores."""
LONGEST_WAIT_S: Final = 10.0
"""How long a batch waits to be full where none may leave small, so that no request waits for ever."""


class SettingError(UserError, ValueError):
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
    """The closed interval a numeric setting must lie in.

    Attributes:
        least: the smallest value above 0, where `low` is 0 and less than that could not be told apart from 0.
    """

    low: float
    high: float
    integral: bool
    least: float = 0.0

    def __str__(self) -> str:
        return f"{'a whole number' if self.integral else 'a number'} {self.range}"

    def parse(self, text: str) -> float | str:
        """The number that `text` spells (whole ones in digits only), or `text`, which `check` refuses."""
        try:
            number = parse_number(text)
        except ValueError:
            return text
        return int(text) if self.integral and text.strip().lstrip("+-").isdigit() else number

    def check(self, field: str, value: object) -> None:
        """Raise `SettingError` unless `value` is a finite number (whole where `integral`) in the interval."""
        right_type = isinstance(value, int) if self.integral else isinstance(value, int | float)
        if isinstance(value, bool) or not right_type:
            raise SettingError(field, self.rule)
        assert isinstance(value, int | float)
        if value not in self:
            raise SettingError(field, self.rule)

    def __contains__(self, number: float) -> bool:
        return self.low <= number <= self.high and not 0 < number < self.least  # also false for NaN

    def nearest(self, number: float) -> float:
        """The number in the interval that is nearest to this one.

        >>> Bounds(1, 256, integral=True).nearest(1000), Bounds(0, 5, integral=False).nearest(0.5)
        (256, 0.5)
        """
        return min(max(number, self.low), self.high)

    @property
    def rule(self) -> str:
        """What is accepted, as a sentence."""
        return f"Must be {self}."

    @property
    def range(self) -> str:
        """The interval, as it stands in a sentence."""
        return f"from {self.least or self.low:g} to {self.high:g}{', or 0' if self.least else ''}"


BOUNDS: Final[Mapping[str, Bounds]] = {
    "max_batch_size": Bounds(1, 256, integral=True),
    "batch_wait_timeout_s": Bounds(0, 5, integral=False),
    "stride_s": Bounds(0, 5, integral=False, least=0.001),
    "max_batch_tokens": Bounds(0, 524_288, integral=True),
    "max_concurrent_batches": Bounds(1, 8, integral=True),
    "max_queued_requests": Bounds(1, 4096, integral=True),
    "prefill_chunk_tokens": Bounds(0, 8192, integral=True, least=16),
}

MEANINGS: Final[Mapping[str, str]] = {
    "formation": "late: a batch forms when the engine is free; early: as Ray's decorator seals it; "
    "continuous: requests join and leave between two steps",
    "max_batch_size": "requests a batch holds at most",
    "batch_wait_timeout_s": "seconds a free engine waits for a batch to fill",
    "allow_small_batch": f"off: a batch leaves only when it is full, or after {LONGEST_WAIT_S:g} s",
    "stride_s": "batches leave only on ticks of this period; 0: at once",
    "max_batch_tokens": "tokens of the prompts and outputs of a batch at most; 0: as many as memory holds",
    "max_concurrent_batches": "batches a replica runs at a time",
    "max_queued_requests": "requests that wait in a replica before it refuses more",
    "prefill_chunk_tokens": "tokens of joining prompts that a continuous step reads at most; 0: the device's",
}
"""Of each setting, for the help of the commands."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How batches are formed. A value that exists is valid: construction checks it and raises `SettingError`.

    Attributes:
        formation: `late` forms a batch when the engine is free; `early` is Ray's `@serve.batch` as shipped; in
            `continuous` requests join and leave the running batch between two decode steps.
        max_batch_size: requests a batch may hold (the cap); in `continuous` those that run at a time.
        batch_wait_timeout_s: how long a free engine waits for a batch to fill, from its first request on.
        allow_small_batch: if not, a batch leaves only when it is full, or after `LONGEST_WAIT_S` instead of
            `batch_wait_timeout_s`.
        stride_s: batches leave only on the ticks of this period, at least 1 ms; 0: at once. In `early` they are sealed
            as ever, and leave then.
        max_batch_tokens: what the prompts and `max_tokens` of a batch's members may sum up to; 0: what memory holds. A
            request that needs more runs alone. In `early` a batch that Ray has sealed is divided.
        max_concurrent_batches: batches a replica runs at a time; those of a text generator take turns, step by step.
            In `continuous` there is one.
        max_queued_requests: requests a replica lets wait before it refuses more with 503.
        prefill_chunk_tokens: in `continuous`, how many tokens of the prompts of joining requests a step may read while
            others are decoded, which wait meanwhile; 0: `USUAL_CHUNK_TOKENS` of the device.
    """

    formation: Formation = "late"
    max_batch_size: int = 16
    batch_wait_timeout_s: float = 0.05
    allow_small_batch: bool = True
    stride_s: float = 0.0
    max_batch_tokens: int = 0
    max_concurrent_batches: int = 1
    max_queued_requests: int = 256
    prefill_chunk_tokens: int = 0

    def __post_init__(self) -> None:
        if self.formation not in FORMATIONS:
            raise SettingError("formation", f"Must be one of {', '.join(FORMATIONS)}.")
        if not isinstance(self.allow_small_batch, bool):
            raise SettingError("allow_small_batch", "Must be on or off (true or false).")
        for field, bounds in BOUNDS.items():
            bounds.check(field, getattr(self, field))
        for field in SECONDS:  # 5 and 5.0 are one, and so are -0.0 and 0.0
            msgspec.structs.force_setattr(self, field, float(getattr(self, field)) + 0.0)
        if not self.allow_small_batch and self.max_queued_requests < self.max_batch_size:
            raise SettingError(
                "allow_small_batch",
                f"A batch of {self.max_batch_size} could never fill where {self.max_queued_requests} may wait: raise "
                "max_queued_requests, lower max_batch_size, or switch allow_small_batch on.",
            )

    @property
    def longest_wait_s(self) -> float:
        """How long a free engine waits for a batch that is not full."""
        return self.batch_wait_timeout_s if self.allow_small_batch else LONGEST_WAIT_S

    @property
    def places(self) -> int:
        """Batches a replica runs at a time."""
        return 1 if self.formation == "continuous" else self.max_concurrent_batches

    @property
    def max_ongoing_requests(self) -> int:
        """Requests a replica holds at most: full batches and a full queue, so that it never caps the batch."""
        return self.max_batch_size * self.places + self.max_queued_requests

    def chunk_tokens(self, device: str) -> int:
        """`prefill_chunk_tokens` as it is in force on a device, in torch's name of it.

        >>> Settings().chunk_tokens("cpu"), Settings(prefill_chunk_tokens=64).chunk_tokens("cuda:0")
        (128, 64)
        """
        return self.prefill_chunk_tokens or USUAL_CHUNK_TOKENS["cpu" if device == "cpu" else "gpu"]

    def revised(self, changes: Mapping[str, object]) -> Settings:
        """These settings with `changes` in place; raises `SettingError` at the first that is unknown or refused."""
        for field in changes:
            if field not in self.__struct_fields__:
                known = ", ".join(self.__struct_fields__)
                raise SettingError(str(field), f"Unknown setting. The settings are {known}.")
        try:
            return msgspec.structs.replace(self, **changes)
        except SettingError as error:
            raise error if error.field in changes else SettingError(next(iter(changes)), error.rule) from error


PLACES_FOR_REQUESTS: Final = 2
"""Of a replica's `max_ongoing_requests`, what readers of its telemetry leave free: so a low limit can be undone."""

SCALE_BOUNDS: Final[Mapping[str, Bounds]] = {
    "replicas": Bounds(1, 64, integral=True),
    "max_ongoing_requests": Bounds(PLACES_FOR_REQUESTS + 1, 999_999, integral=True),
}


class Scale(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What takes a redeployment. A value that exists is valid: construction checks it and raises `SettingError`.

    Attributes:
        replicas: copies of the model, each with a queue of its own.
        max_ongoing_requests: how many requests Ray lets a replica hold, those that read its telemetry included. Ray's
            own default of 5 would cap every batch unseen. The queue is ours: a low value only shows that fault.
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


SWITCH: Final[Mapping[str, bool]] = {"on": True, "true": True, "1": True, "off": False, "false": False, "0": False}


def setting_value(name: str, text: str) -> object:
    """The value that `text` spells for a field of `Settings` or `Scale`; other text is left for the field to refuse.

    >>> setting_value("max_batch_size", "8"), setting_value("stride_s", "0.05"), setting_value("formation", "late")
    (8, 0.05, 'late')
    >>> [setting_value("allow_small_batch", text) for text in ("off", "true", "0", "maybe")]
    [False, True, False, 'maybe']
    """
    text = text.strip()
    if isinstance(getattr(Settings(), name, None), bool):
        return SWITCH.get(text.lower(), text)
    bounds = BOUNDS.get(name) or SCALE_BOUNDS.get(name)
    return bounds.parse(text) if bounds else text


def setting_text(value: object) -> str:
    """The value of a setting as `setting_value` reads it.

    >>> [setting_text(value) for value in (0.05, 16, False, "late")]
    ['0.05', '16', 'off', 'late']
    """
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


class VersionedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings in force and their number; the body of `GET` and `PUT /batching`."""

    version: int
    settings: Settings


LONGEST_REASON: Final = 300  # characters


class SettingsChange(msgspec.Struct, frozen=True, kw_only=True):
    """One accepted `PUT /batching`.

    Attributes:
        requested_s: when the service had the request.
        in_force_s: when the last of the replicas had adopted it.
        reason: why a program made it, such as Hold; empty for a person's.
    """

    version: int
    previous: Settings
    settings: Settings
    requested_s: float
    in_force_s: float
    reason: str = ""

    @property
    def in_force_after_ms(self) -> float:
        return (self.in_force_s - self.requested_s) * 1e3

    @property
    def changed_fields(self) -> tuple[str, ...]:
        """Names of the settings whose value differs, in the order of `Settings`."""
        names = Settings.__struct_fields__
        return tuple(n for n in names if getattr(self.previous, n) != getattr(self.settings, n))
