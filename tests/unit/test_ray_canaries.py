"""Canaries for what `service/ray_serve` uses of Ray beyond its documented API.

Each fails when a release of Ray changes that part, and says in one sentence what to look at.
"""

from __future__ import annotations

import inspect
import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray
from ray import serve
from ray._common.constants import HEAD_NODE_RESOURCE_NAME
from ray._private import services
from ray._private.node import Node
from ray.job_config import JobConfig
from ray.serve import batching, context
from ray.serve._private import http_util
from ray.serve._private import replica as serve_replica
from ray.serve._private.client import ServeControllerClient
from ray.serve._private.common import ReplicaState, StreamingHTTPRequest
from ray.serve._private.storage.kv_store import RayInternalKVStore
from ray.serve.context import ReplicaContext
from ray.serve.generated.serve_pb2 import ApplicationArgs, DeploymentArgs
from ray.serve.handle import DeploymentHandle, _DeploymentResponseBase
from uvicorn.config import HTTP_PROTOCOLS
from uvicorn.protocols.http import auto
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.ray_serve.application import ON_HEAD_NODE
from service.ray_serve.environment import LOCAL_RAY, QUIET

RAY = Path(ray.__file__).parent
READ_BY_THE_CORE = "RAY_"  # the core reads RAY_name as the config entry `name`


def parameters(function: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(function).parameters)


def test_the_function_that_shares_the_proxys_port() -> None:
    assert parameters(http_util.set_socket_reuse_port) == ["sock"], (
        "See how ray.serve._private.http_util binds the proxy's socket, and patches.middlewares, which replaces it."
    )


def test_the_protocol_that_uvicorn_takes_where_none_is_named() -> None:
    assert HTTP_PROTOCOLS["auto"] == "uvicorn.protocols.http.auto:AutoHTTPProtocol"
    assert auto.AutoHTTPProtocol is HttpToolsProtocol
    assert "http=" not in inspect.getsource(http_util.start_asgi_http_server), (
        "See with which protocol ray.serve._private.http_util starts uvicorn, and patches.HeadsInTime."
    )


def test_the_function_that_opens_a_replicas_grpc_port() -> None:
    assert parameters(serve_replica.add_port_to_grpc_server) == ["server", "address"], (
        "See where ray.serve._private.replica listens, and patches.keep_replica_on_loopback, which keeps it local."
    )


def test_the_property_through_which_a_replica_asks_for_a_body() -> None:
    assert isinstance(StreamingHTTPRequest.__dict__.get("receive_asgi_messages"), property), (
        "See how ray.serve._private.common.StreamingHTTPRequest gets a body, and patches.take_bodies_from_scopes."
    )
    assert "_receive_asgi_messages" in inspect.getsource(StreamingHTTPRequest), (
        "See where StreamingHTTPRequest keeps the function that receives messages: patches sets it."
    )


def test_the_method_by_which_a_call_is_cancelled() -> None:
    where = "See how ray.serve.handle cancels a call, and patches.cancel_what_is_assigned."
    assert parameters(_DeploymentResponseBase.cancel) == ["self"], where
    assert "self._replica_result_future" in inspect.getsource(_DeploymentResponseBase), where
    assert "self._replica_result " in inspect.getsource(_DeploymentResponseBase), where


def test_the_store_of_serves_controller() -> None:
    methods = (RayInternalKVStore.__init__, RayInternalKVStore.get, RayInternalKVStore.put)
    assert [parameters(each) for each in methods] == [
        ["self", "namespace", "gcs_client"],
        ["self", "key"],
        ["self", "key", "val"],
    ], "See where Serve's controller keeps its checkpoints, and application.ClusterStore, which keeps the hub's there."


