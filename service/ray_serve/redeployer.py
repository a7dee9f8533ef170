"""Redeploying while requests are served: what is done in which order, and how far it is. Knows no Ray."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol, TypeVar

import msgspec
import psutil

from service.messages.life import LoadProgress, furthest_behind
from service.messages.settings import Scale, SettingError
from service.messages.telemetry import Deployment, Loading
from service.ray_serve.capacity import check_memory, check_resources
from service.ray_serve.snapshot import Sight, reason_of

logger = logging.getLogger(__name__)

USUAL_PATIENCE_S: Final = 2.0
"""What a replica is given to answer what it holds when the whole service ends."""

PATIENCE_S: Final = 630.0
"""What it is given when it alone leaves: more than any request lives."""

POLL_S: Final = 0.25

AUTOSCALED: Final = "Ray Serve decides how many there are here; deploy another autoscaling_config to change that."

Answer = TypeVar("Answer")


class Application(Protocol):
    """What is redeployed. All of it blocks."""

    def look(self) -> Sight: ...
    def deploy(self, scale: Scale, patience_s: float) -> None: ...
    def free_resources(self) -> Mapping[str, float]: ...
    def is_on_one_machine(self) -> bool: ...


class NotStartedError(Exception):
    """A replica could not start; the text is a sentence for the user."""


class Redeployer:
    """Carries out one redeployment at a time; a new one takes the place of the one under way.

    Nothing that is queued is lost: replicas that stay are changed as they run, and one that leaves gets no more
    requests and answers those it holds.

    Attributes:
        deployment: as it was seen last; ``None`` until then.
        leaving: Serve's names for the replicas that leave.
    """

    def __init__(
        self, application: Application, loads: Mapping[str, LoadProgress], on_left: Callable[[str], None]
    ) -> None:
        """`loads`: of replicas by Serve's names for them; `on_left` is told that of one that has left as asked."""
        self.deployment: Deployment | None = None
        self.leaving: frozenset[str] = frozenset()
        self._application = application
        self._loads = loads
        self._on_left = on_left
        self._aim: Scale | None = None  # of what is under way
        self._failure: str | None = None
        self._work: asyncio.Task[None] | None = None
        self._one_at_a_time = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, "redeployer")  # one: what is asked first is done first

    async def redeploy(self, changes: Mapping[str, object], bytes_each: int) -> Deployment:
        """Begin to bring `changes` about, and tell how it stands; raises `SettingError`, and then nothing changes.

        Args:
            bytes_each: what a replica takes of its machine's memory.
        """
        async with self._one_at_a_time:
            sight = await self._look()
            scale = self._seen(sight).wanted.revised(changes)
            if scale != self._seen(sight).wanted:
                await self._in_thread(self._check, sight, scale, bytes_each)
                self._aim, self._failure = scale, None
                self._begin(self._carry_out(sight, scale))
            return self._seen(sight)

    async def look(self) -> Deployment:
        """How it stands now."""
        return self._seen(await self._look())

    def watch(self) -> None:
        """Look on until Serve is done with what it does by itself, such as starting a replica."""
        if self._work is None or self._work.done():
            self._begin(self._settle())

    # One after the other ---------------------------------------------------------------------------------------------

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        if self._work is not None:
            self._work.cancel()
        self._work = asyncio.create_task(work)

    async def _carry_out(self, before: Sight, scale: Scale) -> None:
        running = len(before.running)
        try:
            if scale.replicas < running:
                await self._let_leave(scale, running)
            await self._deploy(scale, USUAL_PATIENCE_S)
            await self._settle(may_fail=True)
        except NotStartedError as error:
            await self._deploy(_with_replicas(before.wanted, running), USUAL_PATIENCE_S)
            await self._settle()
            self._failure = str(error)
        except Exception as error:  # of Ray's, whose controller may be gone
            logger.exception("A redeployment broke off")
            self._failure = f"The redeployment broke off: {error}"
        self._aim = None
        await self._look()

    async def _let_leave(self, scale: Scale, running: int) -> None:
        """Serve gives a replica the time that was in force before it was told to leave: so that comes first."""
        await self._deploy(_with_replicas(scale, running), PATIENCE_S)
        await self._settle()
        await self._deploy(scale, PATIENCE_S)
        await self._settle()

    async def _deploy(self, scale: Scale, patience_s: float) -> None:
        await self._in_thread(self._application.deploy, scale, patience_s)

    async def _settle(self, *, may_fail: bool = False) -> None:
        while not (sight := await self._look()).is_settled:
            if may_fail and sight.failure is not None:
                raise NotStartedError(reason_of(sight.failure))
            await asyncio.sleep(POLL_S)

    # What is seen ----------------------------------------------------------------------------------------------------

    async def _look(self) -> Sight:
        sight = await self._in_thread(self._application.look)
        if self._aim is not None:
            for replica in self.leaving - sight.leaving:
                self._on_left(replica)
        self.leaving = sight.leaving
        self.deployment = self._seen(sight)
        return sight

    def _seen(self, sight: Sight) -> Deployment:
        loading = furthest_behind(self._loads[each] for each in sight.starting if each in self._loads)
        return Deployment(
            at_s=time.monotonic(),
            wanted=self._aim or sight.wanted,
            running=len(sight.running),
            leaving=len(sight.leaving),
            loading=Loading(**loading._asdict()) if loading is not None else None,
            is_settled=sight.is_settled and self._aim is None,
            failure=self._failure,
        )

    def _check(self, sight: Sight, scale: Scale, bytes_each: int) -> None:
        if sight.is_autoscaled and scale.replicas != sight.wanted.replicas:
            raise SettingError("replicas", AUTOSCALED)
        more = scale.replicas - len(sight.running) - len(sight.starting)
        if more <= 0:
            return
        check_resources(more, sight.resources, self._application.free_resources())
        if self._application.is_on_one_machine():
            check_memory(more, bytes_each, psutil.virtual_memory().available)

    async def _in_thread(self, call: Callable[..., Answer], *arguments: Any) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *arguments)


def _with_replicas(scale: Scale, replicas: int) -> Scale:
    return msgspec.structs.replace(scale, replicas=replicas)
