"""The deployments: `BatchTextGenerator`, ingress, queue and engine in one, so that a request makes one hop; the hub.

Here is what Ray and HTTP have to do with them; what happens to a prompt is in `service.replica.generation`, what the
hub does in `service.replica.hub`.
"""

import asyncio
import json
import os
import re
import secrets
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Header, Query, Request
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from ray import serve
from ray.serve.handle import DeploymentHandle
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from service.engine.compute_thread import EngineThreads, engine_executor
from service.engine.job import Line, SamplingParams
from service.engine.loading import load_engine, try_batch
from service.messages.heap import set_heap_aside
from service.messages.installation import VERSION
from service.messages.life import TrialBatch
from service.messages.objectives import Objectives
from service.messages.options import DEPLOYMENT_NAME, ServiceOptions
from service.messages.settings import (
    LONGEST_REASON,
    PLACES_FOR_REQUESTS,
    Scale,
    SettingError,
    Settings,
    VersionedSettings,
)
from service.messages.telemetry import Deployment, ReplicaStatus
from service.messages.workload import TEXT, WorkloadAbout
from service.ray_serve.application import ClusterStore, ServeApplication, max_ongoing_requests_here
from service.ray_serve.doors import PLACES_HEADER, doors_from_environment
from service.ray_serve.environment import has_ray_metrics
from service.ray_serve.gpus import require_gpu
from service.ray_serve.patches import keep_replica_on_loopback, take_bodies_from_scopes
from service.ray_serve.redeployer import USUAL_DRAIN_TIMEOUT_S
from service.ray_serve.router import routes_to_fit, routing_stats
from service.replica.answers import ChatCompletion, Completion
from service.replica.background import LoadingNews, start_for_life, watch_turns
from service.replica.bodies import MAX_PROMPTS, ChatBody, CompletionBody
from service.replica.completions import Asked, answer_completion, results_of, submit_all
from service.replica.described import (
    ERROR_ANSWERS,
    EVENT,
    EVENTS,
    JSON,
    OBJECT,
    PLAIN,
    Health,
    Model,
    Models,
    Version,
    described,
    json_response,
    schema_of,
)
from service.replica.device import DeviceMeter, EngineProcessor
from service.replica.errors import error_response, install_error_handlers, json_object
from service.replica.frames import telemetry_events
from service.replica.generation import CHUNKS_PER_S, CHUNKS_PER_S_BESIDE_A_GPU, Generation
from service.replica.holder import Holder
from service.replica.hub import Hub
from service.replica.hub_link import HubLink
from service.replica.ray_metrics import RayMetrics
from service.replica.recorder import HubAnswer, ReplicaReport
from service.replica.requests import TextChunk
from service.replica.tracing import contexts_from_environment, spans_from_environment
from service.workloads.catalog import about

TUTORIAL_SAMPLING = SamplingParams(max_tokens=50)
CLIENT_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")

api = FastAPI(title="Batchscope", version="1", docs_url=None, redoc_url=None, responses=ERROR_ANSWERS)
api.add_middleware(contexts_from_environment)
api.add_middleware(doors_from_environment)
install_error_handlers(api)


# Ray pickles the class below by value, with what its module holds by then: helpers stand in front of it, and its
# annotations are no strings (`from __future__ import annotations`), whose names would not travel with it.


class CallsByRay:
    """Calls of the hub by a replica, or by Hold."""

    def __init__(self, hub: DeploymentHandle[Any]) -> None:
        self._hub = hub

    async def follow(self, name: str, held: VersionedSettings) -> VersionedSettings:
        in_force: VersionedSettings = await self._hub.follow.remote(name, held)
        return in_force

    async def report(self, report: ReplicaReport) -> HubAnswer:
        answer: HubAnswer = await self._hub.report.remote(report)
        return answer

    async def frames_after(self, reader: str, number: int | None) -> tuple[int, list[bytes]] | None:
        frames: tuple[int, list[bytes]] | None = await self._hub.frames_after.remote(reader, number)
        return frames

    async def revise(
        self, call: str, changes: dict[str, object], reason: str, upon: int | None
    ) -> VersionedSettings | SettingError:
        answer: VersionedSettings | SettingError = await self._hub.revise.remote(call, changes, reason, upon)
        return answer


