"""Requests go to the replica whose batch they fit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from ray.serve.config import RequestRouterConfig
from ray.serve.request_router import PendingRequest, RunningReplica

from service.batching.mirror import Mirror, Standing
from service.batching.rules import Rules
from service.messages.settings import Settings
from service.ray_serve import router
from service.ray_serve.doors import PLACE_VARIABLE
from service.ray_serve.router import LOST_AFTER_S, FittingRouter, router_config, routing_stats
from tests.benchmarks.routing import ENGINES, ROUTERS, simulated

SETTINGS = Settings(max_batch_size=3, batch_wait_timeout_s=0.05)
RULES = Rules.of(SETTINGS)


class Clock:
    now_s = 100.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(router, "time", SimpleNamespace(monotonic=lambda: clock.now_s))
    return clock


def replica(name: str, settings: Settings = SETTINGS) -> RunningReplica:
    return cast(RunningReplica, SimpleNamespace(replica_id=name, routing_stats=routing_stats(settings)))


REPLICAS = [replica("a"), replica("b")]


class Routed:
    """A router with the requests that it was asked for."""

    def __init__(self) -> None:
        self.router = FittingRouter.__new__(FittingRouter)  # Serve's own part needs a running Serve
        self.router.initialize_state()

    async def to(self, request: str, replicas: list[RunningReplica] = REPLICAS) -> str:
        """Where it goes; a replica takes it."""
        ranked = await self.ranked(request, replicas)
        self.taken(request, ranked[0][0])
        return ranked[0][0]

    async def ranked(self, request: str, replicas: list[RunningReplica] = REPLICAS, path: str = "/") -> list[list[str]]:
        ranked = await self.router.choose_replicas(replicas, pending(request, path))
        return [[cast(str, each.replica_id) for each in alike] for alike in ranked]

    def taken(self, request: str, name: str) -> None:
        self.router.on_request_routed(pending(request), cast(Any, name), None)

    def ends(self, request: str, name: str) -> None:
        self.router.on_request_completed(cast(Any, name), request)


def pending(request: str, path: str = "/") -> PendingRequest:
    asked = SimpleNamespace(asgi_scope={"path": path, "root_path": ""})
    return cast(PendingRequest, SimpleNamespace(args=[asked], metadata=SimpleNamespace(internal_request_id=request)))


FOUR = [replica(name) for name in "abcd"]


async def test_that_a_request_gets_a_free_engine_as_long_as_a_third_are_free(clock: Clock) -> None:
    routed = Routed()
    places = [await routed.to(f"{number}", FOUR) for number in range(4)]
    assert len(set(places[:3])) == 3
    assert places[3] in places[:3], "one of four is free, and a batch waits for members"


async def test_that_requests_fill_a_batch_that_waits_for_members_and_then_take_the_free_engine(clock: Clock) -> None:
    routed = Routed()
    places = [await routed.to(f"{number}", FOUR) for number in range(6)]
    assert places[4] == places[3], "it is the fullest"
    assert places[5] not in (places[3], places[4]), "that batch is full now"


async def test_that_a_batch_that_leaves_before_a_request_reaches_it_is_not_waited_for(clock: Clock) -> None:
    routed = Routed()
    taken = {await routed.to(f"{number}", FOUR) for number in range(3)}
    clock.now_s += SETTINGS.batch_wait_timeout_s
    assert await routed.to("4", FOUR) not in taken


async def test_that_an_engine_is_free_again_where_its_batch_has_ended(clock: Clock) -> None:
    routed = Routed()
    first, second = await routed.to("1"), await routed.to("2")
    clock.now_s += 0.2
    routed.ends("1", first)
    assert await routed.to("3") == first
    assert first != second


async def test_that_what_waits_behind_running_batches_fills_one_batch_after_the_other(clock: Clock) -> None:
    routed = Routed()
    for request in range(6):
        await routed.to(f"runs {request}")
    behind = [await routed.to(f"waits {request}") for request in range(6)]
    assert len(set(behind[:3])) == 1
    assert len(set(behind[3:])) == 1
    assert behind[0] != behind[3]


async def test_that_the_replica_that_took_it_counts_where_the_chosen_one_was_full(clock: Clock) -> None:
    routed = Routed()
    (best,), (other,) = await routed.ranked("1")
    routed.taken("1", other)
    assert await routed.to("2") == best


async def test_that_a_request_that_is_never_sent_keeps_no_place(clock: Clock) -> None:
    routed = Routed()
    ((best,), _) = await routed.ranked("left before it was sent")
    clock.now_s += LOST_AFTER_S + 0.1
    other = await routed.to("1")
    clock.now_s += LOST_AFTER_S
    await routed.router.choose_replicas(REPLICAS, pending("2"))
    routed.taken("2", best)
    routed.ends("2", best)
    assert await routed.to("3") == best
    assert best != other


async def test_that_a_replica_that_takes_nothing_stays_busy(clock: Clock) -> None:
    routed = Routed()
    ((silent,), _) = await routed.ranked("1")
    for number in range(2, 9):
        clock.now_s += 10 * LOST_AFTER_S
        other = await routed.to(f"{number}")
        routed.ends(f"{number}", other)
        assert other != silent


async def test_that_a_replica_that_has_gone_is_forgotten(clock: Clock) -> None:
    routed = Routed()
    gone = await routed.to("1")
    (rest,) = (each for each in REPLICAS if each.replica_id != gone)
    new = replica("c")
    assert await routed.to("2", [rest, new]) in (rest.replica_id, "c")
    routed.ends("1", gone)


async def test_that_what_waits_in_no_queue_goes_to_any(clock: Clock) -> None:
    routed = Routed()
    (alike,) = await routed.ranked("telemetry", path="/telemetry")
    assert sorted(alike) == ["a", "b"]


async def test_that_the_fewest_requests_decide_where_no_batch_waits_for_members(clock: Clock) -> None:
    routed, continuous = Routed(), Settings(formation="continuous")
    replicas = [replica("a", continuous), replica("b", continuous)]
    assert sorted([await routed.to("1", replicas), await routed.to("2", replicas)]) == ["a", "b"]


@pytest.mark.parametrize(
    "settings", [Settings(formation="early"), Settings(formation="continuous"), Settings(max_concurrent_batches=2)]
)
def test_that_replicas_tell_rules_of_late_batches_alone(settings: Settings) -> None:
    assert routing_stats(settings) == {}


def test_that_a_mirror_holds_what_was_sent_and_has_not_ended() -> None:
    mirror = Mirror()
    for number in range(5):
        mirror.send(str(number), at_s=float(number) / 100)
    assert mirror.standing(RULES, 0.05) == Standing(True, 0, 2), "three run, and two wait behind them"
    mirror.end("0", 0.2)
    mirror.end("4", 0.2)
    assert mirror.held == 3


def test_that_the_router_stands_where_the_proxy_has_this_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PLACE_VARIABLE, "app")
    assert router_config() == RequestRouterConfig()
    monkeypatch.setenv(PLACE_VARIABLE, "proxy")
    assert router_config().request_router_class == f"{FittingRouter.__module__}.{FittingRouter.__name__}"


@pytest.mark.parametrize("replicas", [4, 8])
def test_that_it_answers_sooner_than_by_serves_own_choice(replicas: int) -> None:
    """In simulated time, so it does not depend on the machine."""
    by_ray, fitted = (
        simulated(ENGINES[0], replicas, 0.5, ROUTERS[name](), seed=1) for name in ("Ray's", "fitting as sent")
    )
    assert fitted[0] < 0.9 * by_ray[0]
    assert fitted[2] > by_ray[2], "batches are larger"
