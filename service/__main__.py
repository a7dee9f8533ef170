"""`python -m service WORD …`: runs the command of that word, and without a word the service."""

from __future__ import annotations

import os
import sys
from difflib import get_close_matches
from importlib import import_module
from typing import Final, NamedTuple


class Command(NamedTuple):
    """A module with a `main`, and the command in one line."""

    module: str
    summary: str


SERVE: Final = "serve"
COMMANDS: Final = {
    SERVE: Command("service.commands.serve", "run the service, as without any word"),
    "attach": Command("service.commands.attach", "report what a running service says of itself"),
    "load": Command("service.commands.load", "send load to a completion server and report latency and throughput"),
    "compare": Command("service.commands.compare", "compare two settings of a running service, over several rounds"),
    "sweep": Command("service.commands.sweep", "measure many settings of a running service, and name the best"),
    "predict": Command("service.commands.predict", "predict what other settings would give under the present load"),
    "goal": Command("service.commands.goal", "search the cheapest settings that hold an objective"),
    "hold": Command("service.commands.hold", "keep an objective while the load changes, by moving settings"),
    "record": Command("service.commands.record", "record the telemetry of a running service to a file"),
    "explain": Command("service.commands.explain", "say what a recording shows, and what would change it"),
    "export": Command("service.commands.export", "take requests, batches or figures out of a recording"),
    "deploy-config": Command("service.commands.deploy_config", "write the settings as a Ray Serve config file"),
    "batch": Command("service.commands.batch", "compute a whole file of inputs, without a service"),
    "bench": Command("service.commands.bench.command", "measure the engine, alone and through HTTP"),
}
MISTYPED: Final = 2


def main(argv: list[str]) -> int:
    """Run the command; returns its exit code, which is 1 if the reader of its output ends early, as `head` does."""
    try:
        try:
            return run(argv)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains of what is left, at exit
        return 1


def run(argv: list[str]) -> int:
    """The exit code of the command; each imports only what it needs."""
    if argv[:1] in (["-h"], ["--help"]):
        print(f"usage: python -m service [COMMAND] [OPTION ...]\n\n{overview()}\n\noptions of serve:")
    if not argv or argv[0].startswith("-"):
        argv = [SERVE, *argv]
    word, *options = argv
    if word not in COMMANDS:
        return complain(word)
    return int(import_module(COMMANDS[word].module).main(options))


def overview() -> str:
    """A line for each command."""
    lines = [f"  {word:<14}{command.summary}" for word, command in COMMANDS.items()]
    return "\n".join(["commands (each has its own --help):", *lines])


def complain(word: str) -> int:
    """Answer a word that is no command with the nearest one; returns the exit code."""
    near = get_close_matches(word, COMMANDS, 1)
    meant = f" Did you mean {near[0]}?" if near else ""
    print(f"There is no command {word!r}.{meant} All of them are in --help.", file=sys.stderr)
    return MISTYPED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
