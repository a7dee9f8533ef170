"""A stand-in for the generator, for tests of the processes around it: it starts at once and answers without a model."""

# No `from __future__ import annotations`: Serve pickles the class, and FastAPI then cannot look the names up.
import asyncio
import os
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec
from fastapi import FastAPI, Request
from ray import serve
from ray.serve import Application, Deployment
from ray.serve.handle import DeploymentHandle

from service.engine.model.report import ModelError
from service.messages.life import LoadProgress
from service.messages.options import ServiceOptions
from service.messages.workload import TEXT
from service.ray_serve.doors import doors_from_environment
from service.ray_serve.patches import keep_replica_on_loopback
from service.replica.background import LoadingNews
from service.replica.deployment import HubDeployment

REFUSED_DTYPE = "refused"
GRADUAL_DTYPE = "gradual"
GATE = "BATCHSCOPE_TEST_GATE"
"""Names the pipe from which a replica of the gradual dtype reads before it is loaded."""

PROGRESS = LoadProgress("graphs", 7, 32)

api = FastAPI()
api.add_middleware(cast(Any, doors_from_environment))


@serve.deployment(name="BatchTextGenerator", ray_actor_options={"num_cpus": 0.1})
@serve.ingress(api)
class StandIn:
    """Answers what the driver asks of every application; one dtype it refuses, with another it loads gradually."""

    async def __init__(  # type: ignore[misc]  # Serve awaits it
        self, options: ServiceOptions, hub: DeploymentHandle[Any] | None
    ) -> None:
        keep_replica_on_loopback()
        if options.dtype == REFUSED_DTYPE:
            raise ModelError("This dtype is refused: choose another one.")
        if hub is not None:
            news = LoadingNews(partial(hub.note_loading.remote, "stand-in"))
            news.note(PROGRESS)
            sending = asyncio.create_task(news.send_on())
            await asyncio.to_thread(Path(os.environ[GATE]).read_bytes)
            sending.cancel()

    @api.post("/v1/completions")
    async def complete(self, request: Request) -> dict[str, int]:
        return {"received_bytes": len(await request.body())}

    @api.get("/v1/models")
    async def models(self) -> dict[str, Any]:
        return {"data": [{"id": "stand-in", "context_length": 128}]}

    @api.get("/workload")
    async def workload(self) -> dict[str, Any]:
        return msgspec.to_builtins(TEXT)

    @api.get("/healthz")
    async def healthz(self) -> dict[str, str]:
        return {"model": "stand-in", "device": "cpu", "dtype": "float32", "why_processor": ""}


def build(options: ServiceOptions) -> Application:
    hub = cast(Deployment, HubDeployment).bind(options.settings, "stand-in") if options.dtype == GRADUAL_DTYPE else None
    return cast(Deployment, StandIn).options(num_replicas=options.replicas).bind(options, hub)
