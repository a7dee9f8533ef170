"""The Serve application: `serve run service.app:generator --name Text-Completion-App`."""

from __future__ import annotations

import secrets
from typing import Any, cast

import msgspec
from ray.serve import Application, Deployment

from service.messages.options import ServiceOptions
from service.ray_serve.gpus import check_index, takes_gpu
from service.ray_serve.router import router_config
from service.replica.deployment import BatchTextGenerator, HoldDeployment, HubDeployment


def build(options: ServiceOptions | dict[str, Any]) -> Application:
    """The application for these options: replicas that generate, the hub that they share, and Hold if it is asked for.

    As a builder that a Serve config file or `serve run service.app:build device=cpu` names, it is given a dict.
    Raises `StartError` for a GPU that cannot be had.
    """
    if isinstance(options, dict):
        options = msgspec.convert(options, ServiceOptions, strict=False)  # a command line's values are texts
    check_index(options)
    has_gpu = takes_gpu(options)
    replicas = cast(Deployment, BatchTextGenerator).options(
        num_replicas=options.replicas,
        max_ongoing_requests=options.max_ongoing_requests,
        ray_actor_options={"num_cpus": 1, "num_gpus": int(has_gpu)},
        request_router_config=router_config(),
    )
    hub = cast(Deployment, HubDeployment).bind(
        options.settings, secrets.token_hex(8), options.device if has_gpu else None
    )
    if options.hold is None:
        return replicas.bind(options, hub)
    return replicas.bind(options, hub, cast(Deployment, HoldDeployment).bind(hub, options.hold))


generator = build(ServiceOptions())
