"""What one service is started with; no heavy import, so that the process that parses it starts at once."""

from __future__ import annotations

import msgspec

from service.messages.settings import Scale, Settings


class ServiceOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    Attributes:
        workload: `text`, or what `service.workloads.catalog.find` finds; `model` and `dtype` are for `text` alone.
        model: the default model's name, a local folder, a GGUF file or a hub id.
        device, dtype: `auto` or torch's names; dtype `int8` has weights in 8 bits, and computes in bfloat16.
        settings: in force until the first `PUT /batching`.
        replicas, max_ongoing_requests: in force until the first `PUT /deployment`; see `Scale`.
    """

    workload: str = "text"
    model: str = "SmolLM2-135M-Instruct"
    device: str = "auto"
    dtype: str = "auto"
    replicas: int = Scale().replicas
    settings: Settings = Settings()
    max_ongoing_requests: int = Scale().max_ongoing_requests
