"""In which order a redeployment is carried out, against a Serve that does at each look what is next."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from service.messages.life import LoadProgress
from service.messages.settings import SCALE_BOUNDS, Scale, SettingError
from service.messages.telemetry import Deployment
from service.ray_serve import redeployer as module
from service.ray_serve.redeployer import (
    DRAIN_TIMEOUT_S,
    USUAL_DRAIN_TIMEOUT_S,
    DeploymentSnapshot,
    Redeployer,
    Redeployment,
)

GPU = {"CPU": 1.0, "GPU": 1.0}
NOW_S = 7.0


class FakeServe:
    """
    Attributes:
        deployed: what it was told to bring about, and its drain timeout.
        holds: those that leave have requests to answer.
        loads: those that start load for ever.
        fails: those that start cannot.
        is_autoscaled: it decides by itself how many there are.
    """

    def __init__(self, replicas: int) -> None:
        self.deployed: list[tuple[int, float]] = []
        self.scale = Scale(replicas=replicas)
        self.running = [f"s{number}" for number in range(replicas)]
        self.starting: list[str] = []
        self.leaving: list[str] = []
        self.holds = self.loads = self.fails = self.is_autoscaled = False
        self._is_told = False

    def look(self) -> DeploymentSnapshot:
        snapshot = DeploymentSnapshot(
            wanted=self.scale,
            running=frozenset(self.running),
            starting=frozenset(self.starting),
            leaving=frozenset(self.leaving),
            resources=GPU,
            is_autoscaled=self.is_autoscaled,
            is_settled=not (self.starting or self.leaving or self._is_told),
            failure="A replica failed to start: ValueError: too large" if self.fails and self.starting else None,
        )
        self._go_on()
        return snapshot

    def deploy(self, scale: Scale, drain_timeout_s: float) -> None:
        self.deployed.append((scale.replicas, drain_timeout_s))
        self.scale, self._is_told = scale, True

    def free_resources(self) -> Mapping[str, float]:
        return {"CPU": 8.0, "GPU": 3.0}

    def is_on_one_machine(self) -> bool:
        return True

    def _go_on(self) -> None:
        if self._is_told:
            self._is_told = False
            more = self.scale.replicas - len(self.running)
            self.starting = [f"n{number}" for number in range(more)]
            self.leaving = self.running[self.scale.replicas :]
            self.running = self.running[: self.scale.replicas]
        elif not (self.loads or self.fails):
            self.running += self.starting
            self.starting = []
        if not self.holds:
            self.leaving = []


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_S", 0.0)


class Watched:
    def __init__(self, serve: FakeServe, loads: Mapping[str, LoadProgress] | None = None) -> None:
        self.kept: list[Redeployment | None] = []
        self.redeployer = Redeployer(serve, loads or {}, self._keep, clock=lambda: NOW_S)
        self.seen: list[Deployment] = []

    async def _keep(self, redeployment: Redeployment | None) -> None:
        self.kept.append(redeployment)

    async def until_settled(self) -> Deployment:
        while True:
            seen = await self.redeployer.look()
            self.seen.append(seen)
            if seen.is_settled:
                return seen


async def test_that_more_replicas_are_deployed_at_once() -> None:
    serve = FakeServe(1)
    watched = Watched(serve)
    begun = await watched.redeployer.redeploy({"replicas": 3}, bytes_each=1)
    assert (begun.wanted.replicas, begun.running, begun.is_settled) == (3, 1, False)
    settled = await watched.until_settled()
    assert (settled.wanted.replicas, settled.running, settled.failure) == (3, 3, None)
    assert serve.deployed == [(3, USUAL_DRAIN_TIMEOUT_S)]
    assert watched.kept == [Redeployment(Scale(replicas=3), before=Scale(replicas=1)), None]


async def test_that_a_change_is_taken_while_serve_starts_its_replicas_anew() -> None:
    """As after the death of its controller, which then knows of no replica that runs."""
    serve = FakeServe(2)
    serve.running, serve.starting = [], serve.running
    watched = Watched(serve)
    begun = await watched.redeployer.redeploy({"max_ongoing_requests": 50}, bytes_each=1)
    assert (begun.wanted, begun.running) == (Scale(replicas=2, max_ongoing_requests=50), 0)
    settled = await watched.until_settled()
    assert (settled.wanted.max_ongoing_requests, settled.running, settled.failure) == (50, 2, None)


async def test_that_what_cannot_start_is_not_gone_back_to_where_no_replica_runs() -> None:
    """A second replica cannot start, the first one dies, and something else is wanted meanwhile."""
    serve = FakeServe(1)
    serve.fails = True
    watched = Watched(serve)
    await watched.redeployer.redeploy({"replicas": 2}, bytes_each=1)
    while not serve.starting:
        await watched.redeployer.look()
    serve.running = []
    await watched.redeployer.redeploy({"max_ongoing_requests": 50}, bytes_each=1)
    while len(watched.kept) < 2:
        await watched.redeployer.look()
    assert watched.kept[1] == Redeployment(Scale(replicas=2, max_ongoing_requests=50), before=Scale(replicas=1))


async def test_that_the_longer_drain_timeout_is_in_force_just_while_a_replica_leaves() -> None:
    serve = FakeServe(2)
    serve.holds = True
    watched = Watched(serve)
    await watched.redeployer.redeploy({"replicas": 1, "max_ongoing_requests": 50}, bytes_each=1)
    while not (await watched.redeployer.look()).leaving:
        pass
    assert watched.redeployer.leaving == {"s1"}
    assert serve.deployed == [(2, DRAIN_TIMEOUT_S), (1, DRAIN_TIMEOUT_S)]
    serve.leaving = []
    settled = await watched.until_settled()
    assert watched.redeployer.leaving == frozenset()
    assert serve.deployed[2:] == [(1, USUAL_DRAIN_TIMEOUT_S)]
    assert (settled.wanted, settled.running) == (Scale(replicas=1, max_ongoing_requests=50), 1)


async def test_that_what_is_wanted_meanwhile_takes_the_place_of_what_is_under_way() -> None:
    serve = FakeServe(1)
    serve.loads = True
    watched = Watched(serve, {"n0": LoadProgress("layers", 12, 30), "old": LoadProgress("layers", 1, 30)})
    await watched.redeployer.redeploy({"replicas": 2}, bytes_each=1)
    while (seen := await watched.redeployer.look()).loading is None:
        pass
    assert seen.loading == LoadProgress(unit="layers", done=12, total=30)
    begun = await watched.redeployer.redeploy({"max_ongoing_requests": 9}, bytes_each=1)
    assert begun.wanted == Scale(replicas=2, max_ongoing_requests=9)
    await watched.redeployer.redeploy({"replicas": 1}, bytes_each=1)
    settled = await watched.until_settled()
    assert (settled.wanted, settled.running) == (Scale(replicas=1, max_ongoing_requests=9), 1)


async def test_that_a_replica_that_cannot_start_is_taken_back_with_the_reason_until_the_next() -> None:
    serve = FakeServe(1)
    serve.fails = True
    watched = Watched(serve)
    await watched.redeployer.redeploy({"replicas": 2, "max_ongoing_requests": 9}, bytes_each=1)
    settled = await watched.until_settled()
    assert (settled.wanted, settled.running) == (Scale(replicas=1), 1)
    assert "too large" in str(settled.failure)
    serve.fails = False
    assert (await watched.redeployer.redeploy({"replicas": 2}, bytes_each=1)).failure is None
    assert (await watched.until_settled()).failure is None


async def test_that_what_another_one_had_begun_is_taken_back_too_where_a_replica_cannot_start() -> None:
    serve = FakeServe(1)
    serve.fails = True
    serve.deploy(Scale(replicas=2), USUAL_DRAIN_TIMEOUT_S)
    watched = Watched(serve)
    watched.redeployer.go_on(Redeployment(Scale(replicas=2), before=Scale(replicas=1)))
    settled = await watched.until_settled()
    assert (settled.wanted, settled.running) == (Scale(replicas=1), 1)
    assert "too large" in str(settled.failure)


async def test_that_no_replica_is_started_again_that_another_one_had_let_leave() -> None:
    serve = FakeServe(2)
    serve.deploy(Scale(replicas=1), DRAIN_TIMEOUT_S)
    watched = Watched(serve)
    watched.redeployer.go_on(Redeployment(Scale(replicas=1), before=Scale(replicas=2)))
    assert (await watched.until_settled()).running == 1
    assert [replicas for replicas, _ in serve.deployed] == [1, 1, 1]
    assert serve.deployed[-1] == (1, USUAL_DRAIN_TIMEOUT_S)


@pytest.mark.parametrize(
    ("changes", "bytes_each", "rule"),
    [
        ({"replicas": 65}, 1, "Must be a whole number from 1 to 64."),
        ({"replicas": 5}, 1, "4 more take 4 of Ray's GPU, of which 3 are free."),
        ({"replicas": 2}, 10**15, "1 more need about 1000000.0 GB of memory and "),
        ({"copies": 2}, 1, "Unknown here. What takes a redeployment are replicas and max_ongoing_requests."),
    ],
)
async def test_that_a_refusal_changes_nothing(changes: dict[str, object], bytes_each: int, rule: str) -> None:
    serve = FakeServe(1)
    redeployer = Watched(serve).redeployer
    with pytest.raises(SettingError) as refusal:
        await redeployer.redeploy(changes, bytes_each)
    assert refusal.value.rule.startswith(rule)
    assert serve.deployed == []
    assert (await redeployer.look()).is_settled


async def test_that_serve_is_left_to_scale_where_it_does_and_what_else_is_wanted_is_deployed() -> None:
    serve = FakeServe(1)
    serve.is_autoscaled = True
    watched = Watched(serve)
    with pytest.raises(SettingError, match="autoscaling_config"):
        await watched.redeployer.redeploy({"replicas": 2, "max_ongoing_requests": 9}, bytes_each=1)
    assert serve.deployed == []
    await watched.redeployer.redeploy({"max_ongoing_requests": 9}, bytes_each=1)
    assert (await watched.until_settled()).wanted == Scale(replicas=1, max_ongoing_requests=9)


async def test_that_what_is_so_already_is_not_deployed_again() -> None:
    serve = FakeServe(2)
    answer = await Watched(serve).redeployer.redeploy({"replicas": 2}, bytes_each=10**15)
    assert (answer.is_settled, serve.deployed) == (True, [])


async def test_that_what_is_seen_bears_the_time_of_the_given_clock() -> None:
    assert (await Watched(FakeServe(1)).redeployer.look()).at_s == NOW_S


async def test_that_the_known_replicas_are_those_that_run_start_or_leave() -> None:
    serve = FakeServe(1)
    serve.starting, serve.leaving = ["n0"], ["s1"]
    serve.holds = serve.loads = True
    redeployer = Watched(serve).redeployer
    assert await redeployer.known() == {"s0", "n0", "s1"}
    serve.leaving = []
    assert await redeployer.known() == {"s0", "n0"}


async def test_that_a_redeployment_that_breaks_off_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    serve = FakeServe(1)

    def deploy(_scale: Scale, _drain_timeout_s: float) -> None:
        raise ConnectionError("the controller is gone")

    monkeypatch.setattr(serve, "deploy", deploy)
    watched = Watched(serve)
    await watched.redeployer.redeploy({"replicas": 2}, bytes_each=1)
    settled = await watched.until_settled()
    assert settled.failure == "The redeployment broke off: the controller is gone"
    assert settled.wanted == Scale(replicas=1)


async def test_that_looking_on_ends_when_serve_is_done() -> None:
    serve = FakeServe(1)
    serve.starting = ["n0"]
    watched = Watched(serve)
    others = asyncio.all_tasks()
    watched.redeployer.watch()
    (looking_on,) = asyncio.all_tasks() - others
    await looking_on
    assert watched.redeployer.deployment is not None
    assert (watched.redeployer.deployment.running, watched.redeployer.deployment.is_settled) == (2, True)


@pytest.mark.parametrize("field", list(SCALE_BOUNDS))
@pytest.mark.parametrize("value", [None, True, "8", 0, -1, 1.5, float("nan"), 10**400, []], ids=repr)
def test_that_nonsense_is_refused_and_the_field_is_named(field: str, value: object) -> None:
    with pytest.raises(SettingError) as refusal:
        Scale().revised({field: value})
    assert refusal.value.field == field
    assert "Must be a whole number" in refusal.value.rule
