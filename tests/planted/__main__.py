"""Plants bugs in copies of the repository and says which seed or test finds each.

python -m tests.planted [--only WORDS …] [--seeds N] [--processes N]

A bug is looked for by seeds of the simulation first, and then by the tests of the protocol. It ends with 0 if at most
two of fifty are not found.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from service.engine.cores import usable_cores
from tests.planted.bugs import BUGS, Bug

ROOT = Path(__file__).parents[2]
COPIED = ("service", "gui", "tests", "assets", "pyproject.toml", "README.md")
TESTS = [
    "early",
    "batcher",
    "concurrent_batches",
    "drains",
    "generation",
    "hub",
    "hub_link",
    "lifecycle",
    "queue",
    "queue_laws",
    "request_life",
    "request_stages",
    "settings",
    "settings_laws",
    "settings_run",
    "step_watch",
    "stub_engine",
    "telemetry",
    "tokens",
    "redeployer",
    "load_generator",
    "load_report",
    "patches",
    "doors",
    "continuous_shown",
]
TEST_FILES = [Path("tests", "unit", f"test_{name}.py") for name in TESTS]
MAY_ESCAPE = 2 / 50
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
SEED = re.compile(r"failed \[(\d+)")


def found_by(bug: Bug, seeds: int) -> str | None:
    """What finds it: "seed 17" or a test's name; ``None`` if nothing does."""
    with tempfile.TemporaryDirectory(prefix="batchscope-planted-") as folder:
        tree = Path(folder)
        for name in COPIED:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, tree / name)
        bug.plant(tree)
        simulation = _run(tree, "tests.simulation", "--seeds", str(seeds), "--processes", "1", "--brief")
        if seed := SEED.search(simulation):
            return f"seed {seed[1]}"
        tests = _run(tree, "pytest", "-x", "-q", "--numprocesses=0", "--timeout=60", *map(str, TEST_FILES))
        failed = FAILED.search(tests)
        return failed[1].removeprefix("tests/unit/") if failed else None


def _run(tree: Path, module: str, *arguments: str) -> str:
    """What it prints; it ends on its own, or is ended where a bug makes it run for ever."""
    command = [sys.executable, "-m", module, *arguments]
    try:
        done = subprocess.run(command, cwd=tree, env=_environment(tree), capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        return f"FAILED {module}, which does not end\n"
    return done.stdout + done.stderr


def _environment(tree: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=(), help="words in the name of a bug")
    parser.add_argument("--seeds", type=int, default=500, help="of the simulation, a bug (500)")
    parser.add_argument("--processes", type=int, default=usable_cores(), help="bugs at a time (as many as cores)")
    options = parser.parse_args(arguments)
    bugs = [bug for bug in BUGS if all(word in bug.name for word in options.only)]
    escaped = 0
    with ThreadPoolExecutor(options.processes) as pool:
        for bug, finder in zip(bugs, pool.map(partial(found_by, seeds=options.seeds), bugs), strict=True):
            escaped += finder is None
            print(f"{bug.name:52} {finder or 'NOT FOUND'}", flush=True)
    print(f"{len(bugs) - escaped} of {len(bugs)} planted bugs are found")
    return 0 if escaped <= MAY_ESCAPE * len(bugs) else 1


if __name__ == "__main__":
    sys.exit(main())
