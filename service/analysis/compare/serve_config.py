"""A Ray Serve config file with chosen settings, which `serve run` and `serve deploy` accept as it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import yaml

from service.analysis.compare.comparison import ServiceFacts
from service.messages.options import ALLOW_VARIABLE, APP_NAME, DEPLOYMENT_NAME, ServiceOptions
from service.messages.settings import Settings
from service.messages.text import UserError

USAGE: Final = (
    "serve run FILE starts it on this machine; serve deploy FILE sends it to a Ray cluster.",
    "Either needs this project installed where Ray runs.",
    "serve deploy removes applications that this file does not name: deploy-config --merge FILE keeps those of FILE.",
)
OF_DEPLOYMENT: Final = {"replicas": "num_replicas", "max_ongoing_requests": "max_ongoing_requests"}


@dataclass(frozen=True)
class Place:
    """Where the application stands on its cluster, and by which further names clients may call it."""

    name: str = APP_NAME
    route_prefix: str = "/"
    allow_hosts: tuple[str, ...] = ()


EVERYTHING: Final = Place()


def serve_config(
    options: ServiceOptions, evidence: Sequence[str] = (), port: int = 8000, place: Place = EVERYTHING
) -> str:
    """The file's text; the sentences of `evidence` stand in it as comments."""
    arguments: dict[str, Any] = msgspec.to_builtins(options)
    if options.hold is None:
        del arguments["hold"]
    deployment = {name: arguments.pop(field) for field, name in OF_DEPLOYMENT.items()}
    application = {
        "name": place.name,
        "route_prefix": place.route_prefix,
        "import_path": "service.app:build",
        **({"runtime_env": {"env_vars": {ALLOW_VARIABLE: ",".join(place.allow_hosts)}}} if place.allow_hosts else {}),
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


def merged(config: str, others: str) -> str:
    """`config` with the applications, and the options of the cluster, of the file `others`; comments are of `config`.

    An application of the same name is replaced. Raises `UserError` where `others` is no config file of Serve, or gives
    the place of this application to another.
    """
    try:
        kept = yaml.safe_load(others)
        applications = [dict(each) for each in kept["applications"]]
    except (yaml.YAMLError, KeyError, TypeError, ValueError) as error:
        raise UserError("What is to be merged is no Serve config file: it has no list of applications.") from error
    own = yaml.safe_load(config)
    (application,) = own["applications"]
    applications = [each for each in applications if each.get("name") != application["name"]]
    taken = next((each for each in applications if each.get("route_prefix", "/") == application["route_prefix"]), None)
    if taken is not None:
        raise UserError(
            f"The application {taken.get('name', 'default')} is at {application['route_prefix']} already. Give this "
            "one another place with --route-prefix, such as /batchscope."
        )
    comments = [line for line in config.splitlines() if line.startswith("#")]
    whole = {**own, **kept, "applications": [*applications, application]}
    return "\n".join([*comments, "", yaml.safe_dump(whole, sort_keys=False)])


def measured_config(
    service: ServiceFacts,
    settings: Settings,
    evidence: str,
    how: str = "Measured",
    place: Place = EVERYTHING,
) -> str:
    """The file for these settings on a service like the one that was measured, or that they are known of otherwise."""
    options = ServiceOptions(
        model=service.model, device=service.device, dtype=service.dtype, replicas=service.replicas, settings=settings
    )
    return serve_config(options, [evidence, f"{how} on {service.text}."], place=place)
