"""What happens in a simulation: a plan that a seed draws, biased to where faults hurt, and the run of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from types import SimpleNamespace
from typing import Any, Final

from ray.serve import batching

from service.engine.stub import StubTimes
from service.messages.load import Cancel, ClosedLoop, Fire, Poisson, RunLoad, StopLoad
from service.messages.settings import Settings
from tests.simulation.checks import Checks
from tests.simulation.clients import LoadProcess, Operator, Reader
from tests.simulation.replica import SimulatedReplica
from tests.simulation.serve import Controller, Network
from tests.simulation.world import World

LOADED: Final = tuple(f"q{number}" for number in range(50))
FORMATIONS: Final = ("late", "early", "continuous")
ORDERS: Final = (":error", ":lost", ":hang")
SPAN_S: Final = 4.0
SETTLES_S: Final = 90.0
"""After the last fault, until every request has ended: an engine that hangs is replaced after 10 s, and what waits for
a replica that was stopped after 30."""
QUIET_S: Final = 6.0
"""Of rest without a break, within which the reader hears of everything: callers notice an end after 2 s, silence counts
after 1.5, a report that failed is repeated within 1, and for a hub that is new once more."""


@dataclass(frozen=True)
class Action:
    """Something that happens at `at_s` after the beginning."""

    at_s: float
    what: str
    details: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Plan:
    """A scenario without its chance: that is the order of callbacks, which comes from the seed as well."""

    seed: int
    settings: Settings
    replicas: int
    times: StubTimes
    actions: tuple[Action, ...]
    room: int  # for as many replicas at a time

    @classmethod
    def of(cls, seed: int) -> Plan:
        random = Random(seed)
        drawn = [_drawn_action(random) for _ in range(random.choice((2, 4, 6, 10)))]
        fires = [
            Action(random.uniform(0.0, SPAN_S / 2), "fire", _fired(random)) for _ in range(random.choice((1, 2, 3)))
        ]
        settings = Settings().revised(_drawn_settings(random, everything=True))
        replicas = random.choice((1, 1, 2, 3))
        times = StubTimes(
            step_ms=random.choice((0.0, 1.0, 20.0, 200.0)),
            row_ms=random.choice((0.0, 1.0)),
            memory_tokens=random.choice((0, 0, 30, 200)),
        )
        room = max(random.choice((1, 2, 3, 4)), replicas)
        swaps = _drawn_swaps(random) if random.random() < 0.25 else []
        actions = sorted(drawn + fires + swaps, key=lambda action: action.at_s)
        return cls(seed, settings, replicas, times, tuple(actions), room)

    def without(self, start: int, count: int) -> Plan:
        return replace(self, actions=self.actions[:start] + self.actions[start + count :])

    def __str__(self) -> str:
        lines = [
            f"seed {self.seed}, {self.replicas} replicas, room for {self.room}, {self.times}",
            f"  {self.settings}",
        ]
        return "\n".join(lines + [f"  {each.at_s:6.3f} s  {each.what} {each.details}" for each in self.actions])


def _fired(random: Random) -> tuple[Any, ...]:
    """How many requests, how many tokens each, and what the first one orders of the stub engine."""
    return random.choice((1, 2, 5, 12)), random.choice((1, 2, 5)), random.choice(("", "", "", *ORDERS))


def _drawn_settings(random: Random, *, everything: bool = False) -> dict[str, object]:
    values: dict[str, Sequence[object]] = {
        "formation": FORMATIONS,
        "max_batch_size": (1, 2, 3, 8),
        "batch_wait_timeout_s": (0.0, 0.01, 0.3),
        "max_batch_tokens": (0, 0, 25),
        "max_concurrent_batches": (1, 1, 2),
        "max_queued_requests": (2, 8, 256),
        "stride_s": (0.0, 0.0, 0.05),
    }
    names = list(values) if everything else random.sample(list(values), random.choice((1, 1, 2)))
    return {name: random.choice(values[name]) for name in names}


def _drawn_swaps(random: Random) -> list[Action]:
    """Formations in a row, each left while its requests still wait: then the older may be in any of them."""
    formation, actions = "", []
    at_s = random.uniform(0.0, SPAN_S / 2)
    gap_s = random.choice((0.05, 0.3))
    for _ in range(random.choice((3, 5))):
        formation = random.choice([each for each in FORMATIONS if each != formation])
        actions += [
            Action(at_s, "change", ({"formation": formation},)),
            Action(at_s + gap_s / 2, "fire", _fired(random)),
        ]
        at_s += gap_s
    return actions


def _drawn_action(random: Random) -> Action:
    """A fault or a change, sooner or later after the requests that it is to meet."""
    at_s = random.uniform(0.0, SPAN_S)
    details: dict[str, Callable[[], tuple[Any, ...]]] = {
        "change": lambda: (_drawn_settings(random),),
        "cancel": lambda: (random.choice((0.2, 1.0)),),
        "kill replica": lambda: (random.randrange(3),),
        "kill hub": lambda: (),
        "stop": lambda: (random.choice(("hub", "replica")), random.choice((0.2, 1.8, 12.0))),
        "scale": lambda: ({"replicas": random.choice((1, 2, 3))},),
        "network": lambda: tuple(map(random.choice, ((0.0, 0.05, 0.3), (0.0, 0.3), (0.001, 0.2, 2.0)))),
        "load": lambda: (random.choice(("users", "rate")), random.choice((2, 6)), random.random() < 0.5),
    }
    kind = random.choice((*details, "change", "change", "cancel"))
    return Action(at_s, kind, details[kind]())


class Simulation:
    """One run of a plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.world = World(plan.seed)
        batching.time = SimpleNamespace(time=self.world.clock)  # by which Ray's decorator waits
        self.network = Network(self.world)
        self.controller = Controller(self.world, self.network, plan.settings, plan.replicas, plan.room, self._replica)
        self.load = LoadProcess(self.world, self.controller)
        self.reader = Reader(self.world, self.controller)
        self.operator = Operator(self.world, self.controller, plan.settings)
        self.checks = Checks(self)
        self._prompts = 0

    def run(self) -> list[str]:
        """Run it to its end; returns what went wrong."""
        if not self._run(lambda: self.reader.last_number is not None, self.world.now_s + SETTLES_S):
            self.checks.fail("nothing has been read")
        begun_s = self.world.now_s
        for action in self.plan.actions:
            self.world.call_at(begun_s + action.at_s, lambda action=action: self._do(action))
        self.world.call_at(begun_s + SPAN_S, lambda: self.load.obey(StopLoad()))
        self._run(lambda: False, begun_s + SPAN_S + 0.1)
        self.network.heal()
        limit_s, was_disturbed = self.world.now_s + SETTLES_S, True
        while was_disturbed and not self.world.faults:  # a replica whose engine is lost seems at rest, and ends later
            if not self._run(self._is_at_rest, limit_s):
                self.checks.fail(f"it has not come to rest: {self.checks.what_is_open()}")
            was_disturbed = self._run(lambda: not self._is_at_rest(), self.world.now_s + QUIET_S)
        self.checks.at_the_end()
        return self.world.faults

    def _run(self, until: Callable[[], bool], limit_s: float) -> bool:
        world, checks = self.world, self.checks

        def step() -> bool:
            checks.after_a_step()
            return until()

        return world.run(step, limit_s)

    def _is_at_rest(self) -> bool:
        if self.load.generator.is_busy or self.operator.is_busy or self.network.unheard:
            return False
        return self.controller.is_at_rest

    def _replica(self, controller: Controller, serve_id: str) -> SimulatedReplica:
        return SimulatedReplica(controller, serve_id, self.plan.times)

    def _do(self, action: Action) -> None:
        match action.what, action.details:
            case "fire", (count, tokens, poison):
                self._prompts += count
                prompts = [f"p{number}" for number in range(self._prompts - count, self._prompts)]
                if poison:
                    prompts[0] += f"stub{poison}"
                self.load.obey(Fire(prompts=tuple(prompts), max_tokens=tokens))
            case "load", (kind, number, stream):
                pattern = ClosedLoop(users=number, think_s=0.1) if kind == "users" else Poisson(rate_per_s=number)
                self.load.obey(RunLoad(pattern=pattern, prompts=LOADED, max_tokens=3, stream=stream))
            case "cancel", (share,):
                flights = [each.id for each in self.load.sender.under_way if self.world.random.random() < share]
                self.load.obey(Cancel(ids=tuple(flights)))
            case "change" | "scale", (changes,):
                self.operator.change(changes)
            case "kill replica", (number,):
                replicas = list(self.controller.replicas.values())
                if replicas:
                    replicas[number % len(replicas)].process.kill()
            case "kill hub", ():
                if self.controller.hub_process is not None:
                    self.controller.hub_process.kill()
            case "stop", ("hub", seconds):
                if self.controller.hub_process is not None:
                    self.controller.hub_process.stop_for(seconds)
            case "stop", ("replica", seconds):
                replicas = list(self.controller.replicas.values())
                if replicas:
                    self.world.random.choice(replicas).process.stop_for(seconds)
            case "network", (loss, doubling, delay_s):
                self.network.loss, self.network.doubling = loss, doubling
                self.network.delays_s = (0.0002, 0.001, delay_s)
            case _:
                raise AssertionError(action)
