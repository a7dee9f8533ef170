"""A child process that speaks like the service and runs without Ray and without a model, for tests of the window.

It says the same lines on standard output and offers the same HTTP; settings, queue, batches and frames are the
service's own. A "token" is a word and takes `--step-s`. Redeployments are make-believe, and a fifth replica cannot
start. Faults are to order: `--fail`, `--deaf`, `--crash-on-start`, and the signals `HANG_UP`, `LOSE_REPLICA` and
`LOSE_MAIN`.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import signal
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from service.batching.queue import Batch, BatchQueue
from service.batching.rules import Rules
from service.messages.life import (
    Failed,
    LoadProgress,
    ProcessLost,
    Ready,
    ServiceAbout,
    ServiceState,
    Stage,
    StageProgress,
    Starting,
    Stopped,
    Stopping,
    TrialBatch,
)
from service.messages.settings import Scale, SettingError, Settings, VersionedSettings
from service.messages.telemetry import BatchRecord, Deployment, ReplicaStatus, RequestRecord, RequestState
from service.messages.workload import TEXT, WorkloadAbout
from service.replica.frames import SHORTEST_INTERVAL_S, FrameLog
from service.replica.recorder import Recorder
from service.replica.settings_board import SettingsBoard
from service.workloads.catalog import about

REPLICA = "r1"
CONTEXT_LENGTH = 2048
REDEPLOY_S = 0.2
MOST_REPLICAS = 4
STAGES = (
    Stage(name="check", title="Check ports and memory", about_s=0.1),
    Stage(name="ray", title="Start Ray", about_s=5.0),
    Stage(name="load", title="Load the model", about_s=2.0),
)
INSTANCE = os.urandom(4).hex()
HANG_UP = signal.SIGUSR1  # breaks every connection and takes no other, as a process does that is about to die
LOSE_REPLICA = signal.SIGHUP  # says that a replica ended, and stops until the signal to go on
LOSE_MAIN = signal.SIGUSR2  # says that the main process died, while what stands for the replicas answers what it holds


def say(state: ServiceState) -> None:
    sys.stdout.write(msgspec.json.encode(state).decode() + "\n")
    sys.stdout.flush()


@dataclass(eq=False)
class Asked:
    """A request in this process."""

    id: str
    client_id: str | None
    max_tokens: int
    received_s: float
    state: RequestState = "waiting"
    batch: str | None = None
    tokens: int = 0
    formed_s: float | None = None
    started_s: float | None = None
    first_token_s: float | None = None
    finished_s: float | None = None
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def record(self, replica: str) -> RequestRecord:
        return RequestRecord(
            id=self.id,
            client_id=self.client_id,
            replica=replica,
            state=self.state,
            prompt_tokens=4,
            max_tokens=self.max_tokens,
            completion_tokens=self.tokens,
            batch=self.batch,
            received_s=self.received_s,
            enqueued_s=self.received_s,
            formed_s=self.formed_s,
            started_s=self.started_s,
            first_token_s=self.first_token_s,
            finished_s=self.finished_s,
        )


async def _at_once(_: VersionedSettings) -> None:
    """Nothing outlives this service: there is nothing to keep."""


class Scripted:
    """The service, its engine a clock."""

    def __init__(
        self, settings: Settings, scale: Scale, step_s: float, gather_s: float, closed: str, workload: WorkloadAbout
    ) -> None:
        self.closed = closed
        self.about = workload
        self.scale = scale
        self.deployment = Deployment(at_s=time.monotonic(), wanted=scale, running=scale.replicas)
        self.board = SettingsBoard(VersionedSettings(version=1, settings=settings), keep=_at_once)
        self.frames = FrameLog(service=INSTANCE)
        self.recorder = Recorder(REPLICA)
        self.queue: BatchQueue[Asked] = BatchQueue(Rules.of(settings, 1))
        self.step_s = step_s
        self.gather_s = gather_s
        self.running = 0
        self.numbers = itertools.count(1)
        self.batch_numbers = itertools.count(1)

    async def generate(self) -> None:
        while True:
            await self.run_batch(await self.queue.next_batch())

    async def run_batch(self, batch: Batch[Asked]) -> None:
        number, now_s = next(self.batch_numbers), time.monotonic()
        members = [entry.item for entry in batch.entries]
        record = BatchRecord(
            id=f"{REPLICA}-b{number}",
            number=number,
            replica=REPLICA,
            settings_version=batch.rules_version,
            formation=batch.formation,
            size=len(members),
            cap=batch.cap,
            release_reason=batch.release_reason,
            formed_s=batch.formed_s,
            started_s=now_s,
            members=tuple(member.id for member in members),
        )
        for member in members:
            member.state, member.batch = "running", record.id
            member.formed_s, member.started_s = batch.formed_s, now_s
            self.recorder.note_request(member)
        self.recorder.note_batch(record)
        live = [member for member in members if member.state == "running"]
        while live:
            self.running = len(live)
            await asyncio.sleep(self.step_s)
            for member in live:
                self.step(member)
            self.recorder.note_batch(msgspec.structs.replace(record, tokens=sum(member.tokens for member in members)))
            live = [member for member in live if member.state == "running"]
        self.running = 0
        tokens = sum(member.tokens for member in members)
        self.recorder.note_batch(msgspec.structs.replace(record, finished_s=time.monotonic(), tokens=tokens))

    def step(self, member: Asked) -> None:
        if member.state != "running":
            return
        member.tokens += 1
        member.first_token_s = member.first_token_s or time.monotonic()
        if member.tokens == member.max_tokens:
            self.finish(member, "done")
        member.news.set()

    def finish(self, member: Asked, state: RequestState) -> None:
        member.state, member.finished_s = state, time.monotonic()
        self.recorder.note_request(member)
        member.news.set()

    async def report(self) -> None:
        while True:
            await asyncio.sleep(SHORTEST_INTERVAL_S)
            in_force = self.board.in_force
            status = ReplicaStatus(
                replica=REPLICA,
                pid=os.getpid(),
                at_s=time.monotonic(),
                settings_version=in_force.version,
                waiting=len(self.queue),
                formed=0,
                running=self.running,
                model="scripted",
                device="cpu",
                dtype="float32",
                cpu_percent=10.0,
                memory_bytes=2**20,
                max_ongoing_requests=self.scale.max_ongoing_requests,
            )
            report = self.recorder.report(status)
            self.frames.add_report(report)
            self.recorder.acknowledge(report.number)
            self.frames.close_frame(in_force, self.deployment)

    async def get_batching(self, _: web.Request) -> web.Response:
        return web.Response(body=msgspec.json.encode(self.board.in_force), content_type="application/json")

    async def put_batching(self, request: web.Request) -> web.Response:
        upon = request.query.get("upon")
        try:
            reason = request.query.get("reason", "")
            change = await self.board.revise(await request.json(), reason, None if upon is None else int(upon))
        except SettingError as error:
            body = {"error": {"message": error.rule, "type": "invalid_request_error", "param": error.field}}
            return web.json_response(body, status=422)
        if change is not None:
            settings = change.settings
            self.queue.configure(Rules.of(settings, change.version))
            self.frames.add_change(change)
        return await self.get_batching(request)

    async def get_deployment(self, _: web.Request) -> web.Response:
        return web.Response(body=msgspec.json.encode(self.deployment), content_type="application/json")

    async def put_deployment(self, request: web.Request) -> web.Response:
        try:
            scale = self.scale.revised(await request.json())
        except SettingError as error:
            return web.json_response({"error": {"message": error.rule, "param": error.field}}, status=422)
        self.see(scale, loading=LoadProgress(unit="layers", done=12, total=30), is_settled=False)
        asyncio.get_running_loop().call_later(REDEPLOY_S, self.settle, scale)
        return await self.get_deployment(request)

    def see(self, wanted: Scale, **how: Any) -> None:
        running = self.scale.replicas
        self.deployment = Deployment(at_s=time.monotonic(), wanted=wanted, running=running, **how)

    def settle(self, scale: Scale) -> None:
        if scale.replicas > MOST_REPLICAS:
            self.see(self.scale, failure="There is one too many.")
        else:
            self.scale = scale
            self.see(scale)

    async def telemetry(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        number = int(request.query["after"]) if "after" in request.query else None
        while True:
            number, events = await self.frames.after(number, 1.0)
            for event in events:
                await response.write(b"id: %d\ndata: %s\n\n" % (number, event))

    async def completions(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        received_s = time.monotonic()
        if len(self.queue) >= self.board.in_force.settings.max_queued_requests:
            return web.json_response({"error": {"message": "The queue is full."}}, status=503)
        asked = Asked(
            f"{REPLICA}-{next(self.numbers)}", request.headers.get("X-Request-Id"), body["max_tokens"], received_s
        )
        place = self.queue.submit(asked)
        self.recorder.note_request(asked)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        try:
            await response.prepare(request)
            await self.stream(asked, response)
        finally:
            place.cancel()
            if asked.state in ("waiting", "running"):
                self.finish(asked, "cancelled")
        return response

    async def stream(self, asked: Asked, response: web.StreamResponse) -> None:
        told = 0
        while told < asked.max_tokens:
            await asked.news.wait()
            asked.news.clear()
            text = "".join(f" word{n}" for n in range(told + 1, asked.tokens + 1))
            told = asked.tokens
            await response.write(self.chunk(asked, text))
            await asyncio.sleep(0 if asked.state == "done" else self.gather_s)
        await response.write(b"data: [DONE]\n\n")

    def chunk(self, asked: Asked, text: str) -> bytes:
        finish_reason = "length" if asked.state == "done" else None
        body = {
            "choices": [{"index": 0, "text": text, "finish_reason": finish_reason}],
            "usage": {"completion_tokens": asked.tokens},
        }
        return b"data: " + msgspec.json.encode(body) + b"\n\n"

    async def models(self, _: web.Request) -> web.Response:
        model = {"id": "scripted", "object": "model", "context_length": CONTEXT_LENGTH}
        return web.json_response({"object": "list", "data": [model]})

    async def healthz(self, _: web.Request) -> web.Response:
        about = ServiceAbout(model="scripted", device="cpu", dtype="float32", closed=self.closed)
        return web.json_response(msgspec.to_builtins(about))

    async def workload(self, _: web.Request) -> web.Response:
        return web.Response(body=msgspec.json.encode(self.about), content_type="application/json")


def lose_replica() -> None:
    say(ProcessLost(name="The last replica"))
    os.kill(os.getpid(), signal.SIGSTOP)


async def serve(options: argparse.Namespace) -> None:
    settings = Settings(
        formation=options.formation,
        max_batch_size=options.max_batch_size,
        batch_wait_timeout_s=options.batch_wait_timeout_s,
        max_queued_requests=options.max_queued_requests,
    )
    began_s = time.monotonic()
    say(Starting(instance=INSTANCE, stages=STAGES))
    say(StageProgress(name="check", elapsed_s=0.1, finished=True))
    say(StageProgress(name="ray", elapsed_s=0.0))
    print("scripted service: starting", file=sys.stderr, flush=True)
    wanted = asyncio.Event()
    loop = asyncio.get_running_loop()
    if not options.deaf:
        loop.add_signal_handler(signal.SIGTERM, wanted.set)
    loop.add_signal_handler(LOSE_REPLICA, lose_replica)
    loop.add_signal_handler(LOSE_MAIN, lambda: say(Failed(reason="The main process ended.")))
    await loop.connect_read_pipe(lambda: Parent(wanted), sys.stdin)
    try:
        await asyncio.wait_for(wanted.wait(), options.start_s)
        say(Stopping())
    except TimeoutError:
        await answer(settings, options, began_s, wanted)
    say(Stopped())


class Parent(asyncio.Protocol):
    """Hears that the window is gone."""

    def __init__(self, wanted: asyncio.Event) -> None:
        self._wanted = wanted

    def connection_lost(self, _: Exception | None) -> None:
        self._wanted.set()


def refusing_without(token: str) -> Middleware:
    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if token and request.headers.get("Authorization") != f"Bearer {token}":
            return web.json_response({"error": {"message": "A bearer token is required."}}, status=401)
        return await handler(request)

    return check


def adopting_after(delay_s: float) -> Middleware:
    @web.middleware
    async def wait(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.method == "PUT":
            await asyncio.sleep(delay_s)
        return await handler(request)

    return wait


async def stamp(_: web.Request, response: web.StreamResponse) -> None:
    response.headers["X-Batchscope-Instance"] = INSTANCE


async def answer(settings: Settings, options: argparse.Namespace, began_s: float, wanted: asyncio.Event) -> None:
    scale = Scale(replicas=options.replicas, max_ongoing_requests=options.max_ongoing_requests)
    scripted = Scripted(settings, scale, options.step_s, options.gather_s, options.closed, about(options.workload))
    app = web.Application(middlewares=[refusing_without(options.token), adopting_after(options.adopts_s)])
    app.on_response_prepare.append(stamp)
    app.add_routes(
        [
            web.get("/batching", scripted.get_batching),
            web.put("/batching", scripted.put_batching),
            web.get("/deployment", scripted.get_deployment),
            web.put("/deployment", scripted.put_deployment),
            web.get("/telemetry", scripted.telemetry),
            web.get("/v1/models", scripted.models),
            web.get("/healthz", scripted.healthz),
            web.get("/workload", scripted.workload),
            web.post("/v1/completions", scripted.completions),
        ]
    )
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", options.on_port)
    await site.start()
    host, port = runner.addresses[0][:2]
    parts = scripted.generate(), scripted.report(), hang_up_on_signal(runner)
    tasks: list[asyncio.Task[Any]] = [asyncio.create_task(part) for part in parts]
    for stage in STAGES[1:]:
        say(StageProgress(name=stage.name, elapsed_s=time.monotonic() - began_s, finished=True))
    say(
        Ready(
            url=f"http://{host}:{port}",
            instance=INSTANCE,
            model="scripted",
            device="cpu",
            dtype="float32",
            trial=None
            if options.trial_s is None
            else TrialBatch(size=16, first_token_s=0.0, step_s=options.trial_s, processor_share=options.trial_share),
            context_length=CONTEXT_LENGTH,
            replicas=1,
            started_in_s=time.monotonic() - began_s,
        )
    )
    await wanted.wait()
    say(Stopping())
    for task in tasks:
        task.cancel()
    await runner.cleanup()


async def hang_up_on_signal(runner: web.AppRunner) -> None:
    signalled = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(HANG_UP, signalled.set)
    await signalled.wait()
    await runner.cleanup()


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--formation", default="late")
    parser.add_argument("--max-batch-size", type=int, default=16)
    parser.add_argument("--batch-wait-timeout-s", type=float, default=0.05)
    parser.add_argument("--max-queued-requests", type=int, default=256)
    parser.add_argument("--adopts-s", type=float, default=0.0, help="what passes before changed settings are in force")
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--max-ongoing-requests", type=int, default=100_000)
    parser.add_argument("--on-port", type=int, default=0)
    parser.add_argument("--token", default="", help="that every request must carry; none by default")
    parser.add_argument("--start-s", type=float, default=0.05)
    parser.add_argument("--step-s", type=float, default=0.005)
    parser.add_argument("--gather-s", type=float, default=0.05, help="what a stream waits between two chunks")
    parser.add_argument("--trial-s", type=float, help="of a step of the trial batch; none by default")
    parser.add_argument("--trial-share", type=float, help="of the processor that it got; not reported by default")
    parser.add_argument("--closed", default="", help="why a window may send it nothing; it may, by default")
    parser.add_argument("--workload", default=TEXT.name, help="to describe; a text generator answers in any case")
    parser.add_argument("--fail", help="say Failed with this reason and exit 1")
    parser.add_argument("--crash-on-start", type=int, help="die of this signal")
    parser.add_argument("--deaf", action="store_true", help="ignore SIGTERM and the end of standard input")
    return parser.parse_known_args()[0]


def main() -> None:
    options = parsed()
    if options.crash_on_start is not None:
        os.kill(os.getpid(), options.crash_on_start)
    if options.deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.fail is not None:
        say(Failed(reason=options.fail))
        raise SystemExit(1)
    asyncio.run(serve(options))


if __name__ == "__main__":
    main()
