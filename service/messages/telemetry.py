"""What the service reports while it runs: `GET /telemetry`.

Times named `…_s` are seconds on the service's monotonic clock; a field is ``None`` as long as its stage has not been
reached.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from service.messages.gaps import Gaps
from service.messages.life import LoadProgress
from service.messages.settings import Formation, ReleaseReason, Scale, SettingsChange, VersionedSettings
from service.messages.workload import TEXT

RequestState: TypeAlias = Literal["waiting", "formed", "running", "done", "failed", "cancelled", "refused"]
FIRST_REQUEST: Final = "start"
COMPARISON: Final = "compare-"
COMPARISON_WARM_UP: Final = f"{COMPARISON}warm-up-"
SILENT_S: Final = 2.0
"""A replica reports twice a second, also when nothing happens; what has not been heard for this time is late."""

FINAL_STATES: Final[frozenset[RequestState]] = frozenset({"done", "failed", "cancelled", "refused"})


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a request; each later record of the same `id` replaces the earlier one.

    Attributes:
        id: given by the service, unique for its lifetime.
        client_id: the caller's own `X-Request-Id`, if it sent one. The first request of a start sends
            `FIRST_REQUEST`, and those of a comparison send ids that begin with `COMPARISON`.
        batch: the `BatchRecord.id` it is or was a member of.
        longest_gap_s, longest_gap_at_s: the longest time between two of its tokens, and when that ended.
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
    longest_gap_s: float | None = None
    longest_gap_at_s: float | None = None


class TokenGaps(msgspec.Struct, frozen=True, kw_only=True):
    """The times between tokens of a replica's requests that ended within a step of the grid of `GAPS_STEP_S`.

    A step is reported when it is over.

    Attributes:
        at_s: when the latest of them ended.
        longest_at_s: when the longest ended.
        request: the `RequestRecord.id` whose gap was the longest.
    """

    replica: str
    at_s: float
    longest_at_s: float
    request: str
    gaps: Gaps


class BatchWork(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine computed for a batch, in tokens unless it says otherwise.

    Attributes:
        steps: forward passes that gave rows a token each: every row whose prompt had been read by then. Of a function
            its calls, and no more is known of it.
        computed: put through the model for all rows, prompts and padding included.
        padding: of these, in front of prompts shorter than the batch's longest.
        vacant: places of rows that had ended while the batch ran on, summed over the steps. Nothing is computed in
            them, but no other request could take them either.
        prompts: of these, read before the first tokens, padding included.
        saved: tokens of prompts that were not computed, since earlier prompts had begun with them.
        splits: how often memory did not hold all rows at once: they were decoded in one part more, or had to wait.
        prefill_s: time that this reading took; of a pass that decoded others as well, the share of the prompts' tokens.
    """

    steps: int = 0
    computed: int = 0
    padding: int = 0
    vacant: int = 0
    prompts: int = 0
    saved: int = 0
    splits: int = 0
    prefill_s: float = 0.0


class BatchRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a batch; each later record of the same `id` replaces the earlier one.

    Where formation is `continuous`, a batch is a stretch of steps with the same rows: when some join or leave, the next
    batch begins, whose `release_reason` says which of the two it was (`joined` where both).

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


class ProcessorUse(msgspec.Struct, frozen=True, kw_only=True):
    """The processor time of the engine's threads since the replica was measured first, in seconds of one core.

    Attributes:
        got_s: that they ran.
        waited_s: that they could have run, while other threads had the cores.
    """

    got_s: float
    waited_s: float


class GraphUse(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the decoding is replayed from CUDA graphs.

    Attributes:
        steps: forward passes that decoded rows, since the replica's start.
        replayed: of these, those whose rows were replayed.
        why_not: a sentence on the newest one that was not; empty if there was none.
    """

    steps: int = 0
    replayed: int = 0
    why_not: str = ""


class ReplicaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One replica at one moment.

    Attributes:
        replica: short name (`r1`), unique for the service's lifetime; a replaced replica gets a new one.
        waiting, formed, running: queue depth by stage, in requests.
        cpu_percent: of the replica's process, 100 a core; ``None`` where the process is not ours to look at.
        memory_bytes: resident memory of the replica's process; ``None`` likewise.
        engine_processor: ``None`` where the system does not report it.
        gpu_percent, gpu_power_w, gpu_clock_mhz: of its device, where it is a GPU and NVML reports them.
        gpu_memory_bytes: what the replica's process holds of it.
        graphs: ``None`` where its device is no GPU.
        unit: what the tokens of its requests and batches are, in the plural.
        max_ongoing_requests: how many Ray lets the replica hold, as deployed; a batch can't be larger.
        cache_share: of the memory for keys and values, what is taken, from 0 to 1; ``None`` where that is not reported.
        memory_tokens: what the prompts and `max_tokens` of all requests that run may sum up to, since memory holds no
            more; ``None`` where that is not known.
        is_fitted: requests go to the replica whose batch they fit, and not to one of Ray's choice.
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
    cpu_percent: float | None = None
    memory_bytes: int | None = None
    gpu_percent: float | None = None
    gpu_memory_bytes: int | None = None
    gpu_power_w: float | None = None
    gpu_clock_mhz: int | None = None
    graphs: GraphUse | None = None
    ledger: Ledger = Ledger()
    max_ongoing_requests: int | None = None
    unit: str = TEXT.unit
    engine_processor: ProcessorUse | None = None
    memory_tokens: int | None = None
    cache_share: float | None = None
    is_fitted: bool = False


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
    loading: LoadProgress | None = None
    is_settled: bool = True
    failure: str | None = None


class TelemetryFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="frame"):
    """Everything that happened since the frame before.

    Attributes:
        number: one more than that of the frame before; `GET /telemetry?after=N` continues with N + 1. A hub that takes
            the place of one that died goes on with higher numbers.
        at_s: the service's clock when the frame was closed.
        clock: identifies that clock; two programs that read the same value share it (same machine, same boot).
        service: drawn when a service starts: with another one ids, versions and numbers begin anew.
        lost_replicas: those that have ended without being asked to. One that is merely silent is not among them.
        left_replicas: those that a redeployment has no more use for, after they have answered all they held.
        deployment: ``None`` until the service has looked.
    """

    number: int
    at_s: float
    clock: str
    service: str = ""
    in_force: VersionedSettings
    changes: tuple[SettingsChange, ...] = ()
    batches: tuple[BatchRecord, ...] = ()
    requests: tuple[RequestRecord, ...] = ()
    gaps: tuple[TokenGaps, ...] = ()
    replicas: tuple[ReplicaStatus, ...] = ()
    lost_replicas: tuple[str, ...] = ()
    left_replicas: tuple[str, ...] = ()
    deployment: Deployment | None = None

    @property
    def gone_replicas(self) -> tuple[str, ...]:
        return self.lost_replicas + self.left_replicas


class FramesMissed(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="missed"):
    """The reader was too far behind: frames `first` to `last` are no longer kept."""

    first: int
    last: int


TelemetryEvent: TypeAlias = TelemetryFrame | FramesMissed
