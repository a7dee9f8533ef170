"""Everything that crosses a process border: the one module that the window and the service share.

All values are frozen `msgspec` structs and travel as JSON. Times named `…_s` are seconds on the service's monotonic
clock unless a docstring says otherwise; a field is ``None`` as long as its stage has not been reached.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

# ---------------------------------------------------------------------------------------------------------------------
# Settings
# ---------------------------------------------------------------------------------------------------------------------

Formation: TypeAlias = Literal["late", "early"]
ReleaseReason: TypeAlias = Literal["full", "timeout", "drained"]

FORMATIONS: Final[tuple[Formation, ...]] = ("late", "early")
RELEASE_REASONS: Final[tuple[ReleaseReason, ...]] = ("full", "timeout", "drained")


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
        formation: `late` forms a batch when the engine is free; `early` is Ray's `@serve.batch` as shipped.
        max_batch_size: requests a batch may hold (the cap).
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


# ---------------------------------------------------------------------------------------------------------------------
# Telemetry: `GET /telemetry`
# ---------------------------------------------------------------------------------------------------------------------

RequestState: TypeAlias = Literal["waiting", "formed", "running", "done", "failed", "cancelled", "refused"]
FINAL_STATES: Final[frozenset[RequestState]] = frozenset({"done", "failed", "cancelled", "refused"})


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a request; each later record of the same `id` replaces the earlier one.

    Attributes:
        id: given by the service, unique for its lifetime.
        client_id: the caller's own `X-Request-Id`, if it sent one.
        batch: the `BatchRecord.id` it is or was a member of.
    """

    id: str
    client_id: str | None = None
    replica: str
    state: RequestState
    prompt_tokens: int
    max_tokens: int
    completion_tokens: int = 0
    batch: str | None = None
    received_s: float
    enqueued_s: float | None = None
    formed_s: float | None = None
    started_s: float | None = None
    first_token_s: float | None = None
    finished_s: float | None = None
    error: str | None = None


