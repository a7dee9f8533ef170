"""The hub without Ray: what replicas are called, also by a hub that is restarted while they live."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from service.messages.settings import Scale, Settings, VersionedSettings
from service.ray_serve.redeployer import DeploymentSnapshot
from service.replica import frames
from service.replica import hub as module
from service.replica.hub import NAMES_TIMEOUT_S, ReplicaNames
from service.replica.recorder import Recorder
from tests.unit.test_telemetry import DECODER, status
from tests.virtual_time import now_s, run_in_virtual_time

AS_CHANGED = VersionedSettings(version=7, settings=Settings(max_batch_size=3))


class Serve:
    """An application whose replicas start and end as the test says; the controller outlives every hub."""

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.starting: set[str] = set()
        self.failure: Exception | None = None
        self.meanwhile: Callable[[], object] = lambda: None
        self._asked = threading.Event()

    async def asked_again(self) -> None:
        """Return when its replicas have been asked for since."""
        self._asked.clear()
        await asyncio.to_thread(self._asked.wait)

    def look(self) -> DeploymentSnapshot:
        running, starting = frozenset(self.running), frozenset(self.starting)
        self._asked.set()
        if self.failure is not None:
            raise self.failure
        self.meanwhile()
        return DeploymentSnapshot(
            wanted=Scale(replicas=max(len(running), 1)),
            running=running,
            starting=starting,
            leaving=frozenset(),
            resources={},
            is_autoscaled=False,
            is_settled=True,
        )


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Serve:
    application = Serve()
    context = SimpleNamespace(app_name="app")
    monkeypatch.setattr(module, "serve", SimpleNamespace(get_replica_context=lambda: context))
    monkeypatch.setattr(module, "ServeApplication", lambda name, scaled: application)
    monkeypatch.setattr(module, "keep_replica_on_loopback", lambda: None)
    return application


def started_hub() -> Any:
    deployment: Any = module.Hub
    return deployment.func_or_class(Settings())


async def test_a_name_is_given_once_also_by_a_restarted_hub_that_hears_of_a_new_replica_first(serve: Serve) -> None:
    first = started_hub()
    old = []
    for replica in ("a", "b"):
        old.append((await first.register(replica))[0])
        serve.running.add(replica)

    restarted = started_hub()
    new = asyncio.create_task(restarted.register("c"))
    followers = [
        asyncio.create_task(restarted.follow(replica, name, AS_CHANGED))
        for replica, name in zip(("a", "b"), old, strict=True)
    ]
    name, in_force = await new
    assert [*old, name] == ["r1", "r2", "r3"]
    assert in_force == AS_CHANGED, "it gets the settings that the others held"
    for follower in followers:
        follower.cancel()


async def test_a_replica_that_has_ended_is_not_waited_for(serve: Serve) -> None:
    serve.running |= {"a", "b"}
    restarted = started_hub()
    new = asyncio.create_task(restarted.register("c"))
    follower = asyncio.create_task(restarted.follow("a", "r5", AS_CHANGED))
    serve.running.remove("b")
    assert (await new)[0] == "r6"
    follower.cancel()


def test_replicas_that_start_together_have_names_of_their_own() -> None:
    async def run() -> set[str]:
        async def living() -> frozenset[str]:
            await asyncio.sleep(0.01)
            return frozenset()

        given = ReplicaNames(living)
        return set(await asyncio.gather(*(given.give(replica) for replica in "abc")))

    assert run_in_virtual_time(run()) == {"r1", "r2", "r3"}


def test_a_replica_that_never_reports_keeps_nobody_from_starting(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> float:
        async def living() -> frozenset[str]:
            return frozenset({"silent"})

        await ReplicaNames(living).give("new")
        return now_s()

    assert run_in_virtual_time(run()) == pytest.approx(NAMES_TIMEOUT_S)
    assert "reported its name" in caplog.text


async def test_a_silent_replica_is_lost_when_serve_knows_it_no_more_and_late_until_then(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "SILENCE_S", 0.0)
    monkeypatch.setattr(module, "SILENT_POLL_S", 0.01)
    hub = started_hub()
    for replica in ("late", "ended", "starting"):
        name, _ = await hub.register(replica)
        serve.running.add(replica)
        await hub.report(Recorder(name).report(status(name)))
    serve.starting.add("starting")  # before it leaves the others: it may be asked between
    serve.running.remove("starting")
    await serve.asked_again()
    serve.running.remove("ended")
    assert await first_lost(hub) == ("r2",)


async def test_a_replica_that_comes_while_serve_is_asked_of_another_is_not_lost(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "SILENCE_S", 0.0)
    monkeypatch.setattr(module, "SILENT_POLL_S", 0.01)
    hub = started_hub()
    for replica in ("late", "ended"):
        name, _ = await hub.register(replica)
        serve.running.add(replica)
        await hub.report(Recorder(name).report(status(name)))
    await serve.asked_again()
    serve.running.remove("ended")
    followers = []
    loop = asyncio.get_running_loop()

    async def come() -> None:
        followers.append(asyncio.create_task(hub.follow("new", "r3", AS_CHANGED)))
        serve.running.add("new")
        await hub.report(Recorder("r3").report(status("r3")))

    def come_once() -> None:
        if not followers:
            asyncio.run_coroutine_threadsafe(come(), loop).result(timeout=10.0)

    serve.meanwhile = come_once
    assert await first_lost(hub) == ("r2",)
    followers[0].cancel()


async def first_lost(hub: Any) -> tuple[str, ...]:
    """The names of the replicas that the first frame with any calls lost."""
    number, lost = 0, ()
    while not lost:
        number, events = await hub.frames_after("late", number)
        lost = tuple(replica for event in events for replica in DECODER.decode(event).lost_replicas)
    return lost


async def test_a_controller_that_does_not_answer_loses_no_replica(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(frames, "SILENCE_S", 0.0)
    monkeypatch.setattr(module, "SILENT_POLL_S", 0.01)
    hub = started_hub()
    name, _ = await hub.register("a")
    await hub.report(Recorder(name).report(status(name)))
    serve.failure = RuntimeError("the controller is gone")
    await serve.asked_again()
    await serve.asked_again()
    await hub.check_health()
    assert "Serve does not say whether r1 has ended: the controller is gone" in caplog.text
    assert not any(DECODER.decode(event).lost_replicas for event in (await hub.frames_after("a", 0))[1])
