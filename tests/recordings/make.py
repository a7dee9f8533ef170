"""Makes the recordings of this folder anew, of runs of the real service.

python -m tests.recordings.make [name …]
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Final

from service.messages.load import USUAL_PROMPTS, Burst, Poisson, RunLoad, UniformLength
from tests.benchmarks.measure import batchscope
from tests.benchmarks.recorded_run import Change, record_run

FOLDER: Final = Path(__file__).parent
POISSON: Final = RunLoad(pattern=Poisson(rate_per_s=4.0), prompts=USUAL_PROMPTS, seed=7)
VARIED: Final = RunLoad(
    pattern=Poisson(rate_per_s=4.0), prompts=USUAL_PROMPTS, max_tokens=UniformLength(low=8, high=64), seed=7
)
BURST: Final = RunLoad(pattern=Burst(count=64), prompts=USUAL_PROMPTS, seed=7)


def _settings(formation: str, at_s: float = 0.0, **changed: object) -> Change:
    usual = {"max_batch_size": 16, "batch_wait_timeout_s": 0.05, "max_queued_requests": 256}
    return at_s, {"formation": formation, **usual, **changed}


RUNS: Final[dict[str, tuple[tuple[Change, ...], float]]] = {
    "late": ((_settings("late"), (0.2, POISSON)), 30.0),
    "early": ((_settings("early"), (0.2, POISSON)), 30.0),
    "continuous": ((_settings("late"), (0.2, VARIED), _settings("continuous", 12.0)), 30.0),
    "burst": ((_settings("late"), (0.2, BURST), _settings("late", 1.5, max_batch_size=32)), 12.0),
}


def main() -> None:
    with batchscope("--port", "0") as ready:
        for name in sys.argv[1:] or RUNS:
            changes, seconds = RUNS[name]
            asyncio.run(record_run(ready, FOLDER / f"{name}.bsr", changes, seconds))


if __name__ == "__main__":
    main()
