"""How late the load generator itself sends: Poisson arrivals against a stub endpoint in a process of its own.

`python -m tests.benchmarks.load_lag` prints the lag between the time a request was intended for and the time it was
sent, and ends with 1 if its 99th percentile is not below 5 ms. Nothing else should run meanwhile: on two cores the stub
has the second.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
from aiohttp import web

from service.load.process import run_undisturbed
from service.load.report import LoadReport
from tests.unit.stub_server import DONE, StubServer, open_stream, token_event

TOKENS: Final = 24
CHUNKS: Final = 6
CHUNK_S: Final = 0.05
MOST_LAG_MS: Final = 5.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", default="200", help="requests a second (default: 200)")
    parser.add_argument("--seconds", default="20")
    parser.add_argument("--stub", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stub:
        run_undisturbed(_serve())
        return 0
    with _stub() as url:
        report = _load(url, options.rate, options.seconds)
    assert report.lag_ms is not None
    print(f"own lag p99 {report.lag_ms.p99:.2f} ms at {options.rate}/s (wanted: below {MOST_LAG_MS:g} ms)")
    return 0 if report.lag_ms.p99 < MOST_LAG_MS else 1


def _load(url: str, rate: str, seconds: str) -> LoadReport:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        load = ["--pattern", "poisson", "--rate", rate, "--duration", seconds, "--tokens", str(TOKENS)]
        command = [sys.executable, "-m", "service", "load", "--url", url, *load, "--json", str(path)]
        subprocess.run(command, check=True)
        return msgspec.json.decode(path.read_bytes(), type=LoadReport)


@contextlib.contextmanager
def _stub() -> Iterator[str]:
    command = [sys.executable, "-m", "tests.benchmarks.load_lag", "--stub"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()


async def _serve() -> None:
    """Until standard input ends."""
    async with StubServer(_streams_as_a_service_does) as server:
        print(server.url, flush=True)
        await asyncio.to_thread(sys.stdin.read)


async def _streams_as_a_service_does(request: web.Request, _body: dict[str, Any]) -> web.StreamResponse:
    """A few tokens at a time, over a third of a second."""
    response = await open_stream(request)
    for chunk in range(1, CHUNKS + 1):
        await asyncio.sleep(CHUNK_S)
        await response.write(token_event(" and on", TOKENS * chunk // CHUNKS))
    await response.write(DONE)
    return response


if __name__ == "__main__":
    sys.exit(main())
