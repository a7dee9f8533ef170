"""The routes by which a window looks at a hub whose replicas answer no HTTP of ours."""

from __future__ import annotations

import secrets
from functools import partial
from typing import Annotated

from fastapi import FastAPI, Query, Request
from starlette.responses import Response, StreamingResponse

from service.messages.settings import LONGEST_REASON, Scale, SettingError, Settings, VersionedSettings
from service.messages.telemetry import Deployment
from service.messages.workload import WorkloadAbout
from service.ray_serve.doors import DoorRules, Doors
from service.replica.described import (
    ERROR_ANSWERS,
    EVENT,
    EVENTS,
    JSON,
    Health,
    Model,
    Models,
    described,
    json_response,
    schema_of,
)
from service.replica.errors import install_error_handlers, json_object
from service.replica.frames import telemetry_events
from service.replica.hub import Hub


def hub_api(
    hub: Hub, rules: DoorRules, *, workload: WorkloadAbout, model: Model, health: Health, redeploying: str
) -> FastAPI:
    """What the window asks a service for, but nothing that computes.

    Settings are refused where `health` says why none can be changed here, and a redeployment always: `redeploying` says
    whose affair it is.
    """
    api = FastAPI(title="Batchscope", version="1", docs_url=None, redoc_url=None, responses=ERROR_ANSWERS)
    api.add_middleware(Doors, rules=rules)
    install_error_handlers(api)

    @api.get("/batching", **described({JSON: schema_of(VersionedSettings)}))
    async def read_settings() -> Response:
        return json_response(hub.in_force)

    @api.put("/batching", **described({JSON: schema_of(VersionedSettings)}, body=schema_of(Settings)))
    async def change_settings(
        request: Request,
        reason: Annotated[str, Query(max_length=LONGEST_REASON)] = "",
        upon: Annotated[int | None, Query(ge=0)] = None,
    ) -> Response:
        changes = await json_object(request, "settings")
        hub.in_force.settings.revised(changes)
        if health.fixed:
            raise SettingError(next(iter(changes), "settings"), health.fixed)
        revised = await hub.revise(secrets.token_hex(8), changes, reason, upon)
        if isinstance(revised, SettingError):
            raise revised
        return json_response(revised)

    @api.get("/deployment", **described({JSON: schema_of(Deployment)}))
    async def read_deployment() -> Response:
        return json_response(await hub.deployment())

    @api.put("/deployment", **described({JSON: schema_of(Deployment)}, body=schema_of(Scale)))
    async def redeploy(request: Request) -> Response:
        changes = await json_object(request, "what is to be redeployed")
        raise SettingError(next(iter(changes), "replicas"), redeploying)

    @api.get("/telemetry", **described({EVENTS: EVENT}))
    async def telemetry(after: Annotated[int | None, Query(ge=0)] = None) -> Response:
        events = telemetry_events(partial(hub.frames_after, ""), after)
        return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    @api.get("/workload", **described({JSON: schema_of(WorkloadAbout)}))
    async def read_workload() -> Response:
        return json_response(workload)

    @api.get("/v1/models", **described({JSON: schema_of(Models)}))
    async def models() -> Response:
        return json_response(Models(data=[model]))

    @api.get("/health", operation_id="health")
    @api.get("/healthz")
    async def healthz() -> Response:
        await hub.check_health()
        return json_response(health)

    return api
