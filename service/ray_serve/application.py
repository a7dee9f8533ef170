"""The application on Ray Serve: started, waited for, deployed anew, and the only thing that is ever deleted."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import ray
from ray import serve
from ray.exceptions import RayError
from ray.serve import context
from ray.serve._private.client import ServeControllerClient
from ray.serve._private.common import ReplicaState
from ray.serve._private.storage.kv_store import RayInternalKVStore
from ray.serve.api import RunTarget
from ray.serve.config import HTTPOptions
from ray.serve.generated.serve_pb2 import ApplicationArgs, DeploymentArgs  # type: ignore[attr-defined]
from ray.serve.handle import DeploymentHandle
from ray.serve.schema import ApplicationStatus, ApplicationStatusOverview, LoggingConfig

from service.messages.life import LoadProgress, PortTakenError, StartError, Unit
from service.messages.options import DEPLOYMENT_NAME, REQUEST_TIMEOUT_S, ServiceOptions
from service.messages.settings import SCALE_BOUNDS, Scale
from service.ray_serve.redeployer import DeploymentSnapshot, reason_of

HUB: Final = "Hub"
POLL_S: Final = 0.1
KEEP_ALIVE_S: Final = 20  # longer than aiohttp's clients keep an idle connection, so that none is closed as it is used
TELLING_LIMIT_S: Final = 1.0
FAILED_TO_START: Final = "failed to start"
ON_HEAD_NODE: Final[Mapping[str, float]] = {"node:__internal_head__": 0.001}
"""Resources of an actor that only a cluster's head node has. WORKAROUND ray 2.60: no public name says which it is."""

_QUIET = LoggingConfig(enable_access_log=False)


def start_serve(host: str, port: int) -> None:
    """Start Ray Serve with its proxy on `port`; raises `PortTakenError` and leaves nothing if that is lost."""
    options = HTTPOptions(host=host, port=port, request_timeout_s=REQUEST_TIMEOUT_S, keep_alive_timeout_s=KEEP_ALIVE_S)
    try:
        serve.start(proxy_location="HeadOnly", http_options=options, logging_config=_QUIET)
    except (RayError, RuntimeError) as error:
        if "Failed to bind" not in str(error):
            raise
        serve.shutdown()  # type: ignore[no-untyped-call]
        raise PortTakenError(
            f"Port {port} was taken by another program just now. End that program, or name another port with --port."
        ) from error


def deploy(app: str, options: ServiceOptions, name: str, route_prefix: str) -> None:
    """Build the application with `app` ("module:function") and hand it to Serve, without waiting for it."""
    module, _, function = app.partition(":")
    application = getattr(importlib.import_module(module), function)(options)
    target = RunTarget(application, name=name, route_prefix=route_prefix, logging_config=_QUIET)
    serve.run_many([target], wait_for_ingress_deployment_creation=False, wait_for_applications_running=False)


def wait_until_running(name: str, replicas: int, report: Callable[[float, float, Unit], None]) -> None:
    """Return when all replicas of the application have loaded the model; raise `StartError` as soon as one could not.

    `report` gets how many run, and how far the model is before the first one does.
    """
    hub: DeploymentHandle[Any] | None = None
    while True:
        application = serve.status().applications.get(name)
        if application is not None:
            _raise_failure(application)
        running = _running_replicas(application, DEPLOYMENT_NAME)
        if hub is None and _running_replicas(application, HUB):
            hub = _handle_of_hub(name)
        loading = _told(hub) if hub is not None and not running else None
        report(*((loading.done, loading.total, loading.unit) if loading else (running, replicas, "replicas")))
        if application is not None and application.status == ApplicationStatus.RUNNING:
            break
        time.sleep(POLL_S)
    if hub is not None:
        hub.shutdown()  # type: ignore[no-untyped-call]


def deployed() -> Mapping[str, str]:
    """The route prefixes of all applications that Serve has, by their names."""
    applications = serve_client().get_serve_details()["applications"]
    return {name: details["route_prefix"] for name, details in applications.items()}


def delete(name: str) -> None:
    """Take this application off the cluster; whatever else runs there stays."""
    serve.delete(name)


def _handle_of_hub(application: str) -> DeploymentHandle[Any]:
    hub: DeploymentHandle[Any] = serve.get_deployment_handle(HUB, application)
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


def _running_replicas(application: ApplicationStatusOverview | None, name: str) -> int:
    deployment = application.deployments.get(name) if application is not None else None
    return deployment.replica_states.get(ReplicaState.RUNNING, 0) if deployment is not None else 0


def _raise_failure(application: ApplicationStatusOverview) -> None:
    messages = [deployment.message for deployment in application.deployments.values()]
    failures = [message for message in messages if FAILED_TO_START in message]
    if application.status == ApplicationStatus.DEPLOY_FAILED:
        failures.append(application.message)
    if failures:
        print(failures[0], file=sys.stderr)
        raise StartError(reason_of(failures[0]))


