"""The hub of one function of an application, as an actor of Ray with a small HTTP server of its own.

The application is not touched: it serves no route more, and Serve knows nothing of the hub.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from dataclasses import replace
from functools import partial
from typing import Annotated, Final

import msgspec
import ray
import uvicorn
from fastapi import FastAPI, Query, Request
from ray.serve.exceptions import RayServeException
from starlette.responses import Response, StreamingResponse

from service.messages.options import LOOPBACK
from service.messages.settings import LONGEST_REASON, Scale, SettingError, Settings, VersionedSettings
from service.messages.telemetry import Deployment
from service.messages.workload import WorkloadAbout
from service.ray_serve.application import ClusterStore, ServeApplication
from service.ray_serve.doors import Doors, rules_from_environment
from service.ray_serve.redeployer import DeploymentSnapshot
from service.replica.background import start_for_life
from service.replica.described import ERROR_ANSWERS, EVENT, EVENTS, JSON, Health, Model, Models, described, schema_of
from service.replica.errors import error_response, install_error_handlers, json_object
from service.replica.frames import telemetry_events
from service.replica.hub import Hub, HubState
from service.replica.recorder import HubAnswer, ReplicaReport

FIRST_PORT: Final = 8266  # Ray's dashboard has the one before
LAST_PORT: Final = FIRST_PORT + 99
LOOK_S: Final = 5.0
LONELY_S: Final = 60.0
"""A hub that has had no replica for this time ends; the next one of the function goes on where it was."""

WATCHED: Final = "This function is only watched: let `batchscope.batch` decorate it to change settings here."
NOT_OURS: Final = "Is the application's own affair: change its Serve config, or its code."
ASK_THE_APPLICATION: Final = "Send requests to the application that it belongs to."

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
                    asyncio.create_task(self._end_when_lonely(self._hub)),
                ]
            return self._hub

    async def _end_when_lonely(self, hub: Hub) -> None:
        lonely_s = 0.0
        while lonely_s < LONELY_S:
            await asyncio.sleep(LOOK_S)
            lonely_s = 0.0 if hub.has_replicas else lonely_s + LOOK_S
        ray.kill(ray.get_runtime_context().current_actor)


class ProbedApplication(ServeApplication):
    """An application that its owner may delete, and Serve with it."""

    def look(self) -> DeploymentSnapshot:
        try:
            return super().look()
        except (KeyError, RayServeException):
            return NO_REPLICA


def api_of(hub: Hub, function: Function) -> FastAPI:
    """What the window asks a service for, but nothing that computes: requests go to the application itself."""
    api = FastAPI(title="Batchscope", version="1", docs_url=None, redoc_url=None, responses=ERROR_ANSWERS)
    api.add_middleware(Doors, rules=replace(rules_from_environment(), host=LOOPBACK))
    install_error_handlers(api)
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

    @api.get("/batching", **described({JSON: schema_of(VersionedSettings)}))
    async def read_settings() -> Response:
        return _json(hub.in_force)

    @api.put("/batching", **described({JSON: schema_of(VersionedSettings)}, body=schema_of(Settings)))
    async def change_settings(
        request: Request, reason: Annotated[str, Query(max_length=LONGEST_REASON)] = ""
    ) -> Response:
        changes = await json_object(request, "settings")
        hub.in_force.settings.revised(changes)
        if function.is_watched:
            raise SettingError(next(iter(changes), "settings"), WATCHED)
        revised = await hub.revise(secrets.token_hex(8), changes, reason)
        if isinstance(revised, SettingError):
            raise revised
        return _json(revised)

    @api.get("/deployment", **described({JSON: schema_of(Deployment)}))
    async def read_deployment() -> Response:
        return _json(await hub.deployment())

    @api.put("/deployment", **described({JSON: schema_of(Deployment)}, body=schema_of(Scale)))
    async def redeploy(request: Request) -> Response:
        changes = await json_object(request, "what is to be redeployed")
        raise SettingError(next(iter(changes), "replicas"), NOT_OURS)

    @api.get("/telemetry", **described({EVENTS: EVENT}))
    async def telemetry(after: Annotated[int | None, Query(ge=0)] = None) -> Response:
        events = telemetry_events(partial(hub.frames_after, ""), after)
        return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    @api.get("/workload", **described({JSON: schema_of(WorkloadAbout)}))
    async def workload() -> Response:
        return _json(about)

    @api.get("/v1/models", **described({JSON: schema_of(Models)}))
    async def models() -> Response:
        return _json(Models(data=[Model(id=function.name, owned_by=function.app, context_length=None)]))

    @api.get("/health", operation_id="health")
    @api.get("/healthz")
    async def healthz() -> Response:
        await hub.check_health()
        return _json(Health(model=function.name, device=function.device, dtype="", why_processor="", trial=None))

    @api.post("/v1/completions")
    async def completions() -> Response:
        return error_response(404, f"This address shows {function.name} and computes nothing. {ASK_THE_APPLICATION}")

    return api


def _json(value: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


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
