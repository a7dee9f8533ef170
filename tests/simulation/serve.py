"""Ray Serve as the service sees it: calls between processes, a controller that starts and replaces them, a proxy.

What it does to a call, delay, loss or doubling, is drawn. What a call does is the product's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from ray.exceptions import RayActorError

from service.messages.settings import Scale, Settings
from service.ray_serve.redeployer import DeploymentSnapshot
from service.replica.hub import Hub
from tests.simulation.replica import SimulatedReplica
from tests.simulation.world import Process, Thread, World

NOTICED_S: Final = (0.0, 0.01, 0.3, 2.0)  # after a process has died: until its callers and the controller know
STARTS_S: Final = (0.1, 0.5, 3.0)
LOST_AFTER_S: Final = (0.5, 5.0)


@dataclass
class Network:
    """What becomes of the calls between processes.

    Attributes:
        delays_s: equally likely ones, of a call and of its answer.
        loss: share of the calls that fail, before or after they were carried out.
        doubling: share of the calls between Ray's actors that come twice.
        unheard: calls that were lost, and whose callers do not know yet.
    """

    world: World
    delays_s: tuple[float, ...] = (0.0002, 0.001, 0.005)
    loss: float = 0.0
    doubling: float = 0.0
    unheard: int = 0

    def delay_s(self) -> float:
        return self.world.random.choice(self.delays_s)

    def heal(self) -> None:
        self.delays_s, self.loss, self.doubling = (0.0002, 0.001), 0.0, 0.0

    async def call(
        self,
        caller: Process,
        callee: Callable[[], Process | None],
        make: Callable[[], Any],
        *,
        may_double: bool = False,
    ) -> Any:
        """What the coroutine that `make` gives in the callee returns or raises; waits until there is a callee."""
        answer = caller.create_future()
        call = _Call(self, caller, callee, make, answer)
        fate = self.world.random.random()
        if fate < self.loss:
            is_carried_out = fate < self.loss / 2
            self.unheard += 1
            self.world.call_later(self.world.random.choice(LOST_AFTER_S), lambda: self._tell_lost(caller, answer))
            if is_carried_out:
                call.answer = caller.create_future()  # that nobody hears
                call.send()
        else:
            call.send()
            if may_double and self.world.random.random() < self.doubling:
                call.send()
        try:
            return await answer
        finally:
            if answer.cancelled():
                call.cancel()

    def _tell_lost(self, caller: Process, answer: asyncio.Future[Any]) -> None:
        self.unheard -= 1
        caller.call_soon(_raise, answer, RayActorError(error_msg="the call was lost"))


@dataclass
class _Call:
    network: Network
    caller: Process
    callee: Callable[[], Process | None]
    make: Callable[[], Any]
    answer: asyncio.Future[Any]
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)
    is_cancelled: bool = False

    def send(self) -> None:
        self.network.world.call_later(self.network.delay_s(), self._arrive)

    def cancel(self) -> None:
        self.is_cancelled = True
        for task in self.tasks:
            self.network.world.call_later(self.network.delay_s(), lambda task=task: _cancel(task))

    def _arrive(self) -> None:
        callee = self.callee()
        if self.is_cancelled or not self.caller.is_alive:
            return
        if callee is None:  # Serve keeps the call until one has started
            self.network.world.call_later(0.1, self._arrive)
            return
        if not callee.is_alive:
            self._fail()
            return
        callee.on_death.append(self._fail)
        callee.call_soon(self._begin, callee)

    def _begin(self, callee: Process) -> None:
        task = callee.create_task(self.make())
        self.tasks.append(task)
        task.add_done_callback(lambda task: self._end(callee, task))

    def _end(self, callee: Process, task: asyncio.Task[Any]) -> None:
        callee.on_death.remove(self._fail)
        if not task.cancelled():
            task.exception()  # is known with that, also where nobody waits for it any more
        settle = _settle_from(task)
        self.network.world.call_later(self.network.delay_s(), lambda: self.caller.call_soon(settle, self.answer))

    def _fail(self) -> None:
        died = RayActorError(error_msg="the process has died")
        self.network.world.call_later(
            self.network.world.random.choice(NOTICED_S), lambda: self.caller.call_soon(_raise, self.answer, died)
        )


def _cancel(task: asyncio.Task[Any]) -> None:
    task.get_loop().call_soon(task.cancel)


def _raise(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _settle_from(task: asyncio.Task[Any]) -> Callable[[asyncio.Future[Any]], None]:
    def settle(future: asyncio.Future[Any]) -> None:
        if future.done():
            return
        if task.cancelled():
            future.cancel()
        elif error := task.exception():
            future.set_exception(error)
        else:
            future.set_result(task.result())

    return settle


class ClusterStore:
    """As `service.ray_serve.application.ClusterStore`."""

    def __init__(self) -> None:
        self._state: bytes | None = None

    def load(self) -> bytes | None:
        return self._state

    def save(self, state: bytes) -> None:
        if Thread.current is None:  # as a hub that begins
            self._state = state
            return
        Thread.current.sleep(0.001)
        self._state = state
        Thread.current.sleep(0.001)


class Controller:
    """Serve's controller, which survives everything here: it keeps as many replicas as are wanted, and one hub.

    Attributes:
        ever: all replicas that it has started.
        routed: those that the proxy knows of.
        hub_died_s: when one did last.
    """

    def __init__(
        self, world: World, network: Network, settings: Settings, replicas: int, room: int, make: Make
    ) -> None:
        """Serve on a machine that holds as many replicas at a time as there is `room` for."""
        self.world, self.network = world, network
        self.wanted = Scale(replicas=replicas)
        self.hub: Hub | None = None
        self.hub_process: Process | None = None
        self.hub_died_s = 0.0
        self.store = ClusterStore()
        self.replicas: dict[str, SimulatedReplica] = {}
        self.in_process: dict[Process | None, SimulatedReplica] = {}
        self.ever: list[SimulatedReplica] = []
        self.routed: tuple[SimulatedReplica, ...] = ()
        self._settings = settings
        self._room = room
        self._failure: str | None = None  # of a replica that could not start
        self._make = make
        self._start_hub()
        self._look_after()

    # Processes -------------------------------------------------------------------------------------------------------

    def _start_hub(self) -> None:
        process = Process(self.world, "hub")
        process.on_death.append(lambda: self._on_hub_death(process))

        def start() -> None:
            hub = Hub(self._settings, self, self.store, "service", self.world.clock)
            self.hub, self.hub_process = hub, process

        process.call_soon(start)

    def _on_hub_death(self, process: Process) -> None:
        if process is self.hub_process:
            self.hub = self.hub_process = None
            self.hub_died_s = self.world.now_s
        random = self.world.random
        self.world.call_later(random.choice(NOTICED_S) + random.choice(STARTS_S), self._start_hub)

    def ever_named(self, name: str) -> list[SimulatedReplica]:
        return [each for each in self.ever if each.generation is not None and each.generation.replica == name]

    def hub_now(self) -> Process | None:
        return self.hub_process

    def _look_after(self) -> None:
        """What the controller does every tenth of a second."""
        for each in list(self.replicas.values()):
            if each.state == "leaving" and each.is_drained:
                each.leave()
            if each.state == "running" and each.process.is_alive and each.has_failed:
                each.note_unhealthy()
        staying = [each for each in self.replicas.values() if each.state != "leaving"]
        for _ in range(self.wanted.replicas - len(staying)):
            self._start_replica()
        self.world.call_later(0.1, self._look_after)

    def _start_replica(self) -> None:
        replica = self._make(self, f"replica-{len(self.ever)}")
        self.ever.append(replica)
        self.replicas[replica.serve_id] = self.in_process[replica.process] = replica
        replica.process.on_death.append(lambda: self._on_replica_death(replica))
        self.world.call_later(self.world.random.choice(STARTS_S), lambda: self._begin(replica))

    def _begin(self, replica: SimulatedReplica) -> None:
        if sum(each.has_begun for each in self.replicas.values()) < self._room:
            replica.begin()
        else:
            self._failure = "no room"
            replica.process.kill()

    def _on_replica_death(self, replica: SimulatedReplica) -> None:
        def notice() -> None:
            self.replicas.pop(replica.serve_id, None)
            self.tell_proxy()

        self.world.call_later(self.world.random.choice(NOTICED_S), notice)

    async def routed_replica(self) -> SimulatedReplica:
        """One that the proxy knows of; waits until there is one."""
        while not self.routed:  # noqa: ASYNC110 — Serve's router tries again and again
            await asyncio.sleep(0.1)
        return self.world.random.choice(self.routed)

    def tell_proxy(self) -> None:
        """The proxy hears of a change later."""

        def hear() -> None:
            self.routed = tuple(each for each in self.replicas.values() if each.state == "running")

        self.world.call_later(self.network.delay_s(), hear)

    @property
    def is_at_rest(self) -> bool:
        """Everything runs that should, nothing else does, no replica holds a request, and no engine hangs."""
        if self.hub_process is None or self.hub_process.is_stopped or not self._is_settled:
            return False
        for each in self.replicas.values():
            if each.generation is not None and (
                each.engine.at_once or each.generation.requests.live or each.process.is_stopped
            ):
                return False
        return True

    @property
    def _is_settled(self) -> bool:
        return [each.state for each in self.replicas.values()] == ["running"] * self.wanted.replicas

    # As `Redeployer` asks for it -------------------------------------------------------------------------------------

    def look(self) -> DeploymentSnapshot:
        names = {state: frozenset(k for k, v in self.replicas.items() if v.state == state) for state in _STATES}
        return DeploymentSnapshot(
            wanted=self.wanted,
            running=names["running"],
            starting=names["starting"],
            leaving=names["leaving"],
            resources={},
            is_autoscaled=False,
            is_settled=self._is_settled,
            failure=None if self._is_settled else self._failure,
        )

    def deploy(self, scale: Scale, drain_timeout_s: float) -> None:
        self.wanted, self._failure = scale, None
        staying = [each for each in self.replicas.values() if each.state != "leaving"]
        for each in staying[scale.replicas :]:
            each.state = "leaving"
            self.world.call_later(drain_timeout_s, each.process.kill)
        self.tell_proxy()

    def free_resources(self) -> dict[str, float]:
        return {}

    def is_on_one_machine(self) -> bool:
        return False


Make = Callable[[Controller, str], SimulatedReplica]
_STATES: Final = ("starting", "running", "leaving")
