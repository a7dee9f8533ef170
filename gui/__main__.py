"""`python -m gui` and the command `batchscope`: opens the window, or runs a command of the service."""

from __future__ import annotations

import os
import sys


def main() -> int:
    from gui.control.arguments import mistyped, parse
    from service.__main__ import COMMANDS, complain
    from service.__main__ import main as run_command

    words = sys.argv[1:]
    if words and words[0] in COMMANDS:
        return run_command(words)
    if words and mistyped(words[0]):
        return complain(words[0])
    from gui.control.bugs import report_failed_start
    from gui.system_libraries import exit_if_missing

    arguments = parse()
    exit_if_missing(os.environ)
    try:
        from gui.startup import run

        return run(arguments)
    except Exception as error:
        report_failed_start(error, is_attended=arguments.demo_s is None)
        return 1


if __name__ == "__main__":
    sys.exit(main())
