"""The hub of one function of an application, as an actor of Ray with a small HTTP server of its own.

The application is not touched: it serves no route more, and Serve knows nothing of the hub.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from dataclasses import replace
from typing import Final

import msgspec
import ray
import uvicorn
from fastapi import FastAPI
from ray.exceptions import ActorDiedError
from ray.serve.exceptions import RayServeException
from starlette.responses import Response

from service.messages.options import LOOPBACK
from service.messages.settings import Scale, Settings, VersionedSettings
from service.messages.workload import WorkloadAbout
from service.ray_serve.application import ClusterStore, ServeApplication, forget_controller
from service.ray_serve.doors import rules_from_environment
from service.ray_serve.redeployer import DeploymentSnapshot
from service.replica.background import start_for_life
from service.replica.described import Health, Model
from service.replica.errors import error_response
from service.replica.hub import Hub, HubState
from service.replica.hub_routes import hub_api
from service.replica.recorder import HubAnswer, ReplicaReport

logger = logging.getLogger("ray.serve")

FIRST_PORT: Final = 8266  # Ray's dashboard has the one before
LAST_PORT: Final = FIRST_PORT + 99
LOOK_S: Final = 1.0  # Serve takes 2 s to stop a replica, by default
LONELY_S: Final = 60.0
"""A hub that has had no replica for this time ends; the next one of the function goes on where it was."""

WATCHED: Final = "This function is only watched: let `batchscope.batch` decorate it to change settings here."
NOT_OURS: Final = "Is the application's own affair: change its Serve config, or its code."
CLOSED: Final = "Requests go to the application: it is looked at here, and not asked."

NO_REPLICA: Final = DeploymentSnapshot(
    wanted=Scale(),
    running=frozenset(),
    starting=frozenset(),
    leaving=frozenset(),
    resources={},
    is_autoscaled=False,
    is_settled=True,
)


class Function(msgspec.Struct, frozen=True, kw_only=True):
    """A decorated function of a deployment.

    Attributes:
        name: qualified, as `BatchAdder.handle_batch`.
        description: the first line of its docstring.
        unit: what it gives to a request, in the plural.
        device: where the application computes, in torch's name.
        is_watched: Ray's own decorator forms its batches, and nothing is changed.
    """

    app: str
    deployment: str
    name: str
    description: str
    unit: str
    device: str
    is_watched: bool

    @property
    def key(self) -> str:
        """Its name in the cluster."""
        return f"{self.app}/{self.deployment}/{self.name}"


class ProbeHub:
    """What replicas of the function's deployment call; a hub that Ray starts anew goes on where the one before was."""

    def __init__(self, function: Function, declared: Settings) -> None:
        """`declared`: the settings that the application's code asks for."""
        self._function = function
        self._declared = declared
        self._hub: Hub | None = None
        self._url = ""
        self._starting = asyncio.Lock()

    async def url(self) -> str:
        """Where `batchscope --url` finds it."""
        await self._started()
        return self._url

    async def register(self, replica: str, declared: Settings) -> tuple[str, VersionedSettings]:
        """See `Hub.register`. Settings that the code of a newer replica asks for take the place of all before."""
        hub = await self._started()
        if declared != self._declared:
            self._declared = declared
            await hub.revise(secrets.token_hex(8), msgspec.structs.asdict(declared), "the application's code")
        return await hub.register(replica)

    async def tune(self, settings: Settings) -> None:
        """A setter was called in a replica, which has these settings now."""
        hub = await self._started()
        await hub.revise(secrets.token_hex(8), msgspec.structs.asdict(settings), "a setter in the application")

    async def follow(self, name: str, held: VersionedSettings) -> VersionedSettings:
        return await (await self._started()).follow(name, held)

    async def report(self, report: ReplicaReport) -> HubAnswer:
        return await (await self._started()).report(report)

    async def _started(self) -> Hub:
        """The hub, which needs the event loop that an actor's constructor does not have."""
        async with self._starting:
            if self._hub is None:
                function = self._function
                store = ClusterStore(f"probe/{function.key}")
                kept = await asyncio.to_thread(store.load)
                service = secrets.token_hex(8) if kept is None else msgspec.json.decode(kept, type=HubState).service
                application = ProbedApplication(function.app, function.deployment)
                self._hub = Hub(self._declared, application, store, service)
                server = uvicorn.Server(uvicorn.Config(api_of(self._hub, function), log_config=None, lifespan="off"))
                door = _listening()
                self._url = f"http://{LOOPBACK}:{door.getsockname()[1]}"
                self._tasks = [
                    start_for_life(server.serve(sockets=[door]), "Serving telemetry"),
                    asyncio.create_task(self._look_on(self._hub)),
                ]
            return self._hub

    async def _look_on(self, hub: Hub) -> None:
        """See which replicas Serve stops, since they do not say so; and end when there are none any more."""
        lonely_s = 0.0
        while lonely_s < LONELY_S:
            await asyncio.sleep(LOOK_S)
            try:
                await hub.note_stopping()
            except Exception as error:  # of Ray's, whose controller may be starting anew
                logger.warning("Serve does not say which replicas it stops: %s", error)
            lonely_s = 0.0 if hub.has_replicas else lonely_s + LOOK_S
        ray.kill(ray.get_runtime_context().current_actor)


class ProbedApplication(ServeApplication):
    """An application that its owner may delete, and Serve with it."""

    def look(self) -> DeploymentSnapshot:
        try:
            return super().look()
        except ActorDiedError:  # Serve has been shut down; where its controller only starts anew, this is not raised
            forget_controller()
        except (KeyError, RayServeException):
            pass
        return NO_REPLICA


def api_of(hub: Hub, function: Function) -> FastAPI:
    """What the window asks a service for; requests go to the application itself."""
    about = WorkloadAbout(
        name=function.name,
        description=function.description,
        unit=function.unit,
        examples=(),
        query="",
        inputs="",
        outputs="",
        streams=function.unit == "pieces",
    )
    api = hub_api(
        hub,
        replace(rules_from_environment(), host=LOOPBACK),
        workload=about,
        model=Model(id=function.name, owned_by=function.app, context_length=None),
        health=Health(
            model=function.name,
            device=function.device,
            dtype="",
            fixed=WATCHED if function.is_watched else "",
            closed=CLOSED,
        ),
        redeploying=NOT_OURS,
    )

    @api.post("/v1/completions")
    async def completions() -> Response:
        return error_response(404, f"This address shows {function.name} and computes nothing. {CLOSED}")

    return api


def _listening() -> socket.socket:
    """A socket that listens on the first free port of ours, or else on any."""
    for port in (*range(FIRST_PORT, LAST_PORT + 1), 0):
        door = socket.socket()
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # so that a hub's next life has the same port
        try:
            door.bind((LOOPBACK, port))
            door.listen()  # from now on nobody is refused
        except OSError:
            door.close()
        else:
            return door
    raise OSError(f"{LOOPBACK} has no free port")
