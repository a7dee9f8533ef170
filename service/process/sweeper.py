"""A small process that outlives the service, whichever of its processes is killed, and then sweeps up after it.

`python -m service.process.sweeper PLAN` with a pipe as standard input: when the supervisor has gone, orderly or not,
the pipe ends.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys

import msgspec

from service.process.sweep import sweep


class SweepPlan(msgspec.Struct, frozen=True):
    """
    Attributes:
        instance: whose processes to end.
        directory: the service's temporary files, removed when they have ended.
        patience_s, grace_s: as in `sweep`.
    """

    instance: str
    directory: str
    patience_s: float
    grace_s: float

    def carry_out(self) -> list[str]:
        """End the processes and remove the files; returns what could not be ended, in words."""
        survivors = sweep(self.instance, patience_s=self.patience_s, grace_s=self.grace_s)
        shutil.rmtree(self.directory, ignore_errors=True)
        return [str(process) for process in survivors]


def main() -> None:
    plan = msgspec.json.decode(sys.argv[1], type=SweepPlan)
    for name in ("SIGINT", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    while os.read(0, 4096):
        pass
    plan.carry_out()


if __name__ == "__main__":
    main()