def test_what_the_controllers_client_answers() -> None:
    names = (context._get_global_client, context._disconnect)
    assert all(map(callable, names)), "See ray.serve.context for the client that application.py asks, and forgets."
    assert parameters(ServeControllerClient.get_serve_details) == ["self"], "See application.ServeApplication.look."
    assert parameters(ServeControllerClient.get_deployment_info) == ["self", "name", "app_name"], (
        "See application._again, which reads a deployment in order to deploy it again."
    )
    assert "self._controller" in inspect.getsource(ServeControllerClient), (
        "See application.ServeApplication.deploy, which calls deploy_applications on the client's controller."
    )


def test_the_messages_by_which_an_application_is_deployed_again() -> None:
    wanted = {
        "deployment_name",
        "deployment_config",
        "replica_config",
        "deployer_job_id",
        "route_prefix",
        "ingress",
        "docs_path",
        "ingress_request_router",
        "uses_multiplexing",
    }
    assert set(DeploymentArgs.DESCRIPTOR.fields_by_name) == wanted, (
        "See serve.proto for the new field, and whether controller._again has to carry it over."
    )
    assert set(ApplicationArgs.DESCRIPTOR.fields_by_name) == {"external_scaler_enabled"}, (
        "See serve.proto: application.ServeApplication.deploy sends the application's defaults."
    )


def test_the_states_of_a_replica() -> None:
    states = "STARTING UPDATING RECOVERING RUNNING STOPPING STOPPED PENDING_MIGRATION"
    assert {state.name for state in ReplicaState} == set(states.split()), (
        "See application.ServeApplication.look, which sorts live replicas into running, starting and leaving."
    )


def test_the_method_that_keeps_the_current_folder_from_workers() -> None:
    assert parameters(JobConfig._runtime_env_has_working_dir) == ["self"], (
        "See ray.job_config, and clusters.OwnPackagesFirst, which overrides this method."
    )
    assert "_runtime_env_has_working_dir" in (RAY / "_private" / "worker.py").read_text(), (
        "See where Ray puts the driver's folder into its workers' sys.path, and clusters.OwnPackagesFirst."
    )


def test_how_a_raylet_learns_of_its_agents() -> None:
    where = "See ray._private.services.start_raylet, and clusters.essential_processes, which changes its command."
    source = inspect.getsource(services.start_raylet)
    own = ("--metrics-agent-port=", "--metrics_export_port=", "--runtime_env_agent_port=")
    of_agents = ("--dashboard_agent_command=", "--runtime_env_agent_command=", "--runtime-env-agent-port=")
    assert [word for word in (*own, *of_agents, " start_ray_process(") if word not in source] == [], where
    assert _is_in(Path(services.RAYLET_EXECUTABLE), "dashboard_agent_listen_port"), where


def test_the_methods_that_start_what_is_left_out() -> None:
    where = "See ray._private.node.Node.start_head_processes, and clusters.essential_processes."
    source = inspect.getsource(Node.start_head_processes)
    assert [word for word in ("self.start_monitor()", "self.start_api_server(") if word not in source] == [], where


def test_where_a_replica_finds_its_config() -> None:
    assert "_deployment_config" in ReplicaContext.__dataclass_fields__, "See application.max_ongoing_requests_here."


OF_THE_QUEUE = "See how ray.serve.batching forms batches, and service/ray_serve/batch_queue.py, which overrides it."


def test_the_methods_of_the_queue_of_a_decorated_function() -> None:
    options = ["max_batch_size", "batch_wait_timeout_s", "max_concurrent_batches", "handle_batch_func", "batch_size_fn"]
    assert parameters(batching._BatchQueue.__init__) == ["self", *options], OF_THE_QUEUE
    assert {
        name: parameters(getattr(batching._BatchQueue, name))
        for name in (
            "put",
            "wait_for_batch",
            "_compute_batch_size",
            "_split_batch_by_model_id",
            "_process_sub_batches",
            "_process_batch_inner",
            "_handle_completed_task",
        )
    } == {
        "put": ["self", "request"],
        "wait_for_batch": ["self"],
        "_compute_batch_size": ["self", "batch"],
        "_split_batch_by_model_id": ["self", "batch"],
        "_process_sub_batches": ["self", "func", "sub_batches"],
        "_process_batch_inner": ["self", "func", "batch"],
        "_handle_completed_task": ["self", "task"],
    }, OF_THE_QUEUE