class BatchWork(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine computed for a batch, in tokens unless it says otherwise.

    Attributes:
        steps: forward passes after the prompts were read, each of which gives every row that is left one token.
        computed: put through the model for all rows, prompts and padding included.
        padding: of these, in front of prompts shorter than the batch's longest.
        vacant: places of rows that had ended while the batch ran on, summed over the steps. Nothing is computed in
            them, but no other request could take them either.
    """

    steps: int = 0
    computed: int = 0
    padding: int = 0
    vacant: int = 0


class BatchRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a batch; each later record of the same `id` replaces the earlier one.

    Attributes:
        id: unique, `<replica>-<number>`.
        number: counts the replica's batches from 1.
        settings_version: the settings it was formed under.
        size: members it was sealed with.
        cap: `max_batch_size` it was formed under.
        tokens: tokens generated so far for all members.
        members: ids of its requests, in their order in the queue.
        work: known when it has finished.
    """

    id: str
    number: int
    replica: str
    settings_version: int
    formation: Formation
    size: int
    cap: int
    release_reason: ReleaseReason
    formed_s: float
    started_s: float | None = None
    finished_s: float | None = None
    tokens: int = 0
    members: tuple[str, ...] = ()
    work: BatchWork | None = None


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """Requests a replica has counted since it started.

    ``received = refused + admitted`` and ``admitted = completed + failed + cancelled + (those it now holds)``.
    """

    received: int = 0
    refused: int = 0
    admitted: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0


class ReplicaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One replica at one moment.

    Attributes:
        replica: short name (`r1`), unique for the service's lifetime; a replaced replica gets a new one.
        waiting, formed, running: queue depth by stage, in requests.
        cpu_percent: of the replica's process, 100 a core.
        memory_bytes: resident memory of the replica's process.
        gpu_percent, gpu_memory_bytes: of its device, where there is a GPU.
        max_ongoing_requests: how many Ray lets the replica hold, as deployed; a batch can't be larger.
    """

    replica: str
    pid: int
    at_s: float
    settings_version: int
    waiting: int
    formed: int
    running: int
    model: str
    device: str
    dtype: str
    cpu_percent: float
    memory_bytes: int
    gpu_percent: float | None = None
    gpu_memory_bytes: int | None = None
    ledger: Ledger = Ledger()
    max_ongoing_requests: int | None = None


class TelemetryFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="frame"):
    """Everything that happened since the frame before.

    Attributes:
        number: counts frames from 1 without gaps; `GET /telemetry?after=N` continues with N + 1.
        at_s: the service's clock when the frame was closed.
        clock: identifies that clock; two programs that read the same value share it (same machine, same boot).
    """

    number: int
    at_s: float
    clock: str
    in_force: VersionedSettings
    changes: tuple[SettingsChange, ...] = ()
    batches: tuple[BatchRecord, ...] = ()
    requests: tuple[RequestRecord, ...] = ()
    replicas: tuple[ReplicaStatus, ...] = ()
    lost_replicas: tuple[str, ...] = ()


class FramesMissed(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="missed"):
    """The reader was too far behind: frames `first` to `last` are no longer kept."""

    first: int
    last: int


TelemetryEvent: TypeAlias = TelemetryFrame | FramesMissed

# ---------------------------------------------------------------------------------------------------------------------
# The service's life: one JSON line a state on standard output of `python -m service`
# ---------------------------------------------------------------------------------------------------------------------

StageName: TypeAlias = Literal["check", "fetch", "convert", "ray", "serve", "load", "answer"]


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """A stage of starting that lies ahead: its title for the user and about how long it takes, if that is known."""

    name: StageName
    title: str
    about_s: float | None = None


class Starting(msgspec.Struct, frozen=True, kw_only=True, tag_field="state", tag="starting"):
    """The first line. `stages` are those this start goes through, in order; `instance` is drawn anew at each start."""

    instance: str
    stages: tuple[Stage, ...]


class StageProgress(msgspec.Struct, frozen=True, kw_only=True, tag_field="state", tag="stage"):
    """A stage began, went on or ended.

    Attributes:
        done, total: how far, in `unit`, where the stage can tell.
        elapsed_s: since the stage began.
        finished: this is the stage's last line.
    """

    name: StageName
    elapsed_s: float
    done: float | None = None
    total: float | None = None
    unit: Literal["bytes", "replicas"] | None = None
    finished: bool = False


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag_field="state", tag="ready"):
    """The service answers. `url` has no trailing slash; `started_in_s` counts from the start of the process."""

    url: str
    instance: str
    model: str
    device: str
    dtype: str
    context_length: int
    replicas: int
    started_in_s: float


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag_field="state", tag="failed"):
    """The service could not start, or died. `reason` is a sentence for the user that says what to do."""

    reason: str
    exit_code: int | None = None


class Stopping(msgspec.Struct, frozen=True, kw_only=True, tag_field="state", tag="stopping"):
    """An orderly end has begun."""


class Stopped(msgspec.Struct, frozen=True, kw_only=True, tag_field="state", tag="stopped"):
    """The last line of an orderly end: no process and no port is left."""


ServiceState: TypeAlias = Starting | StageProgress | Ready | Failed | Stopping | Stopped

# ---------------------------------------------------------------------------------------------------------------------
# The load process: commands on standard input, events on standard output of `python -m service load --control`
# ---------------------------------------------------------------------------------------------------------------------

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=100_000)]


Rate: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=10_000)]
Span: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=86_400)]

LOAD_BOUNDS: Final[Mapping[str, Bounds]] = {
    "count": Bounds(1, 100_000, integral=True),
    "users": Bounds(1, 4096, integral=True),
    "think_s": Bounds(0, 3600, integral=False),
    "rate_per_s": Bounds(0.001, 10_000, integral=False),
    "span_s": Bounds(0.1, 86_400, integral=False),
    "shape": Bounds(0.01, 1000, integral=False),
    "time_scale": Bounds(0.001, 1000, integral=False),
    "tokens": Bounds(1, 100_000, integral=True),
    "temperature": Bounds(0, 10, integral=False),
}


class Burst(msgspec.Struct, frozen=True, kw_only=True, tag_field="pattern", tag="burst"):
    """`count` requests at once, then nothing."""

    count: Count


class ClosedLoop(msgspec.Struct, frozen=True, kw_only=True, tag_field="pattern", tag="closed"):
    """`users` users, each of whom sends the next request when the last is answered and thought about.

    Attributes:
        think_s: from an answer to the user's next request; where it is `exponential`, on average.
    """

    users: Annotated[int, msgspec.Meta(ge=1, le=4096)]
    think_s: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 0.0
    think: Literal["fixed", "exponential"] = "fixed"


class ConstantRate(msgspec.Struct, frozen=True, kw_only=True, tag_field="pattern", tag="constant"):
    """Open loop: arrivals that do not wait for answers, as regular as a clock's ticks."""

    rate_per_s: Rate


class Poisson(msgspec.Struct, frozen=True, kw_only=True, tag_field="pattern", tag="poisson"):
    """Open loop: arrivals that do not wait for answers nor for each other, on average `rate_per_s` a second."""

    rate_per_s: Rate


class GammaArrivals(msgspec.Struct, frozen=True, kw_only=True, tag_field="pattern", tag="gamma"):
    """Open loop whose intervals are gamma distributed.

    Attributes:
        shape: 1 is Poisson, less comes in clusters, more is more regular. The coefficient of variation of the
            intervals is 1/√shape; it is what vLLM's `bench serve` calls `--burstiness`.
    """

    rate_per_s: Rate
    shape: Annotated[float, msgspec.Meta(ge=0.01, le=1000)]


class OnOff(msgspec.Struct, frozen=True, kw_only=True, tag_field="pattern", tag="on-off"):
    """Open loop: Poisson arrivals for `on_s`, none for `off_s`, and so on."""

    rate_per_s: Rate
    on_s: Span
    off_s: Span


class Ramp(msgspec.Struct, frozen=True, kw_only=True, tag_field="pattern", tag="ramp"):
    """Open loop: Poisson arrivals whose rate goes evenly from one to another within `over_s`, and stays there."""

    rate_per_s: Rate
    rate_to_per_s: Rate
    over_s: Span


class Steps(msgspec.Struct, frozen=True, kw_only=True, tag_field="pattern", tag="steps"):
    """Open loop: Poisson arrivals at one rate after the other, each for `step_s`; the last stays."""

    rates_per_s: Annotated[tuple[Rate, ...], msgspec.Meta(min_length=1, max_length=1000)]
    step_s: Span


class Trace(msgspec.Struct, frozen=True, kw_only=True, tag_field="pattern", tag="trace"):
    """Open loop: the arrivals that a file holds; see `service/load/trace_file.py`.

    Attributes:
        path: of the file, on the machine of the load process.
        time_scale: what the file's times are multiplied by: 0.5 replays it twice as fast.
    """

    path: str
    time_scale: Annotated[float, msgspec.Meta(ge=0.001, le=1000)] = 1.0


Pattern: TypeAlias = Burst | ClosedLoop | ConstantRate | Poisson | GammaArrivals | OnOff | Ramp | Steps | Trace


class UniformLength(msgspec.Struct, frozen=True, kw_only=True, tag_field="drawn", tag="uniform"):
    """Every length from `low` to `high` is as likely as any other."""

    low: Count
    high: Count

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("its low end is above its high end.")


class LognormalLength(msgspec.Struct, frozen=True, kw_only=True, tag_field="drawn", tag="lognormal"):
    """Many short and few long ones, as in real traffic: half of them below `median`, none above `cap`.

    Attributes:
        sigma: standard deviation of the logarithm; about 0.6 is usual.
    """

    median: Count
    sigma: Annotated[float, msgspec.Meta(gt=0, le=5)]
    cap: Count


Length: TypeAlias = Count | UniformLength | LognormalLength


def longest(length: Length) -> int:
    """What no drawn length exceeds."""
    match length:
        case UniformLength(high=high):
            return high
        case LognormalLength(cap=cap):
            return cap
        case _:
            return length


USUAL_PROMPTS: Final = (
    "Once upon a time",
    "The three laws of robotics are",
    "A batch is a group of",
    "Explain latency to a child:",
    "In the year 2050, computers",
)


class Fire(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="fire"):
    """Send each prompt `copies` times, now."""

    prompts: tuple[str, ...]
    copies: Count = 1
    max_tokens: Count = 24
    temperature: float = 0.0


class RunLoad(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="run"):
    """Start the load, or change the one that runs: pattern, prompts and lengths apply to the next arrival.

    Attributes:
        seed: of arrivals, prompts and lengths, each with a random stream of its own: the same seed gives the same
            requests in the same order, whatever the rate.
        prompt_words: words that prompts are cut or continued to; ``None`` leaves them as they are.
    """

    pattern: Pattern
    prompts: tuple[str, ...]
    max_tokens: Length = 24
    prompt_words: Length | None = None
    temperature: float = 0.0
    seed: int = 0
    max_outstanding: Count = 1024


class StopLoad(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="stop"):
    """No further arrivals; what is under way is let finish."""


class PauseLoad(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="pause"):
    """No arrivals until `ResumeLoad`; what is under way goes on."""


class ResumeLoad(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="resume"):
    """Go on where the pause began: what would have arrived during it comes as much later as it lasted."""


class Cancel(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="cancel"):
    """Break off these requests, or all where `ids` is ``None``."""

    ids: tuple[str, ...] | None = None


LoadCommand: TypeAlias = Fire | RunLoad | StopLoad | PauseLoad | ResumeLoad | Cancel

ClientOutcome: TypeAlias = Literal["ok", "failed", "cancelled", "refused"]


class ClientRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as its sender sees it; each later one of the same `id` replaces the earlier one.

    Attributes:
        id: sent as `X-Request-Id`, so it is the `RequestRecord.client_id` of the same request.
        new_text: what was generated since the last report on this request; the completion is their sum.
        intended_s, sent_s, first_token_s, finished_s: on the sender's monotonic clock.
        tokens: generated so far.
        outcome: ``None`` while under way; `refused` is the service's deliberate 503.
    """

    id: str
    source: Literal["fire", "load"]
    prompt: str
    max_tokens: int
    intended_s: float
    sent_s: float | None = None
    first_token_s: float | None = None
    finished_s: float | None = None
    tokens: int = 0
    new_text: str = ""
    outcome: ClientOutcome | None = None
    error: str | None = None

    @property
    def latency_s(self) -> float | None:
        """From the intended send time to the last token, in seconds."""
        return None if self.finished_s is None else self.finished_s - self.intended_s


class ClientTotals(msgspec.Struct, frozen=True, kw_only=True):
    """The client's ledger: ``sent = ok + refused + failed + cancelled + outstanding``; `dropped` were never sent."""

    sent: int = 0
    ok: int = 0
    refused: int = 0
    failed: int = 0
    cancelled: int = 0
    dropped: int = 0
    outstanding: int = 0


class LoadFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="load"):
    """Everything the load process saw since its frame before, at most about 20 a second.

    Attributes:
        at_s: the sender's monotonic clock.
        clock: identifies that clock, as in `TelemetryFrame`.
        pattern: what runs now, or ``None``.
        lag_p99_ms: how late the generator itself sent, over the last 10 s; ``None`` while it sent nothing.
        is_paused: the load waits for `ResumeLoad`.
    """

    at_s: float
    clock: str
    pattern: Pattern | None
    totals: ClientTotals
    lag_p99_ms: float | None = None
    is_paused: bool = False
    requests: tuple[ClientRequest, ...] = ()


class LoadRefused(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="refused"):
    """A command could not be obeyed; `reason` is a sentence that says why."""

    reason: str


LoadEvent: TypeAlias = LoadFrame | LoadRefused


def parse_number(text: str) -> float:
    """The finite number that `text` spells in plain ASCII ("0.05", "1e-3"); raises `ValueError` for anything else."""
    if not text.isascii() or "_" in text:
        raise ValueError("not a number")
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("not a finite number")
    return value
