"""Runs the whole protocol under many seeds and prints those that fail, each with the smallest plan that still does.

python -m tests.simulation [--seeds N] [--from N] [--seed N] [--brief] [--processes N]

It ends with 0 if no seed fails. `--seed` runs one alone, and prints its plan.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
import time
import traceback
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import SimpleNamespace

from ray import serve
from ray.serve import batching

from service.engine.cores import usable_cores
from service.engine.model.child import die_with_parent
from tests.simulation.scenario import Plan, Simulation

SHOWN = 5
CHUNK = 50  # seeds, after which what they left is collected


def faults_of(plan: Plan) -> list[str]:
    simulation = Simulation(plan)
    try:
        return simulation.run()
    except Exception:
        return [*simulation.world.faults, traceback.format_exc()]
    finally:
        simulation.world.close()


def failing(first: int, count: int) -> list[int]:
    """The seeds that fail, of `count` from `first` on."""
    gc.collect()
    return [seed for seed in range(first, first + count) if faults_of(Plan.of(seed))]


def shrunk(plan: Plan) -> Plan:
    """The plan with as few actions as still fail, whatever the fault is then."""
    count = len(plan.actions) // 2
    while count:
        for start in range(0, len(plan.actions), count):
            less = plan.without(start, count)
            if faults_of(less):
                plan = less
                break
        else:
            count //= 2
    return plan


def prepare() -> None:
    """What stands around the product's classes here, without Ray; and a heap that is quick to collect."""
    logging.disable()
    warnings.simplefilter("ignore")
    sys.unraisablehook = lambda unraisable: None  # what a killed process had begun is thrown away in the middle of it
    context = SimpleNamespace(_deployment_config=SimpleNamespace(max_ongoing_requests=100_000))
    serve.get_replica_context = lambda: context
    del batching._BatchQueue.__del__  # asks for an event loop where there is none any more
    gc.disable()
    gc.collect()
    gc.freeze()


def begin_work(parent_pid: int) -> None:
    """In a process that runs seeds: a command that is killed leaves none behind."""
    die_with_parent(parent_pid)
    prepare()


def show(seed: int) -> None:
    plan = shrunk(Plan.of(seed))
    print(f"{plan}\n  " + "\n  ".join(faults_of(plan)[:3]), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10_000, help="how many (10000)")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first (0)")
    parser.add_argument("--seed", type=int, help="one alone")
    parser.add_argument("--brief", action="store_true", help="end with the first seeds that fail, and shrink none")
    parser.add_argument("--processes", type=int, default=usable_cores(), help="that run seeds (as many as cores)")
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # sets of texts have the same order in every run
        os.execve(sys.executable, [sys.executable, *_arguments()], os.environ | {"PYTHONHASHSEED": "0"})
    if options.seed is not None:
        prepare()
        print(Plan.of(options.seed))
        faults = faults_of(Plan.of(options.seed))
        print("\n".join(faults) or "nothing went wrong")
        return 1 if faults else 0
    begun_s = time.monotonic()
    starts = range(options.first, options.first + options.seeds, CHUNK)
    counts = [min(CHUNK, options.first + options.seeds - start) for start in starts]
    with ProcessPoolExecutor(options.processes, initializer=begin_work, initargs=(os.getpid(),)) as pool:
        failed: list[int] = []
        for seeds in pool.map(failing, starts, counts):
            failed += seeds
            if failed and options.brief:
                pool.shutdown(cancel_futures=True)
                break
    took_s = time.monotonic() - begun_s
    print(f"{options.seeds} seeds in {took_s:.0f} s: {len(failed)} failed {failed[:50]}", flush=True)
    if failed and not options.brief:
        prepare()
        for seed in failed[:SHOWN]:
            show(seed)
    return 1 if failed else 0


def _arguments() -> list[str]:
    return ["-m", "tests.simulation", *sys.argv[1:]]


if __name__ == "__main__":
    os.chdir(Path(__file__).parents[2])
    sys.exit(main())
