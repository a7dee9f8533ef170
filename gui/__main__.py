"""`python -m gui` and the command `batchscope`: opens the window, or runs a command of the service."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> int:
    from gui.control.arguments import mistyped, parse
    from service.__main__ import COMMANDS, complain
    from service.__main__ import main as run_command

    words = sys.argv[1:]
    if words and words[0] in COMMANDS:
        return run_command(words)
    if words and words[0] == "desktop":
        from gui.control.desktop_entry import main as place_on_desktop

        return place_on_desktop(words[1:])
    if words and words[0] == "lesson":
        words = _words_to_open(words[1:])
        if not words:
            return 0
    if words and mistyped(words[0]):
        return complain(words[0])
    from gui.control.bugs import report_failed_start
    from gui.system_libraries import exit_if_missing

    arguments = parse(words)
    exit_if_missing(os.environ)
    try:
        from gui.startup import run

        return run(arguments)
    except Exception as error:
        report_failed_start(error, is_attended=arguments.demo_s is None)
        return 1


def _words_to_open(words: list[str]) -> list[str]:
    """The command line that opens what `batchscope lesson` names; empty where there is nothing to open."""
    from service.analysis.lesson.file import begun, number_of, path_of, shipped
    from service.messages.text import UserError

    if not words:
        print("\n".join(f"{number_of(path):>3}  {title}" for title, path in shipped().items()))
        print("batchscope lesson NUMBER takes one, batchscope lesson FILE.md another; lesson new FILE.md begins one.")
        return []
    first, *rest = words
    if first == "new" and not rest:
        sys.exit("lesson new needs the name of a file: batchscope lesson new FILE.md")
    if first.isdigit() and not path_of(first).exists():
        sys.exit(f"There is no lesson {first}. batchscope lesson names those that there are.")
    try:
        return [str(begun(Path(rest[0]))), *rest[1:]] if first == "new" else [str(path_of(first)), *rest]
    except UserError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    sys.exit(main())