class ServeApplication:
    """One application, of whose deployments one is scaled. Every method waits for Serve's controller.

    WORKAROUND ray 2.60: publicly, an application is deployed anew only as it is built anew, from its code, or as its
    config file says. `serve.run` draws a new version for every deployment, so that all replicas are replaced and lose
    what they hold. Hence the controller is asked for what is deployed and given the same again, version and all, with
    other numbers, which it changes in the running replicas.
    """

    def __init__(self, name: str, scaled: str) -> None:
        self._name = name
        self._scaled = scaled

    def look(self) -> DeploymentSnapshot:
        """What has become of it."""
        application = serve_client().get_serve_details()["applications"][self._name]
        details = application["deployments"][self._scaled]
        states = {replica["replica_id"]: replica["state"] for replica in details["replicas"]}
        message = details["message"]
        return DeploymentSnapshot(
            wanted=_scale(details["target_num_replicas"], details["deployment_config"]["max_ongoing_requests"]),
            running=_in(states, ReplicaState.RUNNING, ReplicaState.UPDATING, ReplicaState.PENDING_MIGRATION),
            starting=_in(states, ReplicaState.STARTING, ReplicaState.RECOVERING),
            leaving=_in(states, ReplicaState.STOPPING),
            resources=details["required_resources"],
            is_autoscaled=details["deployment_config"].get("autoscaling_config") is not None,
            is_settled=application["status"] == ApplicationStatus.RUNNING,
            failure=message if FAILED_TO_START in message else None,
        )

    def deploy(self, scale: Scale, drain_timeout_s: float) -> None:
        """Have Serve bring `scale` about, with so much time for a replica that leaves to answer what it holds."""
        changes = {
            "num_replicas": scale.replicas,
            "max_ongoing_requests": scale.max_ongoing_requests,
            "graceful_shutdown_timeout_s": drain_timeout_s,
        }
        client = serve_client()
        names = client.get_serve_details()["applications"][self._name]["deployments"]
        deployments = [_again(client, self._name, name, changes if name == self._scaled else {}) for name in names]
        application = ApplicationArgs().SerializeToString()
        ray.get(client._controller.deploy_applications.remote({self._name: deployments}, {self._name: application}))

    def free_resources(self) -> Mapping[str, float]:
        """What Ray could still give to replicas."""
        free: Mapping[str, float] = ray.available_resources()  # type: ignore[no-untyped-call]
        return free

    def is_on_one_machine(self) -> bool:
        """Whether a new replica runs on this machine, for lack of another."""
        return sum(node["Alive"] for node in ray.nodes()) == 1  # type: ignore[no-untyped-call]


class ClusterStore:
    """Keeps an application's bytes in Ray's control service, as long as the cluster lives.

    WORKAROUND ray 2.60: it has no public store; this is where Serve's own controller keeps what survives it.
    """

    def __init__(self, application: str) -> None:
        self._store = RayInternalKVStore("batchscope")
        self._key = application

    def load(self) -> bytes | None:
        """What was saved last, if anything was."""
        state: bytes | None = self._store.get(self._key)
        return state

    def save(self, state: bytes) -> None:
        self._store.put(self._key, state)


def max_ongoing_requests_here() -> int:
    """The requests that Ray lets the calling replica hold.

    WORKAROUND ray 2.60: no public name gives what a Serve config file or a redeployment made of it.
    """
    return int(serve.get_replica_context()._deployment_config.max_ongoing_requests)


def serve_client() -> ServeControllerClient:
    """WORKAROUND ray 2.60: no public name gives the controller, nor the options that Serve was started with."""
    client = context._get_global_client()
    assert client is not None
    return client


def forget_controller() -> None:
    """WORKAROUND ray 2.60: a controller that has ended for good is kept in mind, and a new Serve's is never found."""
    context._disconnect()  # type: ignore[no-untyped-call]


def _again(client: ServeControllerClient, application: str, name: str, changes: Mapping[str, Any]) -> bytes:
    """The deployment as it stands, with `changes` in its config, as the controller takes it."""
    info, route = client.get_deployment_info(name, application)
    arguments = DeploymentArgs(
        deployment_name=name,
        deployment_config=info.deployment_config.model_copy(update=changes).to_proto_bytes(),
        replica_config=info.replica_config.to_proto_bytes(),
        deployer_job_id=info.deployer_job_id,
        ingress=route is not None,
        route_prefix=route,
    )
    serialized: bytes = arguments.SerializeToString()
    return serialized


def _scale(replicas: int, max_ongoing_requests: int) -> Scale:
    """What is deployed may lie beyond what can be asked for here, as no replica at all does."""
    found = {"replicas": replicas, "max_ongoing_requests": max_ongoing_requests}
    return Scale(**{name: int(SCALE_BOUNDS[name].nearest(value)) for name, value in found.items()})


def _in(states: Mapping[str, str], *wanted: ReplicaState) -> frozenset[str]:
    return frozenset(name for name, state in states.items() if state in wanted)
