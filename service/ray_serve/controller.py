"""An application on Ray Serve, looked at and deployed anew, from within one of its own replicas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import ray
from ray import serve
from ray.serve import context
from ray.serve._private.client import ServeControllerClient
from ray.serve._private.common import ReplicaState
from ray.serve.generated.serve_pb2 import ApplicationArgs, DeploymentArgs  # type: ignore[attr-defined]
from ray.serve.schema import ApplicationStatus

from service.messages.settings import Scale
from service.ray_serve.redeployer import DeploymentSnapshot

FAILED_TO_START: Final = "failed to start"


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
        application = _client().get_serve_details()["applications"][self._name]
        details = application["deployments"][self._scaled]
        states = {replica["replica_id"]: replica["state"] for replica in details["replicas"]}
        message = details["message"]
        return DeploymentSnapshot(
            wanted=Scale(
                replicas=details["target_num_replicas"],
                max_ongoing_requests=details["deployment_config"]["max_ongoing_requests"],
            ),
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
        client = _client()
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


def max_ongoing_requests_here() -> int:
    """The requests that Ray lets the calling replica hold.

    WORKAROUND ray 2.60: no public name gives what a Serve config file or a redeployment made of it.
    """
    return int(serve.get_replica_context()._deployment_config.max_ongoing_requests)


def _client() -> ServeControllerClient:
    client = context._get_global_client()
    assert client is not None
    return client


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


def _in(states: Mapping[str, str], *wanted: ReplicaState) -> frozenset[str]:
    return frozenset(name for name, state in states.items() if state in wanted)
