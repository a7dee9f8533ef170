"""The service's life: one JSON line a state on standard output of `python -m service`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, Self, TypeAlias

import msgspec

from service.messages.text import UserError
from service.messages.workload import TEXT, WorkloadAbout

StageName: TypeAlias = Literal["check", "fetch", "convert", "ray", "serve", "load", "answer"]
Unit: TypeAlias = Literal["bytes", "layers", "graphs", "replicas"]
"""What a stage counts: `layers` are packed, `graphs` captured, `replicas` run."""

_LOADED_IN_ORDER: Final[tuple[Unit, ...]] = ("layers", "graphs")


class StartError(UserError):
    """The service cannot start; `str()` of it is a sentence for the user that says what to do."""


class PortTakenError(StartError):
    """Another program took the port after it was seen free and before the service listened on it."""


class NoClusterError(StartError):
    """No Ray cluster answers at an address."""

    def __init__(self, address: str | None) -> None:
        super().__init__(
            f"There is no Ray cluster to be reached at {address}. Check the address, and that `ray status` works there."
        )


class ClusterTokenError(StartError):
    """A Ray cluster does not let us in without its token."""

    def __init__(self, address: str, *, is_given: bool) -> None:
        asks = "refuses the token that it is given" if is_given else "asks for its token"
        super().__init__(
            f"The Ray cluster at {address} {asks}. Set RAY_AUTH_MODE=token, and give the token of its head node in "
            "RAY_AUTH_TOKEN or in ~/.ray/auth_token."
        )


class LoadProgress(msgspec.Struct, frozen=True):
    """How far a replica is with loading its model: `done` of `total` in `unit`; a load goes through several units."""

    unit: Unit
    done: int
    total: int


def furthest_behind(loads: Iterable[LoadProgress]) -> LoadProgress | None:
    """The load that all others wait for; ``None`` where there is none.

    >>> furthest_behind([LoadProgress("graphs", 3, 32), LoadProgress("layers", 20, 30)])
    LoadProgress(unit='layers', done=20, total=30)
    """
    return min(loads, key=lambda each: (_LOADED_IN_ORDER.index(each.unit), each.done), default=None)


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """A stage of starting that lies ahead: its title for the user and about how long it takes, if that is known."""

    name: StageName
    title: str
    about_s: float | None = None


class Starting(msgspec.Struct, frozen=True, kw_only=True, tag_field="state", tag="starting"):
    """The first line, and said again where the stages ahead become others.

    Attributes:
        instance: drawn anew at each start.
        stages: those that this start goes through, in order.
        why_model: see `Ready`.
    """

    instance: str
    stages: tuple[Stage, ...]
    why_model: str = ""


class StageProgress(msgspec.Struct, frozen=True, kw_only=True, tag_field="state", tag="stage"):
    """A stage began, went on or ended.

    Attributes:
        done, total: how far, in `unit`, where that is known.
        elapsed_s: since the stage began.
        finished: this is the stage's last line.
    """

    name: StageName
    elapsed_s: float
    done: float | None = None
    total: float | None = None
    unit: Unit | None = None
    finished: bool = False


class TrialBatch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch of short prompts that a replica computes as it starts, before it takes requests.

    Attributes:
        size: rows, all of which go on to its last step.
        first_token_s: until the prompts are read and each row has its first token.
        step_s: each further token of all rows takes this long; the median.
        processor_share: of the processor time that the engine's threads asked for, what they got; ``None`` where the
            system does not report it.
    """

    size: int
    first_token_s: float
    step_s: float
    processor_share: float | None = None

    def requests_per_s(self, tokens: float) -> float:
        """What an engine computes in batches of this size, where a row has `tokens` tokens on average.

        >>> TrialBatch(size=16, first_token_s=0.5, step_s=0.5).requests_per_s(tokens=4)
        8.0
        """
        return self.size / (self.first_token_s + max(tokens - 1, 0.0) * self.step_s)


class ServiceAbout(msgspec.Struct, frozen=True, kw_only=True):
    """What answers, as the service reports it at /healthz and as it starts.

    Attributes:
        dtype: of a model's weights; empty where there are none.
        why_processor: a sentence, where the device `auto` is the processor.
        trial: one replica's; ``None`` where none was computed.
        server: name and release of a server that is not ours; empty where ours answers.
        fixed: why no setting can be changed here, as a sentence; empty where they can.
        closed: why no request is taken here, as a sentence; empty where they are.
        untold: what that server does not report, in sentences.
    """

    model: str
    device: str
    dtype: str
    why_processor: str = ""
    trial: TrialBatch | None = None
    server: str = ""
    fixed: str = ""
    closed: str = ""
    untold: str = ""


class Ready(ServiceAbout, frozen=True, kw_only=True, tag_field="state", tag="ready"):
    """The service answers.

    Attributes:
        url: without a trailing slash.
        why_model: why the model `auto` is the small one, in words, where the GPU holds the large one.
        workload: text in recordings that are older than others.
        started_in_s: since the start of the process.
    """

    url: str
    instance: str
    why_model: str = ""
    context_length: int | None
    workload: WorkloadAbout = TEXT
    replicas: int
    started_in_s: float

    @classmethod
    def answered(
        cls,
        url: str,
        instance: str,
        health: Mapping[str, Any],
        models: Mapping[str, Any],
        workload: object,
        *,
        replicas: int,
        started_in_s: float,
    ) -> Self:
        """What a service says of itself: its decoded answers to /healthz, /v1/models and /workload.

        Raises `KeyError`, `ValueError`, `TypeError` or `msgspec.ValidationError` where they are none of ours.
        """
        (model,) = models["data"]
        return cls(
            **msgspec.structs.asdict(msgspec.convert(health, ServiceAbout)),
            url=url,
            instance=instance,
            context_length=model["context_length"],
            workload=msgspec.convert(workload, WorkloadAbout),
            replicas=replicas,
            started_in_s=started_in_s,
        )


class ProcessLost(msgspec.Struct, frozen=True, kw_only=True, tag_field="state", tag="lost"):
    """A process ended without which nothing is answered or reported, and Ray Serve starts another in its place.

    `name` is for the user, such as "The last replica".
    """

    name: str


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag_field="state", tag="failed"):
    """The service could not start, or died. `reason` is a sentence for the user that says what to do."""

    reason: str
    exit_code: int | None = None


class Stopping(msgspec.Struct, frozen=True, kw_only=True, tag_field="state", tag="stopping"):
    """An orderly end has begun."""


class Stopped(msgspec.Struct, frozen=True, kw_only=True, tag_field="state", tag="stopped"):
    """The last line of an orderly end: no process and no port is left."""


ServiceState: TypeAlias = Starting | StageProgress | Ready | ProcessLost | Failed | Stopping | Stopped
