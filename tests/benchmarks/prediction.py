"""Predictions of settings that were not seen, held against measurements of them on the real service.

python -m tests.benchmarks.prediction [steady | sparse | closed | joining | leaving …]

For each load the service is observed under one setting; what that predicts for others is then measured with the same
generator and the same seed. Where the engine itself was slower or faster than while it was observed, because somebody
else used the processor, both are done again, three times at most; `machine` tells by what factor. No prediction can
know such a change: where it stays, what would have been predicted at that speed is told as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from service.analysis.observed.descriptions import format_length
from service.analysis.observed.history import History
from service.analysis.predict.observation import Observation
from service.analysis.predict.predict import Prediction, Predictor
from service.analysis.predict.prediction_report import Measured, measured
from service.commands.remote import RemoteService
from service.messages.clock import monotonic_clock_id
from service.messages.load import (
    USUAL_PROMPTS,
    ClosedLoop,
    Length,
    LoadEvent,
    LoadFrame,
    Pattern,
    Poisson,
    RunLoad,
    StopLoad,
    UniformLength,
)
from service.messages.settings import Settings
from service.messages.telemetry import FramesMissed
from tests.benchmarks.measure import batchscope

SAME_MACHINE: Final = 0.08
REPEATS: Final = 3
WARM_UP_S: Final = 8.0
BOUNDS: Final = {"p50_s": 0.15, "p95_s": 0.25, "requests_per_s": 0.15}


@dataclass(frozen=True)
class Scenario:
    """A load, the settings under which it is observed, and those it is predicted and measured for.

    Attributes:
        settled_s: after which time what is measured counts; users that all come at once are no steady state.
    """

    pattern: Pattern
    tokens: Length
    seconds: float
    observed: Settings
    unseen: tuple[Settings, ...]
    settled_s: float = 0.0

    @property
    def load(self) -> RunLoad:
        return RunLoad(pattern=self.pattern, prompts=USUAL_PROMPTS, max_tokens=self.tokens, seed=7)


def late(max_batch_size: int, batch_wait_timeout_s: float) -> Settings:
    return Settings(max_batch_size=max_batch_size, batch_wait_timeout_s=batch_wait_timeout_s)


def early(max_batch_size: int, batch_wait_timeout_s: float) -> Settings:
    return Settings(formation="early", max_batch_size=max_batch_size, batch_wait_timeout_s=batch_wait_timeout_s)


def continuous(max_batch_size: int, batch_wait_timeout_s: float) -> Settings:
    return Settings(formation="continuous", max_batch_size=max_batch_size, batch_wait_timeout_s=batch_wait_timeout_s)


VARIED: Final = UniformLength(low=8, high=64)
SCENARIOS: Final = {
    "steady": Scenario(Poisson(rate_per_s=3.0), 24, 45.0, late(16, 0.05), (late(6, 0.2), late(32, 0.5), late(8, 0.0))),
    "sparse": Scenario(Poisson(rate_per_s=1.5), 8, 45.0, late(16, 0.05), (early(8, 0.5), early(16, 0.1), late(1, 0.0))),
    "closed": Scenario(
        ClosedLoop(users=12),
        24,
        40.0,
        late(8, 0.0),
        (late(16, 0.05), early(16, 0.2), late(4, 0.1), late(32, 0.5)),
        8.0,
    ),
    "joining": Scenario(
        Poisson(rate_per_s=3.0), VARIED, 35.0, late(16, 0.05), (continuous(16, 0.05), continuous(6, 0.0))
    ),
    "leaving": Scenario(
        Poisson(rate_per_s=3.0), VARIED, 35.0, continuous(16, 0.0), (continuous(6, 0.0), late(16, 0.05))
    ),
}


@dataclass(frozen=True)
class Seen:
    """One run: what was observed of it, and what was measured."""

    observation: Observation
    measured: Measured


async def run(url: str, remote: RemoteService, settings: Settings, scenario: Scenario) -> tuple[History, float]:
    """Put `settings` in force and send the scenario's load, as the window would; since when it was sent."""
    await remote.change(msgspec.structs.asdict(settings))
    history = History(monotonic_clock_id())
    async with _telemetry(remote, history), _generator(url, history) as generator:
        assert generator.stdin is not None
        generator.stdin.write(msgspec.json.encode(scenario.load) + b"\n")
        await until(lambda: bool(history.load_timeline.marks))
        begin_s = history.load_timeline.marks[0].at_s
        await asyncio.sleep(begin_s + scenario.seconds - history.now_s())
        generator.stdin.write(msgspec.json.encode(StopLoad()) + b"\n")
        await until(lambda: history.load is not None and is_over(history.load))
        await asyncio.sleep(0.5)  # the last telemetry
    return history, begin_s


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 — what is waited for comes with frames, 20 a second
        await asyncio.sleep(0.02)


