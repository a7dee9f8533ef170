"""A replica without Ray, in a process of its own: what `service.replica.deployment` has around the same classes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal

from starlette.responses import JSONResponse

from service.batching.batcher import QueueFullError
from service.engine.compute_thread import EngineThreads
from service.engine.job import Admit, DeviceLostError, Emit, Sequence
from service.engine.stub import Fault, StubEngine, StubTimes, raising
from service.messages.settings import SettingError, VersionedSettings
from service.messages.telemetry import BatchWork, ReplicaStatus
from service.replica.bodies import CompletionBody
from service.replica.completions import answer_completion
from service.replica.errors import PromptRefusedError
from service.replica.generation import Generation
from service.replica.hub_link import HubLink
from service.replica.recorder import HubAnswer, ReplicaReport
from service.replica.requests import GenerationError
from service.replica.step_watch import EngineStalledError
from tests.simulation.world import Process, World, running_thread

if TYPE_CHECKING:
    from tests.simulation.serve import Controller, Network

EXPECTED = (DeviceLostError, EngineStalledError)
Send = Callable[[dict[str, Any]], Awaitable[None]]


class StubInThread(StubEngine):
    """The stub engine whose time is the simulation's, and between whose calls back others get their turns.

    Attributes:
        at_once: batches that run.
    """

    def __init__(self, times: StubTimes) -> None:
        faults = {
            "stub:error": Fault("The prompt asked for this error."),
            "stub:lost": Fault(does=raising(DeviceLostError("the prompt asked for this")), at_token=2),
            "stub:hang": Fault(does=lambda: running_thread().wait_for_ever(), at_token=2),
        }
        super().__init__(times, faults, wait=lambda seconds: running_thread().sleep(seconds))
        self.at_once = 0

    def generate(self, sequences: list[Sequence], emit: Emit, admit: Admit | None = None) -> BatchWork:
        def emit_in_turn(progress: list[Any]) -> None:
            running_thread().pass_turn()
            emit(progress)
            running_thread().pass_turn()

        def admit_in_turn(work: BatchWork, can_join: bool) -> Any:
            assert admit is not None
            joining = admit(work, can_join)
            running_thread().pass_turn()
            return joining

        self.at_once += 1
        try:
            return super().generate(sequences, emit_in_turn, admit_in_turn if admit else None)
        finally:
            self.at_once -= 1


class HubCallsHere:
    """Calls of the hub through the simulated network."""

    def __init__(self, replica: SimulatedReplica, controller: Controller) -> None:
        self._replica, self._controller = replica, controller

    async def call(self, method: str, *arguments: Any) -> Any:
        controller = self._controller
        return await controller.network.call(
            self._replica.process,
            controller.hub_now,
            lambda: getattr(controller.hub, method)(*arguments),
            may_double=True,
        )

    async def follow(self, name: str, held: VersionedSettings) -> VersionedSettings:
        in_force: VersionedSettings = await self.call("follow", name, held)
        return in_force

    async def report(self, report: ReplicaReport) -> HubAnswer:
        answer: HubAnswer = await self.call("report", report)
        return answer


class SimulatedReplica:
    """What `BatchTextGenerator` is, in a process that can be killed and stopped.

    Attributes:
        has_begun: its process has been given the room that it takes.
        open: requests of the proxy that it holds.
        is_unhealthy: Serve has seen that its work has ended.
        ended_s: when it ended as it should; it takes no requests any more.
    """

    def __init__(self, controller: Controller, serve_id: str, times: StubTimes) -> None:
        self.serve_id = serve_id
        self.process = Process(controller.world, serve_id)
        self.state: Literal["starting", "running", "leaving"] = "starting"
        self.generation: Generation | None = None
        self.has_begun = False
        self.open = 0
        self.is_unhealthy = False
        self.is_told_to_end = False
        self.ended_s: float | None = None
        self.engine = StubInThread(times)
        self._controller = controller
        self._hub = HubCallsHere(self, controller)
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def world(self) -> World:
        return self._controller.world

    @property
    def network(self) -> Network:
        return self._controller.network

    def begin(self) -> None:
        self.has_begun = True
        self.process.call_soon(lambda: self.process.create_task(self._start()))

    async def _start(self) -> None:
        """As `BatchTextGenerator.__init__`."""
        try:
            name, in_force = await self._hub.call("register", self.serve_id)
        except Exception:
            self.process.kill()
            return
        generation = Generation(
            name, self.engine, EngineThreads(ThreadPoolExecutor(1)), in_force, clock=self.world.clock
        )
        self.link = HubLink(generation, self._hub, self.status)
        self.generation = generation
        work = (generation.run(), self.link.follow_settings(), self.link.report_news())
        self._tasks = [asyncio.get_running_loop().create_task(each) for each in work]
        if self.state == "starting":
            self.state = "running"
        self._controller.tell_proxy()

    @property
    def has_failed(self) -> bool:
        """As `BatchTextGenerator.check_health`."""
        return any(task.done() for task in self._tasks)

    @property
    def has_ended(self) -> bool:
        return self.ended_s is not None

    @property
    def is_drained(self) -> bool:
        return self.open == 0

    def note_unhealthy(self) -> None:
        """Serve replaces it, after its health check has failed."""
        self.state, self.is_unhealthy = "leaving", True
        self._check_why()
        self.world.call_later(self.world.random.choice((0.0, 2.0)), self.process.kill)

    def _check_why(self) -> None:
        """Its work has ended because the engine stalled or the device was lost, as was ordered, and not for a fault."""
        for task in self._tasks:
            error = task.exception() if task.done() and not task.cancelled() else None
            rest = error.split(EXPECTED)[1] if isinstance(error, BaseExceptionGroup) else error
            if rest is not None:
                self.world.faults.append(f"the work of {self.serve_id} has ended: {rest!r}")

    def leave(self) -> None:
        """As `BatchTextGenerator.__del__`, and then its end."""
        if self.is_told_to_end or self.is_unhealthy or not self.process.is_alive:
            return
        self.is_told_to_end = True
        self._check_why()

        async def end() -> None:
            while not self.is_drained:  # noqa: ASYNC110 — of what came meanwhile, as Serve looks
                await asyncio.sleep(0.1)
            self.ended_s = self.world.now_s
            if self.generation is not None:
                await self.link.report_last(has_failed=self.has_failed)
            self.process.kill()

        self.process.call_soon(lambda: self.process.create_task(end()))

    def status(self) -> ReplicaStatus:
        assert self.generation is not None
        counts = self.generation.requests.counts
        return ReplicaStatus(
            replica=self.generation.replica,
            pid=1,
            at_s=self.world.now_s,
            settings_version=self.generation.batcher.in_force.version,
            waiting=counts["waiting"],
            formed=counts["formed"],
            running=counts["running"],
            model="stub",
            device="cpu",
            dtype="float32",
            cpu_percent=0.0,
            memory_bytes=0,
            ledger=self.generation.recorder.ledger,
        )

    # What is asked of it ---------------------------------------------------------------------------------------------

    async def call(self, caller: Process, make: Callable[[], Any]) -> Any:
        """What the coroutine that `make` gives returns here, for another process."""
        return await self.network.call(caller, lambda: self.process, make)

    async def complete(self, body: CompletionBody, client_id: str, send: Send) -> None:
        """As `BatchTextGenerator.completions`, behind its error handlers; cancelling it is the client's leaving."""
        assert self.generation is not None
        try:
            answered = await answer_completion(self.generation, body, received_s=self.world.now_s, client_id=client_id)
        except QueueFullError as full:
            answered = JSONResponse({"error": str(full), "retry_after_s": full.retry_after_s}, 503)
        except PromptRefusedError as refused:
            answered = JSONResponse({"error": str(refused)}, 400)
        except GenerationError as failed:
            answered = JSONResponse({"error": str(failed)}, 500)
        await answered({"type": "http", "asgi": {"spec_version": "2.4"}}, _never, send)

    async def change(self, changes: dict[str, object]) -> VersionedSettings:
        """As `BatchTextGenerator.change_settings`."""
        assert self.generation is not None
        self.generation.batcher.in_force.settings.revised(changes)
        revised = await self._hub.call("revise", self._new_call(), changes)
        if isinstance(revised, SettingError):
            raise revised
        in_force: VersionedSettings = revised
        return in_force

    async def redeploy(self, changes: dict[str, object]) -> Any:
        deployment = await self._hub.call("redeploy", self._new_call(), changes, 0)
        if isinstance(deployment, SettingError):
            raise deployment
        return deployment

    def _new_call(self) -> str:
        return f"{self.world.random.random()}"

    async def frames_after(self, number: int | None) -> Any:
        return await self._hub.call("frames_after", self.serve_id, number)


async def _never() -> Any:
    await asyncio.get_running_loop().create_future()
