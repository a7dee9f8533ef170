"""`python -m gui` and the command `batchscope`: opens the window."""

from __future__ import annotations

import os
import sys


def main() -> int:
    from gui.arguments import parse
    from gui.system_libraries import exit_if_missing

    arguments = parse()
    exit_if_missing(os.environ)
    from gui.app import run

    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