def is_over(frame: LoadFrame) -> bool:
    return frame.pattern is None and not frame.totals.outstanding


async def see(url: str, remote: RemoteService, settings: Settings, scenario: Scenario) -> Seen:
    history, begin_s = await run(url, remote, settings, scenario)
    end_s = begin_s + scenario.seconds
    observation = Observation.of_history(history, end_s, scenario.seconds)
    assert observation is not None
    return Seen(observation, measured(history, begin_s + scenario.settled_s, end_s))


@contextlib.asynccontextmanager
async def _telemetry(remote: RemoteService, history: History) -> AsyncIterator[None]:
    async def feed() -> None:
        async for event in remote.telemetry():
            if isinstance(event, FramesMissed):
                raise SystemExit("Telemetry was missed: this machine is too busy to measure on.")
            history.add_telemetry(event)

    task = asyncio.create_task(feed())
    await until(lambda: history.first_s is not None)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextlib.asynccontextmanager
async def _generator(url: str, history: History) -> AsyncIterator[asyncio.subprocess.Process]:
    command = (sys.executable, "-m", "service", "load", "--control", "--url", url)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, limit=2**24)
    decoder: msgspec.json.Decoder[LoadEvent] = msgspec.json.Decoder(LoadEvent)

    async def feed() -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            if isinstance(frame := decoder.decode(line), LoadFrame):
                history.add_load(frame)

    task = asyncio.create_task(feed())
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()
        await task


def at_speed(predictor: Predictor, factor: float) -> Predictor:
    """The same predictor, had it known how fast the engine would be."""
    return replace(predictor, cost=predictor.cost.slower(factor))


def compare(settings: Settings, prediction: Prediction, was: Measured, factor: float) -> bool:
    """Print a line; whether the prediction holds."""
    holds, told = True, []
    for name, bound in BOUNDS.items():
        value, truth = getattr(prediction, name).value, getattr(was, name)
        error = value / truth - 1.0
        holds &= abs(error) <= bound
        told.append(f"{value:6.2f} {truth:6.2f} {error:+6.1%}")
    batch = f"{prediction.mean_batch.value:5.1f} {was.mean_batch or 0.0:5.1f}"
    name = f"{settings.formation} {settings.max_batch_size} {settings.batch_wait_timeout_s:g}"
    verdict = "holds" if holds else "FAILS"
    print(f"{name:14}  {'   '.join(told)}   {batch}   ×{factor:4.2f} {os.getloadavg()[0]:5.2f}  {verdict}", flush=True)
    return holds


def hold(predictor: Predictor, settings: Settings, seen: Seen) -> tuple[bool, bool]:
    """Whether what is predicted is what was measured, as predicted and at the speed that the engine then had."""
    factor = predictor.cost.factor(seen.observation.executed)
    holds = compare(settings, predictor.predict(settings), seen.measured, factor)
    if abs(factor - 1.0) <= SAME_MACHINE:
        return holds, holds
    print("at that speed:")
    return holds, compare(settings, at_speed(predictor, factor).predict(settings), seen.measured, 1.0)


async def check(url: str, scenario: Scenario) -> list[tuple[bool, bool]]:
    """The verdicts on the settings that were not seen."""
    verdicts = []
    async with RemoteService(url) as remote:
        await run(url, remote, scenario.observed, replace(scenario, seconds=WARM_UP_S))
        observed = await see(url, remote, scenario.observed, scenario)
        predictor = Predictor.of(observed.observation)
        print(f"{scenario.pattern}, {format_length(scenario.tokens)} tokens a request, {scenario.seconds:g} s a run")
        titles = ("p50 (s)", "p95 (s)", "requests/s")
        print(
            " " * 16 + "".join(f"{title:<24}" for title in titles) + "mean batch    machine, load average", flush=True
        )
        hold(predictor, scenario.observed, observed)
        for settings in scenario.unseen:
            seen = await see(url, remote, settings, scenario)
            for _ in range(REPEATS):
                factor = predictor.cost.factor(seen.observation.executed)
                if abs(factor - 1.0) <= SAME_MACHINE:
                    break
                print(f"(its batches took ×{factor:.2f} as long: once more)", flush=True)
                predictor = Predictor.of((await see(url, remote, scenario.observed, scenario)).observation)
                seen = await see(url, remote, settings, scenario)
            verdicts.append(hold(predictor, settings, seen))
    return verdicts


def main() -> int:
    names = sys.argv[1:] or list(SCENARIOS)
    with batchscope("--port", "0") as ready:
        verdicts = [verdict for name in names for verdict in asyncio.run(check(ready.url, SCENARIOS[name]))]
    as_made, at_that_speed = map(sum, zip(*verdicts, strict=True))
    print(
        f"Of {len(verdicts)} predictions {as_made} hold, {at_that_speed} at the speed that the engine had in that run."
    )
    return 0 if as_made == len(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
