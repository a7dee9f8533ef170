"""Is every finding shown by a run of the real service that has its cause, and by no run that has not?

python -m tests.benchmarks.findings_shown [folder [scenario …]]

Each scenario is recorded for some seconds (into `folder`, by default a temporary one) and then explained as
`python -m service explain` does. Exit code 1 if a rule is not shown, or shown where it must not be.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from service.analysis.recording.reader import open_recording
from service.commands.explain import Explanation, explain
from service.messages.load import (
    USUAL_PROMPTS,
    Burst,
    ClosedLoop,
    Fire,
    Length,
    LognormalLength,
    Pattern,
    Poisson,
    RunLoad,
    UniformLength,
)
from service.messages.settings import Settings
from tests.benchmarks.measure import batchscope
from tests.benchmarks.recorded_run import Change, record_run

USUAL = msgspec.to_builtins(Settings())


@dataclass(frozen=True)
class Scenario:
    """
    Attributes:
        shows: rules that must find something.
        hides: rules that must not.
        changes: what happens when; the usual settings hold at the beginning.
        service: how the service is started.
    """

    name: str
    shows: tuple[str, ...]
    changes: tuple[Change, ...]
    hides: tuple[str, ...] = ()
    service: tuple[str, ...] = ()
    seconds: float = 14.0


def load(pattern: Pattern, tokens: Length = 24, seed: int = 7, max_outstanding: int = 1024) -> Change:
    run = RunLoad(pattern=pattern, prompts=USUAL_PROMPTS, max_tokens=tokens, seed=seed, max_outstanding=max_outstanding)
    return 0.2, run


def settings(at_s: float = 0.0, **changed: object) -> Change:
    return at_s, {**USUAL, **changed}


def newcomer(at_s: float) -> Change:
    """A request whose prompt has about 700 tokens."""
    return at_s, Fire(prompts=(" ".join(USUAL_PROMPTS * 25),), max_tokens=8)


OF_WHOLE_BATCHES = (
    "sealed_early",
    "stragglers",
    "waits_for_batch",
    "timeout_too_long",
    "timeout_waited",
    "timeout_without_effect",
)
ONE_LONG = 5060  # a seed with which the first of 24 requests gets 240 tokens and the others 3 on average
POISSON_4 = load(Poisson(rate_per_s=4.0))
SCENARIOS = (
    Scenario(
        "sealed_early",
        ("sealed_early",),
        (settings(formation="early"), POISSON_4),
        hides=("batch_of_one", "saturated", "queue_grows"),
        seconds=20.0,
    ),
    Scenario(
        "late",
        ("load_share",),
        (settings(), POISSON_4),
        hides=("sealed_early", "queue_grows", "saturated", "batch_of_one", "requests_shed"),
        seconds=20.0,
    ),
    Scenario(
        "waits_for_batch",
        ("waits_for_batch",),
        (settings(), load(Poisson(rate_per_s=3.0), 48)),
        hides=("sealed_early", "stragglers", "timeout_needless"),
        seconds=20.0,
    ),
    Scenario(
        "continuous",
        ("load_share",),
        (settings(formation="continuous"), load(Poisson(rate_per_s=3.0), UniformLength(low=8, high=64))),
        hides=(*OF_WHOLE_BATCHES, "saturated", "queue_grows", "batch_of_one"),
        seconds=20.0,
    ),
    Scenario(
        "continuous_saturated",
        ("saturated",),
        (settings(formation="continuous", max_batch_size=2), load(Poisson(rate_per_s=6.0))),
        hides=(*OF_WHOLE_BATCHES, "load_share", "batch_of_one", "batch_size_limits", "queue_grows", "timeout_needless"),
    ),
    Scenario(
        "timeout_needless",
        ("timeout_needless",),
        (settings(formation="continuous", batch_wait_timeout_s=0.5), load(Poisson(rate_per_s=1.5), 4)),
        hides=(*OF_WHOLE_BATCHES, "saturated", "queue_grows"),
        seconds=18.0,
    ),
    Scenario(
        "stream_stalled",
        ("stream_stalled",),
        (
            settings(formation="continuous", batch_wait_timeout_s=0.0, prefill_chunk_tokens=1024),
            load(ClosedLoop(users=3), UniformLength(low=16, high=48)),
            newcomer(9.0),
            settings(at_s=24.0, formation="continuous", batch_wait_timeout_s=0.0, prefill_chunk_tokens=32),
            newcomer(30.0),
        ),
        hides=(*OF_WHOLE_BATCHES, "saturated", "queue_grows"),
        seconds=45.0,
    ),
    Scenario(
        "saturated",
        ("saturated", "timeout_without_effect"),
        (settings(max_batch_size=2), load(Poisson(rate_per_s=6.0))),
        hides=("sealed_early", "load_share", "batch_size_limits", "queue_grows"),
    ),
    Scenario(
        "batch_of_one",
        ("saturated",),
        (settings(max_batch_size=1), load(Poisson(rate_per_s=10.0), 6)),
        hides=("sealed_early", "batch_of_one", "batch_size_limits"),
    ),
    Scenario(
        "timeout_too_long",
        ("timeout_too_long",),
        (settings(batch_wait_timeout_s=0.5), load(Poisson(rate_per_s=1.5), 4)),
        hides=("saturated", "queue_grows"),
        seconds=18.0,
    ),
    Scenario(
        "timeout_waited",
        ("timeout_waited",),
        (settings(batch_wait_timeout_s=0.1), load(ClosedLoop(users=8), 12)),
        hides=("timeout_too_long", "queue_grows", "saturated"),
    ),
    Scenario(
        "held_until_full",
        ("held_back",),
        (settings(max_batch_size=8, allow_small_batch=False), load(Poisson(rate_per_s=2.0), 4)),
        hides=("timeout_too_long", "timeout_waited", "saturated", "queue_grows"),
        seconds=20.0,
    ),
    Scenario(
        "held_until_tick",
        ("held_back",),
        (settings(batch_wait_timeout_s=0.0, stride_s=1.0), load(Poisson(rate_per_s=2.0), 4)),
        hides=("timeout_too_long", "timeout_waited", "saturated", "queue_grows"),
        seconds=18.0,
    ),
    Scenario(
        "requests_shed",
        ("requests_shed",),
        (settings(max_queued_requests=8), load(Poisson(rate_per_s=25.0))),
        hides=("sealed_early",),
        seconds=10.0,
    ),
    Scenario(
        "stragglers",
        ("stragglers",),
        (settings(), load(ClosedLoop(users=24), UniformLength(low=4, high=80))),
        hides=("queue_grows", "saturated"),
        seconds=20.0,
    ),
    Scenario(
        "generator_lags",
        ("generator_lags",),
        (settings(), load(Poisson(rate_per_s=40.0), max_outstanding=32)),
        seconds=10.0,
    ),
    Scenario(
        "batch_size_no_longer_limits",
        ("batch_size_limits", "batch_size_no_longer_limits"),
        (settings(max_batch_size=4), load(ClosedLoop(users=8), 12), settings(at_s=8.0, max_batch_size=32)),
        seconds=16.0,
    ),
    Scenario(
        "ongoing_capped",
        ("ongoing_capped",),
        (settings(batch_wait_timeout_s=0.2), load(ClosedLoop(users=12), 12)),
        hides=("timeout_waited", "timeout_too_long"),
        service=("--max-ongoing-requests", "5"),
    ),
    Scenario(
        "replica_idle",
        ("replica_idle",),
        (settings(max_batch_size=1), load(Burst(count=24), LognormalLength(median=3, sigma=1.6, cap=240), ONE_LONG)),
        service=("--replicas", "2"),
    ),
)


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="findings-"))
    chosen = [s for s in SCENARIOS if len(sys.argv) <= 2 or s.name in sys.argv[2:]]
    wrong = 0
    for arguments in dict.fromkeys(scenario.service for scenario in chosen):
        with batchscope("--port", "0", *arguments) as ready:
            for scenario in (s for s in chosen if s.service == arguments):
                path = folder / f"{scenario.name}.bsr"
                asyncio.run(record_run(ready, path, scenario.changes, scenario.seconds))
                wrong += sum(_report(scenario, explain(open_recording(path), None)))
    print(f"recordings in {folder}")
    return 1 if wrong else 0


def _report(scenario: Scenario, explanation: Explanation) -> Iterator[bool]:
    """Print a line a rule; true for each that is not as it must be."""
    said = {finding.rule: finding for finding in explanation.findings}
    print(f"{scenario.name}: {explanation.requests} requests in {explanation.duration_s:.0f} s", flush=True)
    for rule in scenario.shows:
        evidence = said[rule].evidence if rule in said else "-"
        print(f"  {rule:28} shown {'yes' if rule in said else 'NO '}  {evidence}", flush=True)
        yield rule not in said
    for rule in scenario.hides:
        if rule in said:
            print(f"  {rule:28} shown WRONGLY  {said[rule].evidence}", flush=True)
        yield rule in said
    others = [rule for rule in said if rule not in scenario.shows]
    if others:
        print(f"  also: {', '.join(others)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
