"""Servers that are not ours, seen through the relay: `python -m tests.benchmarks.others DIR [peer …]`.

DIR holds the environments that `python -m tests.benchmarks.peers` makes. Each server gets load through its relay, its
telemetry is recorded beside it in DIR and explained, and what it reported is set against what the load's sender saw.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from service.analysis.recording.reader import Entries
from service.messages.life import Failed, Ready, ServiceState
from service.messages.telemetry import TelemetryFrame
from tests.benchmarks.peers import PEERS, PeerError, installed

RATE_PER_S: Final = 4.0
DURATION_S: Final = 20.0
TOKENS: Final = 24
HEAD: Final = ("server", "not reported", "answered", "running ≤", "waiting ≤", "cache ≤", "steps", "tokens told / seen")
STATES: Final = msgspec.json.Decoder(ServiceState)


@contextmanager
def attached(url: str) -> Iterator[Ready]:
    """The relay of the server there; raises `PeerError`."""
    command = [sys.executable, "-m", "service", "attach", "--url", url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            states = map(STATES.decode, process.stdout)
            ready = next(state for state in states if isinstance(state, Ready | Failed))
            if isinstance(ready, Failed):
                raise PeerError(ready.reason)
            yield ready
        finally:
            process.stdin.close()
            process.wait()


def looked_at(url: str, folder: Path, name: str) -> str:
    """A row on the server at `url`."""
    recording, report = folder / f"{name}.bsr", folder / f"{name}.json"
    with attached(url) as ready:
        service = [sys.executable, "-m", "service"]
        taking = [*service, "record", "--url", ready.url, "--seconds", str(DURATION_S + 5.0), "--overwrite", recording]
        how = ("--rate", RATE_PER_S, "--duration", DURATION_S, "--tokens", TOKENS, "--json", report)
        with subprocess.Popen([str(word) for word in taking]) as recorder:
            sending = [*service, "load", "--url", ready.url, *how]
            subprocess.run([str(word) for word in sending], check=False)
            recorder.wait()
    subprocess.run([*service, "explain", str(recording)], check=True)
    heard = (entry.event for entry in Entries(recording))
    return row(ready, [each for each in heard if isinstance(each, TelemetryFrame)], json.loads(report.read_text()))


def row(ready: Ready, frames: Sequence[TelemetryFrame], report: dict[str, object]) -> str:
    requests = report["requests"]
    assert isinstance(requests, list)
    answered = [each for each in requests if each["outcome"] == "ok"]
    seen = sum(each["tokens"] for each in answered)
    statuses = [status for frame in frames for status in frame.replicas]
    batches = {batch.id: batch for frame in frames for batch in frame.batches}.values()
    told, steps = sum(each.tokens for each in batches), sum(each.work.steps for each in batches if each.work)
    caches = [status.cache_share for status in statuses if status.cache_share is not None]
    cells = (
        ready.server,
        ready.untold,
        f"{len(answered)} of {len(requests)}",
        max(status.running for status in statuses),
        max(status.waiting for status in statuses),
        f"{max(caches):.0%}" if caches else "–",
        steps or "–",
        f"{told} / {seen}",
    )
    return f"| {' | '.join(map(str, cells))} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [peer.name for peer in PEERS]
    parser.add_argument("folder", type=Path, help="where the environments are")
    parser.add_argument("names", nargs="*", default=["llama.cpp", "transformers", "vllm"], help=", ".join(names))
    options = parser.parse_args()
    rows = []
    for peer in (each for each in PEERS if each.name in options.names):
        try:
            with installed(options.folder, peer).served() as url:
                rows.append(looked_at(url, options.folder, peer.name))
        except PeerError as error:
            rows.append(f"| {peer.name} | {error} |")
    print("\n".join((f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|", *rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
