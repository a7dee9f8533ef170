"""A stand-in for the generator, for tests of the processes around it: it starts at once and answers without a model."""

# No `from __future__ import annotations`: Serve pickles the class, and FastAPI then cannot look the names up.
from typing import Any, cast

from fastapi import FastAPI, Request
from ray import serve
from ray.serve import Application, Deployment

from service.http.doors import doors_from_environment
from service.model.errors import ModelError
from service.options import ServiceOptions
from service.process.loopback import keep_replica_on_loopback

REFUSED_DEVICE = "refused"

api = FastAPI()
api.add_middleware(cast(Any, doors_from_environment))


@serve.deployment(name="BatchTextGenerator", ray_actor_options={"num_cpus": 0.1}, max_constructor_retry_count=1)
@serve.ingress(api)
class StandIn:
    """Answers what the driver asks of every application; its constructor fails for one device."""

    def __init__(self, options: ServiceOptions) -> None:
        keep_replica_on_loopback()
        if options.device == REFUSED_DEVICE:
            raise ModelError("This device is refused: choose another one.")

    @api.post("/v1/completions")
    async def complete(self, request: Request) -> dict[str, int]:
        return {"received_bytes": len(await request.body())}

    @api.get("/v1/models")
    async def models(self) -> dict[str, Any]:
        return {"data": [{"id": "stand-in", "context_length": 128}]}

    @api.get("/healthz")
    async def healthz(self) -> dict[str, str]:
        return {"model": "stand-in", "device": "cpu", "dtype": "float32"}


def build(options: ServiceOptions) -> Application:
    return cast(Deployment, StandIn).options(num_replicas=options.replicas).bind(options)
