"""Redeploying while requests are served: what is done in which order, and how far it is. Knows no Ray."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import msgspec

from service.engine.memory import free_memory_bytes
from service.messages.life import LoadProgress, furthest_behind
from service.messages.settings import Scale, SettingError
from service.messages.telemetry import Deployment

logger = logging.getLogger(__name__)

USUAL_DRAIN_TIMEOUT_S: Final = 2.0
"""What a replica is given to answer what it holds when the whole service ends."""

DRAIN_TIMEOUT_S: Final = 630.0
"""What it is given when it alone leaves: more than any request lives."""

POLL_S: Final = 0.25

AUTOSCALED: Final = "Ray Serve decides how many there are here; deploy another autoscaling_config to change that."

Answer = TypeVar("Answer")


class Application(Protocol):
    """What is redeployed. All of it blocks."""

    def look(self) -> DeploymentSnapshot: ...
    def deploy(self, scale: Scale, drain_timeout_s: float) -> None: ...
    def free_resources(self) -> Mapping[str, float]: ...
    def is_on_one_machine(self) -> bool: ...


class Redeployment(msgspec.Struct, frozen=True):
    """What is being brought about, and what there was before: that is deployed again where a replica cannot start."""

    wanted: Scale
    before: Scale


class Redeployer:
    """Carries out one redeployment at a time; a new one takes the place of the one under way.

    Nothing that is queued is lost: replicas that stay are changed as they run, and one that leaves gets no more
    requests and answers the ones it holds.
    """

    def __init__(
        self,
        application: Application,
        loads: Mapping[str, LoadProgress],
        keep: Callable[[Redeployment | None], Awaitable[None]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Looks after one `application`.

        Args:
            loads: how far replicas are with loading their models, by Serve's names for them.
            keep: is awaited with what is to be gone on with by another one, should this one end.
        """
        self.deployment: Deployment | None = None  # as it was seen last
        self.leaving: frozenset[str] = frozenset()  # Serve's names for the replicas that leave
        self._application = application
        self._loads = loads
        self._clock = clock
        self._keep = keep
        self._under_way: Redeployment | None = None
        self._failure: str | None = None
        self._work: asyncio.Task[object] | None = None
        self._one_at_a_time = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, "redeployer")  # one: what is asked first is done first

    async def redeploy(self, changes: Mapping[str, object], bytes_each: int) -> Deployment:
        """Begin to bring `changes` about, and return how it stands; raises `SettingError`, and then nothing changes.

        Args:
            bytes_each: what a replica takes of its machine's memory.
        """
        async with self._one_at_a_time:
            snapshot = await self._look()
            scale = self._seen(snapshot).wanted.revised(changes)
            if scale != self._seen(snapshot).wanted:
                await self._in_thread(self._check, snapshot, scale, bytes_each)
                self._failure = None
                self.go_on(Redeployment(scale, self._before(snapshot)))
            return self._seen(snapshot)

    def _before(self, snapshot: DeploymentSnapshot) -> Scale:
        """What can be gone back to: as many replicas as run, or, where all of them start anew, as ran last."""
        if snapshot.running:
            return msgspec.structs.replace(snapshot.wanted, replicas=len(snapshot.running))
        return snapshot.wanted if self._under_way is None else self._under_way.before

    def go_on(self, redeployment: Redeployment) -> None:
        """Carry out what is new, or what another one had begun."""
        self._under_way = redeployment
        self._begin(self._carry_out(redeployment))

    async def look(self) -> Deployment:
        """How it stands now."""
        return self._seen(await self._look())

    async def known(self) -> frozenset[str]:
        """Replicas of which Serve has not seen the end, by its names: those that live, and those that start."""
        snapshot = await self._look()
        return snapshot.running | snapshot.leaving | snapshot.starting

    def watch(self) -> None:
        """Look on until Serve is done with what it does by itself, such as starting a replica."""
        if self._work is None or self._work.done():
            self._begin(self._look_on())

    # One after the other ---------------------------------------------------------------------------------------------

    def _begin(self, work: Coroutine[Any, Any, object]) -> None:
        if self._work is not None:
            self._work.cancel()
        self._work = asyncio.create_task(work)

    async def _look_on(self) -> None:
        while True:
            try:
                await self._settle()
            except Exception as error:  # of Ray's, whose controller may be starting anew
                logger.warning("Serve does not say what becomes of the replicas: %s", error)
                await asyncio.sleep(POLL_S)
            else:
                return

    async def _carry_out(self, redeployment: Redeployment) -> None:
        wanted, before = redeployment.wanted, redeployment.before
        try:
            await self._keep(redeployment)
            if wanted.replicas < before.replicas:
                await self._let_leave(wanted, before.replicas)
            await self._deploy(wanted, USUAL_DRAIN_TIMEOUT_S)
            failure = await self._settle(may_fail=True)
            if failure is not None:
                await self._deploy(before, USUAL_DRAIN_TIMEOUT_S)
                await self._settle()
                self._failure = reason_of(failure)
        except Exception as error:  # of Ray's, whose controller may be gone
            logger.exception("A redeployment broke off")
            self._failure = f"The redeployment broke off: {error}"
        self._under_way = None
        await self._keep(None)
        await self._look()

    async def _let_leave(self, wanted: Scale, running: int) -> None:
        """Serve gives a leaving replica the drain timeout that was in force before: so that is changed first."""
        if (await self._look()).wanted.replicas != wanted.replicas:  # as they are where another one had begun it
            await self._deploy(msgspec.structs.replace(wanted, replicas=running), DRAIN_TIMEOUT_S)
            await self._settle()
        await self._deploy(wanted, DRAIN_TIMEOUT_S)
        await self._settle()

    async def _deploy(self, scale: Scale, drain_timeout_s: float) -> None:
        await self._in_thread(self._application.deploy, scale, drain_timeout_s)

    async def _settle(self, *, may_fail: bool = False) -> str | None:
        """Wait until Serve has nothing more to do, or until a replica `may_fail` and does; what Serve says of it."""
        while not (snapshot := await self._look()).is_settled:
            if may_fail and snapshot.failure is not None:
                return snapshot.failure
            await asyncio.sleep(POLL_S)
        return None

    # What is seen ----------------------------------------------------------------------------------------------------

    async def _look(self) -> DeploymentSnapshot:
        snapshot = await self._in_thread(self._application.look)
        self.leaving = snapshot.leaving
        self.deployment = self._seen(snapshot)
        return snapshot

    def _seen(self, snapshot: DeploymentSnapshot) -> Deployment:
        loading = furthest_behind(self._loads[each] for each in snapshot.starting if each in self._loads)
        return Deployment(
            at_s=self._clock(),
            wanted=snapshot.wanted if self._under_way is None else self._under_way.wanted,
            running=len(snapshot.running),
            leaving=len(snapshot.leaving),
            loading=loading,
            is_settled=snapshot.is_settled and self._under_way is None,
            failure=self._failure,
        )

    def _check(self, snapshot: DeploymentSnapshot, scale: Scale, bytes_each: int) -> None:
        if snapshot.is_autoscaled and scale.replicas != snapshot.wanted.replicas:
            raise SettingError("replicas", AUTOSCALED)
        more = scale.replicas - len(snapshot.running) - len(snapshot.starting)
        if more <= 0:
            return
        check_resources(more, snapshot.resources, self._application.free_resources())
        if self._application.is_on_one_machine():
            check_memory(more, bytes_each, free_memory_bytes())

    async def _in_thread(self, call: Callable[..., Answer], *arguments: Any) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *arguments)


