"""The protocol holds under ten thousand seeds; `python -m tests.simulation` runs others, or one alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SEEDS = 500  # of a test, so that it has its end within the time of a test where other tests take the processors, too
HASHED_AS_EVER = os.environ | {"PYTHONHASHSEED": "0"}  # as the command sets it, which would begin anew for that


@pytest.mark.promise("T03", "T06", "T25")
@pytest.mark.parametrize("first", range(0, 10_000, SEEDS))
def test_that_the_protocol_holds_whatever_the_seed_orders(first: int) -> None:
    command = [sys.executable, "-m", "tests.simulation", "--from", str(first), "--seeds", str(SEEDS), "--processes=1"]
    done = subprocess.run(command, cwd=ROOT, env=HASHED_AS_EVER, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
