"""The options one service is started with. No heavy import: the process that parses them starts at once."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Final

import msgspec

from service.messages.objectives import Objectives
from service.messages.settings import Scale, Settings

APP_NAME: Final = "Text-Completion-App"
DEPLOYMENT_NAME: Final = "BatchTextGenerator"
REQUEST_TIMEOUT_S: Final = 600.0
"""A request that is not complete after this time fails, in the replica as in Ray's proxy."""

AUTO_MODEL: Final = "auto"
STUB_MODEL: Final = "stub"
"""Names no model: the small one, or where the service starts on this machine, what suits its GPU."""
SMALL_MODEL: Final = "SmolLM2-135M-Instruct"
LARGE_MODEL: Final = "HuggingFaceTB/SmolLM2-1.7B-Instruct"
LARGE_MODEL_GPU_BYTES: Final = 8_000_000_000
"""The memory of a GPU from which on `auto` takes the large model."""

DEFAULT_APP: Final = "service.app:build"
LOOPBACK: Final = "127.0.0.1"


class ServiceOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a replica needs.

    Attributes:
        workload: `text`, or what `service.workloads.catalog.find` finds; `model` and `dtype` are for `text` alone.
        model: `AUTO_MODEL`, the small model's name, a local folder, a GGUF file, a hub id or a stub (`is_stub`).
        device, dtype: `auto` or torch's names; dtype `int8` has weights and inputs in 8 bits or fewer.
        deterministic: a prompt's completion does not depend on the requests beside it, to the last bit; for `text`.
        settings: in force until the first `PUT /batching`.
        replicas, max_ongoing_requests: in force until the first `PUT /deployment`; see `Scale`.
        hold: objectives that a deployment of its own keeps by moving settings; ``None`` for none.
    """

    workload: str = "text"
    model: str = AUTO_MODEL
    device: str = "auto"
    dtype: str = "auto"
    deterministic: bool = False
    replicas: int = Scale().replicas
    settings: Settings = Settings()
    max_ongoing_requests: int = Scale().max_ongoing_requests
    hold: Objectives | None = None


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What `python -m service` is asked to run.

    Attributes:
        port: the one port to listen on; ``None`` for 8000 or the next free one, 0 for any free one.
        address: of a Ray cluster to run on, instead of a local one of our own.
        token_file: holds the bearer token that every request must carry.
        app: `module:function` that builds the Serve application from `ServiceOptions`.
        parent_pid: the service ends with this process; ``None`` for the one that started it.
    """

    service: ServiceOptions = ServiceOptions()
    host: str = LOOPBACK
    port: int | None = None
    address: str | None = None
    token_file: str | None = None
    app: str = DEFAULT_APP
    parent_pid: int | None = None


def is_stub(model: str) -> bool:
    """Whether no model is meant, but `service.engine.stub`; times may stand behind a question mark."""
    return model.partition("?")[0] == STUB_MODEL


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a service that listens on `host`.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_token(path: str | Path) -> str:
    """The token in the file at `path`; raises `OSError` or `UnicodeError`."""
    return Path(path).read_text(encoding="ascii").strip()