@serve.deployment(
    name=DEPLOYMENT_NAME,
    health_check_period_s=2,
    health_check_timeout_s=12,  # after three of which Serve takes a replica for dead: it may stand still for 30 s
    graceful_shutdown_timeout_s=USUAL_DRAIN_TIMEOUT_S,
    graceful_shutdown_wait_loop_s=0.2,
    logging_config={"enable_access_log": False},
)
@serve.ingress(api)
class BatchTextGenerator:
    """A replica: one engine on one device; `service.replica.generation.Generation` takes its inputs."""

    async def __init__(  # type: ignore[misc]  # Serve awaits it; mypy knows no such thing
        self,
        options: ServiceOptions,
        hub: DeploymentHandle[Any],
        _hold: DeploymentHandle[Any] | None = None,  # without which Serve would not deploy it
    ) -> None:
        keep_replica_on_loopback()
        take_bodies_from_scopes()
        self._hub = hub
        self._readers = 0  # of telemetry
        self._thread = engine_executor()
        loop, context = asyncio.get_running_loop(), serve.get_replica_context()
        self._serve_id = context.replica_id.unique_id
        options = msgspec.structs.replace(options, replicas=context.world_size)  # as many as share the processor now
        news = LoadingNews(partial(hub.note_loading.remote, self._serve_id))
        sending = loop.create_task(news.send_on())
        self._about = about(options.workload)
        self._loaded = await loop.run_in_executor(self._thread, load_engine, options, news.note, self._thread)
        self._trial: TrialBatch | None = None
        if self._about == TEXT:
            size, processor = options.settings.max_batch_size, EngineProcessor()
            processor.use()  # which counts from here
            trial = await loop.run_in_executor(self._thread, try_batch, self._loaded.engine, size)
            self._trial = trial and msgspec.structs.replace(trial, processor_share=processor.share())
        sending.cancel()
        replica, in_force = await hub.register.remote(self._serve_id)
        threads = EngineThreads(self._thread)
        chunks_per_s = CHUNKS_PER_S if self._loaded.device == "cpu" else CHUNKS_PER_S_BESIDE_A_GPU
        self._generation = Generation(
            replica, self._loaded.engine, threads, in_force, chunks_per_s, objectives=options.hold
        )
        self._spans = spans_from_environment(replica)
        if self._spans is not None:
            self._generation.recorder.listeners.append(self._spans)
        if has_ray_metrics():
            self._generation.recorder.listeners.append(RayMetrics())
        self._meter = DeviceMeter(self._loaded.device)
        self._link = HubLink(self._generation, CallsByRay(hub), self._status)
        self._tasks = [
            start_for_life(self._generation.run(), "Running batches"),
            start_for_life(self._link.follow_settings(), "Following the settings"),
            start_for_life(self._link.report_news(), "Reporting telemetry"),
        ]
        watch_turns(loop)
        set_heap_aside()

    # -- asking -------------------------------------------------------------------------------------------------------

    async def handle_batch(self, inputs: Any) -> Any:
        """The tutorials' method: the output of one input, or the outputs of a list of inputs, which share batches."""
        outputs = await self._compute(inputs if isinstance(inputs, list) else [inputs])
        decoded = [json.loads(output) for output in outputs]
        return decoded if isinstance(inputs, list) else decoded[0]

    @api.get("/", **described({PLAIN: {"type": "string"}}, query=TEXT.query))
    async def ask(self, request: Request) -> Response:
        """The tutorials' way to ask: `curl "http://127.0.0.1:8000/?text=Once+upon+a+time"`, or `/?number=3`."""
        name, example = self._about.query, self._about.examples[0]
        line = request.query_params.get(name)
        if not line:
            return error_response(400, f"Ask with /?{name}=…, such as {example!r}.", param=name)
        (output,) = await self._compute([Line(line)])
        return self._with_places(PlainTextResponse(msgspec.json.decode(output) if output.startswith('"') else output))

    @api.post("/", **described({JSON: OBJECT}, body=OBJECT))
    async def call(self, request: Request) -> Response:
        """A list of inputs, each of them a request of its own: `{"features": [[…], …]}` to `{"predictions": […]}`."""
        wanted = self._about.inputs
        inputs = (await json_object(request, f"{wanted!r}")).get(wanted)
        if not isinstance(inputs, list) or not 1 <= len(inputs) <= MAX_PROMPTS:
            message = f'The body must be {{"{wanted}": […]}} with 1 to {MAX_PROMPTS} of them.'
            return error_response(400, message, param=wanted)
        outputs = [msgspec.Raw(output.encode()) for output in await self._compute(inputs)]
        content = msgspec.json.encode({self._about.outputs: outputs})
        return self._with_places(Response(content, media_type="application/json"))

    @api.post("/v1/completions", **described({JSON: schema_of(Completion), EVENTS: EVENT}))
    async def completions(self, body: CompletionBody, x_request_id: Annotated[str | None, Header()] = None) -> Response:
        """OpenAI's completions; `stream` sends them as server-sent events."""
        return await self._complete(body, x_request_id)

    @api.post("/v1/chat/completions", **described({JSON: schema_of(ChatCompletion), EVENTS: EVENT}))
    async def chat(self, body: ChatBody, x_request_id: Annotated[str | None, Header()] = None) -> Response:
        """OpenAI's chat completions, of models that have a template for messages; streamed like completions."""
        return await self._complete(body, x_request_id)

    async def _complete(self, body: CompletionBody | ChatBody, request_id: str | None) -> Response:
        received_s = time.monotonic()
        if body.model not in (None, self._loaded.engine.name):
            return self._no_model(body.model)
        client_id = request_id if request_id and CLIENT_ID.fullmatch(request_id) else None
        answer = await answer_completion(self._generation, body, received_s=received_s, client_id=client_id)
        return self._with_places(answer)

    def _no_model(self, name: str | None) -> Response:
        message = f"There is no model {name!r} here; this service runs {self._loaded.engine.name!r}."
        return error_response(404, message, param="model", code="model_not_found")

    def _with_places(self, answer: Response) -> Response:
        """The answer with how many requests this replica holds at most, which the doors read."""
        answer.headers[PLACES_HEADER] = f"{self._serve_id} {self._in_force.settings.max_ongoing_requests}"
        return answer

    async def _compute(self, inputs: list[Any]) -> list[str]:
        """The output of each input, as JSON."""
        received_s = time.monotonic()
        asked = [Asked(each, TUTORIAL_SAMPLING) for each in inputs]
        requests = await submit_all(self._generation, asked, received_s)
        chunks = await results_of(self._generation, requests)
        return [self._output(each, chunk) for each, chunk in zip(inputs, chunks, strict=True)]

    def _output(self, input: Any, chunk: TextChunk) -> str:
        if not self._about.streams:
            return chunk.text
        return msgspec.json.encode(input + chunk.text if self._about == TEXT else chunk.text).decode()

    # -- settings, telemetry, state -----------------------------------------------------------------------------------

    @api.get("/batching", **described({JSON: schema_of(VersionedSettings)}))
    async def read_settings(self) -> Response:
        """The settings in force and their version."""
        return json_response(self._in_force)

    @api.put("/batching", **described({JSON: schema_of(VersionedSettings)}, body=schema_of(Settings)))
    async def change_settings(
        self,
        request: Request,
        reason: Annotated[str, Query(max_length=LONGEST_REASON)] = "",
        upon: Annotated[int | None, Query(ge=0)] = None,
    ) -> Response:
        """Change any of the settings, for all replicas; answered when they are in force.

        The `reason` of a program stands beside the change in the telemetry. Where another version than `upon` is in
        force by then, nothing is changed; the answer is what is in force.
        """
        changes = await json_object(request, "settings")
        self._in_force.settings.revised(changes)  # refused here, before it is stored anywhere
        revised = await self._hub.revise.remote(secrets.token_hex(8), changes, reason, upon)
        if isinstance(revised, SettingError):
            raise revised
        return json_response(revised)

    @api.get("/deployment", **described({JSON: schema_of(Deployment)}))
    async def read_deployment(self) -> Response:
        """How many replicas there are, what Ray lets each hold, and how far a change of that is."""
        return json_response(await self._hub.deployment.remote())

    @api.put("/deployment", **described({JSON: schema_of(Deployment)}, body=schema_of(Scale)))
    async def redeploy(self, request: Request) -> Response:
        """Change that while requests are served, without losing one; answered when it has begun."""
        changes = await json_object(request, "what is to be redeployed")
        Scale().revised(changes)  # refused here: what is nested deeply cannot travel to the hub
        deployment = await self._hub.redeploy.remote(secrets.token_hex(8), changes, self._meter.load().memory_bytes)
        if isinstance(deployment, SettingError):
            raise deployment
        return json_response(deployment)

    @api.get("/telemetry", **described({EVENTS: EVENT}))
    async def telemetry(self, after: Annotated[int | None, Query(ge=0)] = None) -> Response:
        """All that happens from now on, or from after frame `after` on, as server-sent events.

        A further reader is refused where only `PLACES_FOR_REQUESTS` are left.
        """
        places = max_ongoing_requests_here()
        if self._readers >= places - PLACES_FOR_REQUESTS:
            held = f"{places} requests, {self._readers} of which read its telemetry"
            return error_response(503, f"This replica may hold {held}; raise max_ongoing_requests.")
        events = self._telemetry(after)
        return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    async def _telemetry(self, after: int | None) -> AsyncIterator[bytes]:
        self._readers += 1
        try:
            async for event in telemetry_events(partial(self._hub.frames_after.remote, self._serve_id), after):
                yield event
        finally:
            self._readers -= 1

    @api.get("/metrics", **described({PLAIN: {"type": "string"}}))
    async def metrics(self) -> Response:
        """The figures of all replicas in Prometheus' text format."""
        return Response(await self._hub.metrics.remote(), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    @api.get("/v1/models", **described({JSON: schema_of(Models)}))
    async def models(self) -> Response:
        """The one model there is."""
        return json_response(Models(data=[self._model]))

    @api.get("/v1/models/{name:path}", **described({JSON: schema_of(Model)}))
    async def model(self, name: str) -> Response:
        """The same by its name."""
        return json_response(self._model) if name == self._model.id else self._no_model(name)

    @property
    def _model(self) -> Model:
        return Model(id=self._loaded.engine.name, context_length=self._loaded.context_length)

    @api.get("/workload", **described({JSON: schema_of(WorkloadAbout)}))
    async def workload(self) -> Response:
        """What is computed here, and how to ask for it."""
        return json_response(self._about)

    @api.get("/version", **described({JSON: schema_of(Version)}))
    async def version(self) -> Response:
        """The release of this program."""
        return json_response(Version(version=VERSION))

    # Clients of vLLM look for the first, GuideLLM among them.
    @api.get("/health", operation_id="health", **described({JSON: schema_of(Health)}))
    @api.get("/healthz", **described({JSON: schema_of(Health)}))
    async def healthz(self) -> Response:
        """Answers while the replica works."""
        await self.check_health()
        loaded = self._loaded
        health = Health(
            model=loaded.engine.name,
            device=loaded.device,
            dtype=loaded.dtype,
            why_processor=loaded.why_processor,
            trial=self._trial,
        )
        return json_response(health)

    async def check_health(self) -> None:
        """Serve replaces a replica whose work has ended."""
        for task in self._tasks:
            if task.done():
                raise RuntimeError("the replica's work has ended") from task.exception()

    def record_routing_stats(self) -> dict[str, Any]:
        """Serve tells the routers of it."""
        return routing_stats(self._in_force.settings)

    # -- the control path ---------------------------------------------------------------------------------------------

    @property
    def _in_force(self) -> VersionedSettings:
        return self._generation.batcher.in_force

    async def __del__(self) -> None:
        """Serve lets the replica go, after its last request has ended, or replaces it since its work has ended."""
        await self._link.report_last(has_failed=any(task.done() for task in self._tasks))
        if self._spans is not None:
            await self._spans.flush()

    def _status(self) -> ReplicaStatus:
        generation = self._generation
        counts = generation.requests.counts
        return ReplicaStatus(
            replica=generation.replica,
            pid=os.getpid(),
            at_s=time.monotonic(),
            settings_version=self._in_force.version,
            waiting=counts["waiting"],
            formed=counts["formed"],
            running=counts["running"],
            model=self._loaded.engine.name,
            device=self._loaded.device,
            dtype=self._loaded.dtype,
            ledger=generation.recorder.ledger,
            max_ongoing_requests=max_ongoing_requests_here(),
            unit=self._about.unit,
            memory_tokens=self._loaded.engine.memory_tokens or None,
            graphs=self._loaded.engine.graphs,
            is_fitted=routes_to_fit(),
            **self._meter.load()._asdict(),
        )


@serve.deployment(
    name="Hub",
    num_replicas=1,
    max_ongoing_requests=10_000,
    health_check_period_s=1,  # after which Serve notices that it has died: until then no telemetry comes
    graceful_shutdown_timeout_s=0.2,
    graceful_shutdown_wait_loop_s=0.1,
    ray_actor_options={"num_cpus": 0},
    logging_config={"enable_access_log": False},
)
class HubDeployment(Hub):
    """The one hub of an application."""

    def __init__(self, settings: Settings, service: str, gpu_device: str | None = None) -> None:
        """With the `gpu_device` that replicas compute on, where that is a GPU; raises `StartError` if there is none.

        A replica that waits for a GPU cannot say so itself, and under `serve run` the cluster is known only here.
        """
        keep_replica_on_loopback()
        if gpu_device is not None:
            require_gpu(gpu_device)
        name = serve.get_replica_context().app_name
        super().__init__(settings, ServeApplication(name, DEPLOYMENT_NAME), ClusterStore(name), service)
        set_heap_aside()


@serve.deployment(
    name="Hold",
    num_replicas=1,
    ray_actor_options={"num_cpus": 0},
    logging_config={"enable_access_log": False},
)
class HoldDeployment(Holder):
    """The one that holds an application's objectives."""

    def __init__(self, hub: DeploymentHandle[Any], objectives: Objectives) -> None:
        keep_replica_on_loopback()
        super().__init__(CallsByRay(hub), objectives)
