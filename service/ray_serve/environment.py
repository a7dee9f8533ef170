"""The driver's environment: all that must be set before Ray is imported, because its other processes inherit it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from service.messages.options import ALLOW_VARIABLE, RunOptions, read_token
from service.ray_serve.doors import HOST_VARIABLE, INSTANCE_VARIABLE, PLACE_VARIABLE, TOKEN_VARIABLE, digest

METRICS_VARIABLE: Final = "RAY_enable_metrics_collection"

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0", "RAY_COLOR_PREFIX": "0"}

LOCAL_RAY = {
    # Ray makes its workers nice by 15, the proxy among them, and so would put them behind the engine's own thread.
    "RAY_worker_niceness": "0",
    # Off, Ray listens on loopback only (with 2.60 on Linux too, in spite of the name).
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "service.ray_serve.patches:middlewares",
    # On, it calls the function that `service.ray_serve.patches` replaces by one that does not share the port.
    "SERVE_SOCKET_REUSE_PORT_ENABLED": "1",
    # What Ray itself computes, the model lacks. A request costs the proxy about half as much so, and so does telemetry,
    "RAY_SERVE_PROXY_USE_GRPC": "1",
    "RAY_SERVE_USE_GRPC_BY_DEFAULT": "1",
    # each chunk one thread less (what runs in the replica's loop never blocks it),
    "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
    "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0",
    # and unread metrics are exported ten times less often, and the controller's rounds three times.
    "RAY_SERVE_METRICS_EXPORT_INTERVAL_MS": "5000",
    "RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "0.3",
    # A proxy that takes longer to start than 5 s is killed, and with it the start, as on a machine that is busy.
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
    # One that has died is replaced after the third look, and no request enters until then.
    "RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S": "1",
    # Otherwise Ray starts a worker for each processor in advance: as many as there may be replicas.
    "RAY_prestart_worker_first_driver": "0",
    # These are unread too; without them Ray takes 6 % of a core at rest, and not 9 %.
    "RAY_event_stats": "0",
    METRICS_VARIABLE: "0",
    "RAY_task_events_report_interval_ms": "0",
    # These open ports past the doors.
    "RAY_SERVE_ENABLE_HA_PROXY": "0",
    "RAY_SERVE_ENABLE_DIRECT_INGRESS": "0",
    "RAY_SERVE_THROUGHPUT_OPTIMIZED": "0",
}


def driver_environment(options: RunOptions, instance: str, inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """`inherited` with Ray's settings and what the doors need to know."""
    environment = {**inherited, **QUIET}
    # gRPC would send even what goes to this machine through a proxy of the user's.
    unproxied = inherited.get("no_proxy", inherited.get("NO_PROXY"))
    environment["no_proxy"] = f"127.0.0.1,localhost,{unproxied}" if unproxied else "127.0.0.1,localhost"
    if options.address is None:
        environment.pop("RAY_ADDRESS", None)
        environment |= LOCAL_RAY | door_variables(options, instance, place="proxy")
    return environment


def door_variables(options: RunOptions, instance: str, *, place: str) -> dict[str, str]:
    """What `service.ray_serve.doors` reads; `place` says where the doors stand, in Serve's `proxy` or in the `app`."""
    variables = {PLACE_VARIABLE: place, HOST_VARIABLE: options.host, INSTANCE_VARIABLE: instance}
    if options.allow_hosts:
        variables[ALLOW_VARIABLE] = ",".join(options.allow_hosts)
    if options.token_file is not None:
        variables[TOKEN_VARIABLE] = digest(read_token(options.token_file).encode())
    return variables


def has_ray_metrics(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this Ray collects metrics: each does but the one that is started here.

    >>> has_ray_metrics({}), has_ray_metrics(LOCAL_RAY)
    (True, False)
    """
    return environment.get(METRICS_VARIABLE) != "0"
