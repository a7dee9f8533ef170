"""The application on Ray Serve: started, waited for, and the only thing that is ever deleted."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from ray import serve
from ray.exceptions import RayError
from ray.serve._private.common import ReplicaState
from ray.serve.api import RunTarget
from ray.serve.config import HTTPOptions
from ray.serve.handle import DeploymentHandle
from ray.serve.schema import ApplicationStatus, LoggingConfig, ServeStatus

from service.messages.life import LoadProgress, PortTakenError, StartError, Unit
from service.messages.options import APP_NAME, DEPLOYMENT_NAME, REQUEST_TIMEOUT_S, ServiceOptions
from service.ray_serve.redeployer import reason_of

HUB: Final = "Hub"
POLL_S: Final = 0.1
TELLING_LIMIT_S: Final = 1.0

_QUIET = LoggingConfig(enable_access_log=False)


def start_serve(host: str, port: int) -> None:
    """Start Ray Serve with its proxy on `port`; raises `PortTakenError` and leaves nothing if that is lost."""
    options = HTTPOptions(host=host, port=port, request_timeout_s=REQUEST_TIMEOUT_S)
    try:
        serve.start(proxy_location="HeadOnly", http_options=options, logging_config=_QUIET)
    except (RayError, RuntimeError) as error:
        if "Failed to bind" not in str(error):
            raise
        serve.shutdown()  # type: ignore[no-untyped-call]
        raise PortTakenError(
            f"Port {port} was taken by another program just now. End that program, or name another port with --port."
        ) from error


def deploy(app: str, options: ServiceOptions) -> None:
    """Build the application with `app` ("module:function") and hand it to Serve, without waiting for it."""
    module, _, function = app.partition(":")
    application = getattr(importlib.import_module(module), function)(options)
    target = RunTarget(application, name=APP_NAME, route_prefix="/", logging_config=_QUIET)
    serve.run_many([target], wait_for_ingress_deployment_creation=False, wait_for_applications_running=False)


def wait_until_running(replicas: int, report: Callable[[float, float, Unit], None]) -> None:
    """Return when all replicas have loaded the model; raise `StartError` as soon as one could not.

    `report` gets how many run, and how far the model is before the first one does.
    """
    hub: DeploymentHandle[Any] | None = None
    while True:
        status = serve.status()
        _raise_failure(status)
        running = _running_replicas(status, DEPLOYMENT_NAME)
        if hub is None and _running_replicas(status, HUB):
            hub = _handle_of_hub()
        loading = _told(hub) if hub is not None and not running else None
        report(*((loading.done, loading.total, loading.unit) if loading else (running, replicas, "replicas")))
        application = status.applications.get(APP_NAME)
        if application is not None and application.status == ApplicationStatus.RUNNING:
            break
        time.sleep(POLL_S)
    if hub is not None:
        hub.shutdown()  # type: ignore[no-untyped-call]


def is_deployed() -> bool:
    return APP_NAME in serve.status().applications


def delete() -> None:
    """Take our application off the cluster; whatever else runs there stays."""
    serve.delete(APP_NAME)


def _handle_of_hub() -> DeploymentHandle[Any]:
    hub: DeploymentHandle[Any] = serve.get_deployment_handle(HUB, APP_NAME)
    # WORKAROUND ray 2.60: `environment` has replicas route in the loop they have, and here is none; by no public name
    # can one handle get another option.
    hub._init(_run_router_in_separate_loop=True)  # type: ignore[no-untyped-call]
    return hub


def _told(hub: DeploymentHandle[Any]) -> LoadProgress | None:
    """How far the model is, as replicas reported to their hub; ``None`` without a report, or without an answer."""
    try:
        progress: LoadProgress | None = hub.loading.remote().result(timeout_s=TELLING_LIMIT_S)
    except (RayError, TimeoutError):
        return None
    return progress


def _running_replicas(status: ServeStatus, name: str) -> int:
    application = status.applications.get(APP_NAME)
    deployment = application.deployments.get(name) if application is not None else None
    return deployment.replica_states.get(ReplicaState.RUNNING, 0) if deployment is not None else 0


def _raise_failure(status: ServeStatus) -> None:
    application = status.applications.get(APP_NAME)
    if application is None:
        return
    messages = [deployment.message for deployment in application.deployments.values()]
    failures = [message for message in messages if "failed to start" in message]
    if application.status == ApplicationStatus.DEPLOY_FAILED:
        failures.append(application.message)
    if failures:
        print(failures[0], file=sys.stderr)
        raise StartError(reason_of(failures[0]))
