"""How many times the tutorial's tokens/s the service gives, to 16 users or so many, on the same machine and weights.

python -m tests.benchmarks.against_tutorial [seconds [users [formation]]]
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

from service.commands.bench.other_work import OtherWork
from service.engine.model.resolve import DEFAULT_MODEL, resolve
from tests.benchmarks.measure import Measurement, ask_as_in_the_tutorial, ask_for_completion, batchscope, closed_loop


def measure_tutorial(seconds: float, users: int, others: OtherWork) -> Measurement:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    script = Path(__file__).with_name("tutorial_as_it_stands.py")
    command = [sys.executable, str(script), str(port), str(resolve(DEFAULT_MODEL).path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as tutorial:
        assert tutorial.stdin is not None
        assert tutorial.stdout is not None
        while tutorial.stdout.readline() != b"ready\n":
            if tutorial.poll() is not None:
                raise SystemExit("The tutorial's service did not start.")
        with others:
            measured = asyncio.run(closed_loop(ask_as_in_the_tutorial(f"http://127.0.0.1:{port}"), users, seconds))
        tutorial.stdin.close()
    return measured


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    users = int(sys.argv[2]) if len(sys.argv) > 2 else 16
    formation = sys.argv[3] if len(sys.argv) > 3 else "late"
    others = OtherWork()
    tutorial = measure_tutorial(seconds, users, others)
    with batchscope("--formation", formation, "--max-batch-size", str(users)) as ready, others:
        ours = asyncio.run(closed_loop(ask_for_completion(ready.url, ignore_eos=True), users, seconds))
    print(f"{users} users, formation {formation}, 24 tokens a request, {ready.model}, {ready.device}")
    for name, measured in (("tutorial", tutorial), ("batchscope", ours)):
        print(f"{name:12} {measured.tokens_per_s:7.1f} tokens/s   p50 {measured.percentile_s(50):5.2f} s")
    print(f"ratio        {ours.tokens_per_s / tutorial.tokens_per_s:7.1f}")
    for warning in others.warnings:
        print(warning)


if __name__ == "__main__":
    main()
