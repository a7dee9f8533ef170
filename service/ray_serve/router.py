"""Sends each request to the replica whose batch it fits, with Ray Serve's custom request router.

Serve's own router takes the replica with fewer requests of two. A request so often begins a batch of its own while
another replica waits for members, and goes behind a running batch while another replica is idle. This router knows what
it sent to each replica and what has ended, and follows the rules of the queue there: so it knows which batch waits for
members, and which engine is free. `python -m tests.benchmarks.routing` compares them.

It knows only what it sent itself: where several proxies or handles send to the same replicas, each knows its part.
"""

from __future__ import annotations

import os
import random
import time
from operator import itemgetter
from typing import Any, Final

from ray.serve.config import RequestRouterConfig
from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from service.batching.mirror import Mirror, Standing, fitted_rules, ranks
from service.batching.rules import Rules
from service.messages.settings import Settings
from service.ray_serve.doors import PLACE_VARIABLE, is_queued

STATS_PERIOD_S: Final = 2.0
TOLD: Final = ("max_batch_size", "batch_wait_timeout_s", "stride_s")  # of the rules
LOST_AFTER_S: Final = 1.0
"""What was to be sent so long before a request that a replica has taken, and was not taken, is not coming any more."""


class FittingRouter(RequestRouter):
    """Ranks the replicas for each request; what waits in no queue goes to any."""

    def initialize_state(self, **kwargs: Any) -> None:
        """Called by Serve, after `__init__`."""
        self._mirrors: dict[ReplicaID, Mirror] = {}
        self._chosen: dict[str, tuple[ReplicaID, float]] = {}  # for each request that waits or runs
        self._not_taken: dict[str, float] = {}  # since when

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        shuffled = random.sample(candidate_replicas, len(candidate_replicas))  # of those alike no one is preferred
        if len(shuffled) <= 1 or pending_request is None or not _is_queued(pending_request):
            return [shuffled]
        at_s = time.monotonic()
        self._mirrors = {each.replica_id: self._mirrors.get(each.replica_id) or Mirror() for each in shuffled}
        ranking = zip(ranks([self._standing(each, at_s) for each in shuffled]), shuffled, strict=True)
        ranked = [each for _, each in sorted(ranking, key=itemgetter(0))]
        self._send(pending_request.metadata.internal_request_id, ranked[0].replica_id, at_s)
        return [[each] for each in ranked]

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any) -> None:
        """A replica has taken it: the best, or another where that one was full.

        What it should have taken before has no client any more. A replica that stands still takes nothing, and keeps
        what was sent to it.
        """
        request = pending_request.metadata.internal_request_id
        if request not in self._chosen:
            return
        chosen, at_s = self._chosen[request]
        if chosen != replica_id:
            self._send(request, replica_id, at_s)
        del self._not_taken[request]
        for other, since_s in list(self._not_taken.items()):
            if since_s < at_s - LOST_AFTER_S and self._chosen[other][0] == replica_id:
                self._end(other, at_s)

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        """It was answered, or has failed, or its client has left."""
        self._end(internal_request_id, time.monotonic())

    def _standing(self, replica: RunningReplica, at_s: float) -> Standing:
        rules = Rules(**replica.routing_stats) if replica.routing_stats else None
        return self._mirrors[replica.replica_id].standing(rules, at_s)

    def _send(self, request: str, replica: ReplicaID, at_s: float) -> None:
        self._end(request, at_s)
        self._chosen[request] = replica, at_s
        self._not_taken[request] = at_s
        self._mirrors.setdefault(replica, Mirror()).send(request, at_s)

    def _end(self, request: str, at_s: float) -> None:
        self._not_taken.pop(request, None)
        replica, _ = self._chosen.pop(request, (None, 0.0))
        if replica is not None and replica in self._mirrors:
            self._mirrors[replica].end(request, at_s)


def routing_stats(settings: Settings) -> dict[str, Any]:
    """What a replica tells the router, which hears it within `STATS_PERIOD_S`; empty where no batch can be fitted."""
    rules = fitted_rules(settings)
    return {} if rules is None else {name: getattr(rules, name) for name in TOLD}


def routes_to_fit() -> bool:
    """Whether this router stands in the proxy: not on a cluster of others, whose proxies need not have this class."""
    return os.environ.get(PLACE_VARIABLE) == "proxy"


def router_config() -> RequestRouterConfig:
    """For a deployment whose replicas tell `routing_stats`."""
    options: dict[str, Any] = {
        "request_router_class": FittingRouter,
        "request_routing_stats_period_s": STATS_PERIOD_S,
    }
    return RequestRouterConfig(**options) if routes_to_fit() else RequestRouterConfig()


def _is_queued(pending: PendingRequest) -> bool:
    """Whether it waits in a replica's queue: a call by a handle, or a request to be answered by the engine."""
    scope = getattr(pending.args[0], "asgi_scope", None) if pending.args else None
    return scope is None or is_queued(scope)
