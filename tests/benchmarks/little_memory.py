"""Whether long requests end in answers where memory holds few of them.

python -m tests.benchmarks.little_memory [--free-gb 4] [--requests 16] [--tokens 8000] [--formation continuous]

A process takes the machine's memory until so much is left; then the service is started, and gets all requests at once.
It prints what became of them, how many ran at a time and how little memory was free, and ends with 0 if each was
answered by the replica that was there at first.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import aiohttp
import psutil

from service.commands.remote import RemoteService, ServiceWatch
from service.messages.settings import FORMATIONS
from tests.benchmarks.measure import batchscope, session

GIGABYTE: Final = 10**9
ANSWER_TOKENS: Final = 32
LOOK_S: Final = 0.5
WORDS: Final = ("time", "house", "water", "light", "stone", "river", "morning", "letter", "garden", "window", "paper")
TAKE: Final = """
import sys
taken = bytearray(int(sys.argv[1]))
taken[::4096] = b"x" * len(taken[::4096])
print("taken", flush=True)
sys.stdin.read()
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--free-gb", type=float, default=4.0, help="left when the service is started (default: 4)")
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=8000, help="of a prompt and its answer (default: 8000)")
    parser.add_argument("--formation", choices=FORMATIONS, default="continuous")
    options = parser.parse_args()
    with all_but(options.free_gb), batchscope("--port", "0", "--formation", options.formation) as ready:
        found = asyncio.run(ask_all(ready.url, options.requests, options.tokens - 2 * ANSWER_TOKENS))
    print(*(f"{count} {outcome}" for outcome, count in found.outcomes.items()), sep="\n")
    print(f"at most {found.most_running} at a time; {found.least_free_bytes / GIGABYTE:.2f} GB free at least")
    print("the replica is the same" if len(found.pids) == 1 else f"{len(found.pids)} replicas, one after the other")
    return 0 if found.outcomes == {"answered": options.requests} and len(found.pids) == 1 else 1


class Outcome(NamedTuple):
    """What became of the requests, by how many; how many ran at a time; and the processes of the replicas."""

    outcomes: Counter[str]
    most_running: int
    least_free_bytes: float
    pids: set[int]


@contextmanager
def all_but(free_gb: float) -> Iterator[None]:
    """Take the memory of the machine but for `free_gb`."""
    most = max(int(psutil.virtual_memory().available - free_gb * GIGABYTE), 0)
    with subprocess.Popen(
        [sys.executable, "-c", TAKE, str(most)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as taker:
        assert taker.stdout is not None
        taker.stdout.readline()
        print(f"{psutil.virtual_memory().available / GIGABYTE:.2f} GB free", flush=True)
        yield
        taker.communicate()


async def ask_all(url: str, count: int, tokens: int) -> Outcome:
    """Send `count` prompts of about so many tokens at once, and look at the service until all have ended."""
    async with RemoteService(url) as remote, ServiceWatch(remote) as watch, session() as client:
        asked = asyncio.gather(*(ask(client, url, number, tokens) for number in range(count)))
        most_running, least_free, pids = 0, math.inf, set[int]()
        while not asked.done():
            await asyncio.wait((asked,), timeout=LOOK_S)
            replicas = await watch.replicas()
            most_running = max(most_running, sum(each.running for each in replicas))
            least_free = min(least_free, psutil.virtual_memory().available)
            pids |= {each.pid for each in replicas}
        return Outcome(Counter(asked.result()), most_running, least_free, pids)


async def ask(client: aiohttp.ClientSession, url: str, number: int, tokens: int) -> str:
    """What became of the request, in words."""
    prompt = " ".join(random.Random(number).choices(WORDS, k=tokens))
    body = {"prompt": prompt, "max_tokens": ANSWER_TOKENS, "temperature": 0}
    begun_s = time.monotonic()
    try:
        async with client.post(f"{url}/v1/completions", json=body) as response:
            if response.status != 200:
                return f"{response.status}: {(await response.text())[:120]}"
            usage = (await response.json())["usage"]
    except aiohttp.ClientError as error:
        return f"{type(error).__name__}: {error}"
    print(f"{usage['prompt_tokens']:,} tokens, answered after {time.monotonic() - begun_s:.0f} s", flush=True)
    return "answered"


if __name__ == "__main__":
    sys.exit(main())
