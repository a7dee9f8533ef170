"""T01 and T22: an hour of load on a real service of two replicas whose engine is a stub. Only with `--long`."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import psutil
import pytest

from service.messages.heap import set_heap_aside
from tests.service.clients import Clients, Question, asking
from tests.service.conftest import Service, served

TENTHS: Final = 10  # of the load
MINUTES: Final = 6  # of each
MOST_GROWTH_BYTES: Final = 20_000_000
TOO_MANY_PER_S: Final = 600.0  # that two cores cannot answer
CALIBRATION_S: Final = 30.0


@pytest.fixture
def service() -> Iterator[Service]:
    yield from served("--model", "stub?step_ms=2&row_ms=0&prompt_token_ms=0", "--replicas", "2")


@dataclass(frozen=True)
class Moment:
    """What had been by a moment of a long run.

    Attributes:
        service_s, own_s: processor time that the service and this process had taken.
        idle_s, others_s: of all processors, what nobody took, and what others did.
    """

    at_s: float
    service_s: float
    own_s: float
    idle_s: float
    others_s: float

    @classmethod
    def of(cls, service: Service) -> Moment:
        busy, service_s, own_s = psutil.cpu_times(), service.processors_s(), time.process_time()
        idle_s = busy.idle + getattr(busy, "iowait", 0.0)
        return cls(time.monotonic(), service_s, own_s, idle_s, sum(busy) - idle_s - service_s - own_s)


@dataclass(frozen=True)
class Stretch:
    """A part of a long load.

    Attributes:
        took_s: of each request that was to come meanwhile, from when that was.
        wrong: how many requests were not answered to the token.
    """

    took_s: npt.NDArray[np.float64]
    wrong: int
    before: Moment
    after: Moment

    @property
    def p99_s(self) -> float:
        return float(np.percentile(self.took_s, 99))

    @property
    def service_to_own(self) -> float:
        """Processor time of the service for that of this process: the machine's speed drops out."""
        return (self.after.service_s - self.before.service_s) / (self.after.own_s - self.before.own_s)

    def __str__(self) -> str:
        span_s = self.after.at_s - self.before.at_s
        idle, others = (
            (getattr(self.after, name) - getattr(self.before, name)) / (span_s * psutil.cpu_count())
            for name in ("idle_s", "others_s")
        )
        own_ms = 1e3 * (self.after.own_s - self.before.own_s) / len(self.took_s)
        return (
            f"{len(self.took_s) / span_s:.0f}/s, p99 {self.p99_s:.2f} s, {self.wrong} not right, own {own_ms:.2f} ms "
            f"each, service {self.service_to_own:.2f} of that, idle {idle:.0%}, others {others:.0%}"
        )


@pytest.mark.long
@pytest.mark.timeout(3 * 60 * TENTHS * MINUTES)
@pytest.mark.promise("T01", "T22")
async def test_that_an_hour_of_load_leaves_latencies_and_memory_as_they_were(
    service: Service, record_property: Callable[[str, object], None]
) -> None:
    """At 70 % of what is answered where more come, measured before each tenth: a machine's speed is not its promise.

    Nothing else may run meanwhile, not even for seconds. Compared are the last tenth and the first without its first
    minute: the p99, and the service's processor time for a request as a multiple of this process's; and of each
    process of the service its memory after half of the time and at the end.
    """
    seen: list[Callable[[int, int], Stretch]] = []
    for _ in range(TENTHS):
        if len(seen) == TENTHS // 2:
            rss_at_half = service.memory_bytes()
        seen.append(await loaded(service, 0.7 * await most_answered_per_s(service)))
    rss = service.memory_bytes()
    tenths = [of_minutes(0, MINUTES) for of_minutes in seen]
    early, late = seen[0](1, MINUTES), tenths[-1]
    grown_bytes = {pid: rss[pid] - before for pid, before in rss_at_half.items() if pid in rss}
    most = max(grown_bytes, key=lambda pid: grown_bytes[pid])
    sent, wrong = sum(len(each.took_s) for each in tenths), sum(each.wrong for each in tenths)
    record_property(
        "T01",
        f"{sent:,} requests within {TENTHS * MINUTES} minutes, {wrong} not answered to the token; "
        f"minutes 2 to {MINUTES}: {early}; each tenth: {'; '.join(map(str, tenths))}",
    )
    grown = f"{grown_bytes[most] / 1e6:.1f} MB in half of it ({psutil.Process(most).cmdline()[0]})"
    record_property("T22", f"{len(rss)} processes, none of which grew by more than {grown}")
    assert wrong == 0, "at this rate none is refused where nothing else is at work"
    assert rss.keys() == rss_at_half.keys(), "no process has been replaced"
    assert late.p99_s <= 1.25 * early.p99_s
    assert late.service_to_own <= 1.1 * early.service_to_own
    assert grown_bytes[most] <= MOST_GROWTH_BYTES


async def most_answered_per_s(service: Service) -> float:
    async with asking(service) as clients:
        await arrive(clients, TOO_MANY_PER_S, CALIBRATION_S)
    return clients.count()["right"] / (max(clients.ended_s.values()) - min(clients.ended_s.values()))


async def loaded(service: Service, rate_per_s: float) -> Callable[[int, int], Stretch]:
    """Load it for `MINUTES`; returns what was seen from one minute to another."""
    moments: list[Moment] = []

    def at_minute() -> None:
        set_heap_aside()  # with all outcomes, which a collection would visit while requests wait to be sent
        moments.append(Moment.of(service))

    async with asking(service) as clients:
        arrivals_s = await arrive(clients, rate_per_s, MINUTES * 60.0, at_minute)
    asked = [Question(each) for each in range(len(arrivals_s))]
    took_s = np.array([clients.ended_s[each] for each in asked]) - arrivals_s
    is_right = np.array([clients.outcomes[each] == "right" for each in asked])

    def stretch(first: int, last: int) -> Stretch:
        before, after = moments[first], moments[last]
        within = (arrivals_s > before.at_s) & (arrivals_s <= after.at_s)
        return Stretch(took_s[within], int((~is_right[within]).sum()), before, after)

    return stretch


async def arrive(
    clients: Clients,
    rate_per_s: float,
    for_s: float,
    at_minute: Callable[[], object] = lambda: None,
) -> npt.NDArray[np.float64]:
    """Requests that come by chance and wait for no answer; returns when each was to come, once all have ended.

    `at_minute` is called at the begin, after each minute but the last, and at the end.
    """
    drawn, minute, begun_s = random.Random(1), 1, time.monotonic()
    arrivals_s: list[float] = []
    at_s = begun_s
    at_minute()
    async with asyncio.TaskGroup() as group:
        while (at_s := at_s + drawn.expovariate(rate_per_s)) < begun_s + for_s:
            await asyncio.sleep(at_s - time.monotonic())
            group.create_task(clients.ask([Question(len(arrivals_s))], clients=1))
            arrivals_s.append(at_s)
            if at_s - begun_s >= 60.0 * minute:
                minute += 1
                at_minute()
    at_minute()
    return np.array(arrivals_s)
