"""How long a recording of ten minutes takes to open, under a light and a heavy load (simulated runs).

python -m tests.benchmarks.open_recording
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Final

from service.analysis.recording.reader import open_recording
from service.messages.settings import Settings
from tests.recorded import entries_of, write_recording
from tests.synthetic_run import Step, SyntheticRun

DURATION_S: Final = 600.0
TIMES: Final = 3
STEP_S: Final = {4.0: 0.030, 50.0: 0.020}  # requests a second, and how long a decode step must take to keep up


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for rate, step_s in STEP_S.items():
            run = SyntheticRun(DURATION_S, (Step(0.0, rate, Settings()),), step_s=step_s, per_request_s=0.0008)
            path = write_recording(Path(folder) / f"{rate:.0f}.bsr", entries_of(run))
            took_s = min(_opened_in_s(path) for _ in range(TIMES))
            print(f"{rate:.0f} requests/s: {path.stat().st_size / 1e6:.1f} MB, opens in {took_s:.2f} s")


def _opened_in_s(path: Path) -> float:
    begin_s = time.perf_counter()
    open_recording(path)
    return time.perf_counter() - begin_s


if __name__ == "__main__":
    main()