def test_the_attributes_of_the_queue_of_a_decorated_function() -> None:
    source = inspect.getsource(batching._BatchQueue)
    names = ("queue", "semaphore", "tasks", "curr_iteration_start_times", "max_concurrent_batches", "_loop")
    more = ("_function_name", "_batch_queue_length_gauge", "_batch_wait_time_histogram", "batch_wait_timeout_s")
    assert [name for name in (*names, *more) if f"self.{name}" not in source] == [], OF_THE_QUEUE


def test_that_ray_waits_for_the_first_request_of_a_batch_alone_and_then_reads_the_settings() -> None:
    waiting = inspect.getsource(batching._BatchQueue.wait_for_batch)
    assert waiting.count(".queue.get()") == 1, OF_THE_QUEUE
    first, settings = waiting.index(".queue.get()"), waiting.index("max_batch_size = self.max_batch_size")
    assert "await" not in waiting[first + len(".queue.get()") : settings], OF_THE_QUEUE


def test_that_a_batch_that_is_sealed_is_divided_by_models_before_ray_awaits_anything() -> None:
    forming = inspect.getsource(batching._BatchQueue._process_batches)
    sealed, divided = forming.index("await self.wait_for_batch()"), forming.index("self._split_batch_by_model_id(")
    assert "await" not in forming[sealed + len("await self.wait_for_batch()") : divided], OF_THE_QUEUE


def test_what_a_request_and_a_piece_of_a_stream_hold() -> None:
    assert {"flattened_args", "future", "request_context"} <= set(batching._SingleRequest.__dataclass_fields__)
    assert set(batching._GeneratorResult.__dataclass_fields__) == {"result", "next_future"}, OF_THE_QUEUE


def test_what_the_setters_of_a_decorated_function_belong_to() -> None:
    @serve.batch
    async def function(items: list[int]) -> list[int]:
        return items

    wrapper = function.set_max_batch_size.__self__  # type: ignore[attr-defined]
    assert type(wrapper) is batching._LazyBatchQueueWrapper, (
        "See what serve.batch keeps of a function, and batch_queue.open_queue_of, which exchanges its class."
    )
    assert "_BatchQueue(" in inspect.getsource(batching._LazyBatchQueueWrapper.queue.fget), (
        "See where a function's queue is made, and batch_queue.OpenWrapper, which makes another one."
    )
    assert "_LazyBatchQueueWrapper(" in inspect.getsource(batching.batch), (
        "See what serve.batch makes for a function, and batch_queue.watch_queues, which exchanges that."
    )


def test_the_resource_of_the_head_node() -> None:
    assert list(ON_HEAD_NODE) == [HEAD_NODE_RESOURCE_NAME], "See how Ray marks the head node, and application.py."


def test_the_option_that_gives_a_handle_a_loop_of_its_own() -> None:
    assert callable(DeploymentHandle._init), "See application._handle_of_hub, which starts a handle's router."
    assert any("_run_router_in_separate_loop" in file.read_text() for file in (RAY / "serve").rglob("*.py")), (
        "See ray.serve._private.handle_options for the option that application._handle_of_hub sets."
    )


@pytest.mark.parametrize("variable", [*QUIET, *LOCAL_RAY])
def test_an_environment_variable_that_ray_reads(variable: str) -> None:
    assert _python_names(variable) or _core_names(variable.removeprefix(READ_BY_THE_CORE)), (
        f"Ray no longer reads {variable}: see what replaces it, and service/ray_serve/environment.py."
    )


def _python_names(variable: str) -> bool:
    folders = (RAY / "serve", RAY / "_private", RAY / "_common")
    return any(variable in file.read_text(errors="ignore") for folder in folders for file in folder.rglob("*.py"))


def _core_names(entry: str) -> bool:
    return _is_in(RAY / "_raylet.so", entry)


def _is_in(program: Path, text: str) -> bool:
    with program.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(text.encode()) >= 0