def check_resources(more: int, each: Mapping[str, float], free: Mapping[str, float]) -> None:
    """Raise `SettingError` unless Ray can place `more` further replicas that take `each`.

    >>> check_resources(2, {"CPU": 1, "GPU": 1}, {"CPU": 8, "GPU": 1})
    Traceback (most recent call last):
    service.messages.settings.SettingError: replicas: 2 more take 2 of Ray's GPU, of which 1 is free.
    """
    for name, amount in each.items():
        left = free.get(name, 0)
        if more * amount > left:
            taken = f"{more} more take {more * amount:g} of Ray's {name}"
            raise SettingError("replicas", f"{taken}, of which {left:g} {'is' if left == 1 else 'are'} free.")


def check_memory(more: int, bytes_each: int, free_bytes: int) -> None:
    """Raise `SettingError` unless `more` further replicas fit into `free_bytes`; a running one takes `bytes_each`.

    >>> check_memory(2, 600_000_000, 900_000_000)
    Traceback (most recent call last):
    service.messages.settings.SettingError: replicas: 2 more need about 1.2 GB of memory and 0.9 GB are free.
    """
    if more * bytes_each > free_bytes:
        needed = f"{more * bytes_each / 1e9:.1f} GB of memory and {free_bytes / 1e9:.1f} GB are free."
        raise SettingError("replicas", f"{more} more need about {needed}")


_MODEL_ERROR = re.compile(r"^(?:[\w.]+\.)?ModelError: (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class DeploymentSnapshot:
    """What has become of a deployment; replicas have Serve's names."""

    wanted: Scale  # what Serve is bringing about, or has
    running: frozenset[str]
    starting: frozenset[str]
    leaving: frozenset[str]
    resources: Mapping[str, float]  # what each replica takes of Ray's
    is_autoscaled: bool  # Serve itself decides how many replicas there are
    is_settled: bool  # Serve has nothing more to do
    failure: str | None = None  # what it says of a replica that did not start


def reason_of(message: str) -> str:
    """The sentence for the user in what Serve says of a replica that failed: the model's own, or the last line."""
    sentences: list[str] = _MODEL_ERROR.findall(message)
    if sentences:
        return sentences[-1]
    lines = [line.strip() for line in message.splitlines() if line.strip()] or ["no reason was given"]
    return f"The model could not be loaded: {lines[-1].rstrip('.')}. The log says more."
