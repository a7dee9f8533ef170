"""How the queue of a function comes to its hub, in a replica of the application."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Coroutine
from typing import Any, Final

import ray
from ray import serve
from ray.exceptions import RayActorError
from ray.util import list_named_actors

from service.messages.settings import Settings, VersionedSettings
from service.probe.hub import Function, ProbeHub
from service.probe.observed import UNITS, Observed, device_in_use
from service.ray_serve.application import ON_HEAD_NODE
from service.ray_serve.batch_queue import OpenQueue
from service.replica.hub_link import HubLink
from service.replica.recorder import HubAnswer, ReplicaReport

logger = logging.getLogger("ray.serve")  # Serve shows it: https://docs.ray.io/en/latest/serve/monitoring.html

NAMESPACE: Final = "batchscope"
RETRY_S: Final = 5.0
MOST_CALLS: Final = 10_000  # of all replicas at a time, each of which waits in `follow`

_tasks: set[asyncio.Task[Any]] = set()  # which nothing else would hold


def listen(queue: OpenQueue) -> None:
    """Have the hub of the queue's function hear of it, from soon on. No request waits for that.

    Without a cluster, as in a unit test of the application, nobody listens.
    """
    if ray.is_initialized() and queue.function is not None:
        _go(_keep_in_step(queue))


def urls() -> dict[str, str]:
    """Of each probed function of this cluster, as ``app/deployment/function``, the address for `batchscope --url`.

    A function is probed from its first call on. Needs a Ray that is initialized.
    """
    names = [each["name"] for each in list_named_actors(all_namespaces=True) if each["namespace"] == NAMESPACE]
    return dict(zip(names, ray.get([ray.get_actor(name, NAMESPACE).url.remote() for name in names]), strict=True))


async def _keep_in_step(queue: OpenQueue) -> None:
    """Find the hub, or start it, and report to it as long as the replica lives."""
    function = _function_of(queue)
    hub = HubByRay(function, queue.settings)
    while True:
        try:
            url = await hub.connect()
            replica, in_force = await hub.register(serve.get_replica_context().replica_id.unique_id, queue.settings)
            break
        except Exception as error:  # of Ray's; the application goes on without telemetry
            logger.warning("Batchscope does not reach the hub of %s yet: %s", function.key, error)
            await asyncio.sleep(RETRY_S)
    observed = Observed(function.name, replica, queue, in_force, lambda settings: _go(hub.tune(settings)))
    logger.info("Batchscope shows %s: batchscope --url %s", function.key, url)
    link = HubLink(observed, hub, observed.status)
    await asyncio.gather(link.follow_settings(), link.report_news())


class HubByRay:
    """Calls of the hub by a replica. Where the hub's process has ended, the call fails and the next one starts it."""

    def __init__(self, function: Function, declared: Settings) -> None:
        self._function = function
        self._declared = declared
        self._actor: Any = None

    async def connect(self) -> str:
        """Returns the hub's address."""
        self._actor = await asyncio.to_thread(_started, self._function, self._declared)
        url: str = await self._call("url")
        return url

    async def register(self, replica: str, declared: Settings) -> tuple[str, VersionedSettings]:
        named: tuple[str, VersionedSettings] = await self._call("register", replica, declared)
        return named

    async def tune(self, settings: Settings) -> None:
        await self._call("tune", settings)

    async def follow(self, name: str, held: VersionedSettings) -> VersionedSettings:
        in_force: VersionedSettings = await self._call("follow", name, held)
        return in_force

    async def report(self, report: ReplicaReport) -> HubAnswer:
        answer: HubAnswer = await self._call("report", report)
        return answer

    async def _call(self, method: str, *arguments: Any) -> Any:
        try:
            return await getattr(self._actor, method).remote(*arguments)
        except RayActorError:
            self._actor = await asyncio.to_thread(_started, self._function, self._declared)
            raise


def _started(function: Function, declared: Settings) -> Any:
    """The hub's actor, which outlives the replica that starts it; ends by itself when there is no replica any more."""
    options = {
        "name": function.key,
        "namespace": NAMESPACE,
        "lifetime": "detached",
        "get_if_exists": True,
        "max_restarts": -1,
        "max_concurrency": MOST_CALLS,
        "num_cpus": 0,
        "resources": ON_HEAD_NODE,
    }
    return ray.remote(ProbeHub).options(**options).remote(function, declared)


def _function_of(queue: OpenQueue) -> Function:
    context, function = serve.get_replica_context(), queue.function
    assert function is not None
    return Function(
        app=context.app_name,
        deployment=context.deployment,
        name=function.__qualname__.rpartition("<locals>.")[2],
        description=(inspect.getdoc(function) or "").partition("\n")[0],
        unit=UNITS[inspect.isasyncgenfunction(function)],
        device=device_in_use(),
        is_watched=queue.is_watched,
    )


def _go(work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.get_running_loop().create_task(work)
    _tasks.add(task)
    task.add_done_callback(_on_end)


def _on_end(task: asyncio.Task[None]) -> None:
    _tasks.discard(task)
    if not task.cancelled() and task.exception() is not None:
        logger.warning("Batchscope's telemetry is incomplete", exc_info=task.exception())
