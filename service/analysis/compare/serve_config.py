"""A Ray Serve config file with chosen settings, which `serve run` and `serve deploy` accept as it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import yaml

from service.analysis.compare.comparison import ServiceFacts
from service.messages.options import APP_NAME, DEPLOYMENT_NAME, ServiceOptions
from service.messages.settings import Settings

USAGE: Final = (
    "serve run FILE starts it on this machine; serve deploy FILE sends it to a Ray cluster.",
    "Either needs this project installed where Ray runs.",
)
OF_DEPLOYMENT: Final = {"replicas": "num_replicas", "max_ongoing_requests": "max_ongoing_requests"}


def serve_config(options: ServiceOptions, evidence: Sequence[str] = (), port: int = 8000) -> str:
    """The file's text; the sentences of `evidence` stand in it as comments."""
    arguments: dict[str, Any] = msgspec.to_builtins(options)
    if options.hold is None:
        del arguments["hold"]
    deployment = {name: arguments.pop(field) for field, name in OF_DEPLOYMENT.items()}
    application = {
        "name": APP_NAME,
        "route_prefix": "/",
        "import_path": "service.app:build",
        "args": arguments,
        "deployments": [{"name": DEPLOYMENT_NAME, **deployment}],
    }
    config = {
        "proxy_location": "HeadOnly",
        "http_options": {"host": "127.0.0.1", "port": port, "request_timeout_s": 600},
        "applications": [application],
    }
    comments = [f"# {line}" for sentence in (*evidence, *USAGE) for line in sentence.splitlines()]
    return "\n".join([*comments, "", yaml.safe_dump(config, sort_keys=False)])


def measured_config(service: ServiceFacts, settings: Settings, evidence: str, how: str = "Measured") -> str:
    """The file for these settings on a service like the one that was measured, or that they are known of otherwise."""
    options = ServiceOptions(
        model=service.model, device=service.device, dtype=service.dtype, replicas=service.replicas, settings=settings
    )
    return serve_config(options, [evidence, f"{how} on {service.text}."])
