"""Runs a module as `python -m` does, in a process that does not outlive its parent.

    python -P -m service.engine.model.bound PARENT_PID MODULE [ARGUMENT …]

On Linux the kernel kills it as soon as the thread that started it ends, however that came about; elsewhere a parent
that is killed leaves it to finish by itself.
"""

import ctypes
import os
import runpy
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int) -> None:
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # it ended before the request reached the kernel
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
