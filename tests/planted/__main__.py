"""Plants bugs in copies of the repository and says which seed or test finds each.

python -m tests.planted [--only WORDS …] [--seeds N] [--processes N]
python -m tests.planted --promises [--only WORDS …]

A bug is looked for by seeds of the simulation first, and then by the tests of the protocol, which have to pass without
any bug. It ends with 0 if at most two of fifty are not found. With `--promises` each of T01 to T27 is broken, one after
the other, and its own tests must find that, on real processes where they have some.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import psutil

from service.engine.cores import usable_cores
from tests.planted.bugs import BUGS, PROMISES, Bug

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
PROMISE_LIMIT_S = 150  # for one test; what hangs is a failure
END_LIMIT_S = 10
PR_SET_CHILD_SUBREAPER = 36
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
SEED = re.compile(r"failed \[(\d+)")


def found_by(bug: Bug | None, seeds: int) -> str | None:
    """What finds it: "seed 17" or a test's name; ``None`` if nothing does. Without a bug, what fails all the same."""
    with copy_with(bug) as tree:
        simulation = _run(tree, "tests.simulation", "--seeds", str(seeds), "--processes", "1", "--brief")
        if seed := SEED.search(simulation):
            return f"seed {seed[1]}"
        tests = _run(tree, "pytest", "-x", "-q", "--numprocesses=0", "--timeout=60", *map(str, TEST_FILES))
        failed = FAILED.search(tests)
        return failed[1].removeprefix("tests/unit/") if failed else None


def promise_broken_by(bug: Bug, promise: str, tests: str) -> str | None:
    """The test of the promise in that file that finds it; ``None`` if none does. What the tests leave is ended."""
    with copy_with(bug) as tree:
        file, limit = f"tests/{tests}.py", f"--timeout={PROMISE_LIMIT_S}"
        said = _run(tree, "pytest", "-x", "-q", "--numprocesses=0", limit, "-k", promise, file, limit_s=600)
    left = psutil.Process().children(recursive=True)  # orphans come to this process
    for end in (psutil.Process.terminate, psutil.Process.kill):  # a service that is asked to removes its files as well
        for process in left:
            with suppress(psutil.Error):
                end(process)
        _, left = psutil.wait_procs(left, timeout=END_LIMIT_S)
    failed = FAILED.search(said)
    return failed[1].removeprefix("tests/") if failed else None


@contextmanager
def copy_with(bug: Bug | None) -> Iterator[Path]:
    """A copy of the repository in which the bug is planted, if there is one."""
    with tempfile.TemporaryDirectory(prefix="batchscope-planted-") as folder:
        tree = Path(folder)
        for name in COPIED:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, tree / name)
        if bug is not None:
            bug.plant(tree)
        yield tree


def _run(tree: Path, module: str, *arguments: str, limit_s: float = 300) -> str:
    """What it prints; it ends on its own, or is ended where a bug makes it run for ever."""
    command = [sys.executable, "-m", module, *arguments]
    try:
        done = subprocess.run(
            command, cwd=tree, env=_environment(tree), capture_output=True, text=True, timeout=limit_s
        )
    except subprocess.TimeoutExpired:
        return f"FAILED {module}, which does not end\n"
    return done.stdout + done.stderr


def _environment(tree: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=(), help="words in the name of a bug")
    parser.add_argument("--promises", action="store_true", help="break each of T01 to T27 instead")
    parser.add_argument("--seeds", type=int, default=500, help="of the simulation, a bug (500)")
    parser.add_argument("--processes", type=int, default=usable_cores(), help="bugs at a time (as many as cores)")
    options = parser.parse_args(arguments)
    if options.promises:
        return break_promises(options.only)
    bugs = [bug for bug in BUGS if all(word in bug.name for word in options.only)]
    if not bugs:
        parser.error(f"no bug has all of these words in its name: {' '.join(options.only)}")
    if failing := found_by(None, options.seeds):
        print(f"Without any bug {failing} fails; what finds a bug cannot be said.")
        return 2
    escaped = 0
    with ThreadPoolExecutor(options.processes) as pool:
        for bug, finder in zip(bugs, pool.map(partial(found_by, seeds=options.seeds), bugs), strict=True):
            escaped += finder is None
            print(f"{bug.name:52} {finder or 'NOT FOUND'}", flush=True)
    print(f"{len(bugs) - escaped} of {len(bugs)} planted bugs are found")
    return 0 if escaped <= MAY_ESCAPE * len(bugs) else 1


def break_promises(words: Sequence[str]) -> int:
    """Returns 0 if the tests of each promise find that it is broken; `words` stand in its number or its bug's name."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    kept, broken = [], 0
    for promise, (tests, bug) in PROMISES.items():
        if all(word in f"{promise} {bug.name}" for word in words):
            finder = promise_broken_by(bug, promise, tests)
            broken += 1
            kept += [] if finder else [promise]
            print(f"{promise} {bug.name:45} {finder or 'NOT FOUND'}", flush=True)
    print(f"{broken - len(kept)} of {broken} broken promises are found")
    return 1 if kept else 0


if __name__ == "__main__":
    sys.exit(main())
