"""A small process that outlives the service, whichever of its processes is killed, and then sweeps up after it.

`python -m service.launch.sweeper`: its standard input holds the plan and ends when the supervisor does, orderly or
not.
"""

from __future__ import annotations

import shutil
import signal
import sys

import msgspec

from service.launch.reaper import Lineage, sweep
from service.ray_serve.deployed import release_forgotten


class SweepPlan(msgspec.Struct, frozen=True):
    """
    Attributes:
        lineage: whom to end.
        directory: the service's temporary files, removed when they have ended.
        patience_s, grace_s: as in `sweep`.
    """

    lineage: Lineage
    directory: str
    patience_s: float
    grace_s: float

    def carry_out(self) -> list[str]:
        """End the processes and remove the files; returns what could not be ended, in words."""
        survivors = sweep(self.lineage, patience_s=self.patience_s, grace_s=self.grace_s)
        release_forgotten(self.directory)
        shutil.rmtree(self.directory, ignore_errors=True)
        return [str(process) for process in survivors]


def main() -> None:
    for name in ("SIGINT", "SIGHUP", "SIGTERM"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    plan = sys.stdin.buffer.read()
    if plan:
        msgspec.json.decode(plan, type=SweepPlan).carry_out()


if __name__ == "__main__":
    main()
