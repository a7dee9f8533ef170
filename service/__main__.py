"""`python -m service`: runs the service, or the command that its first argument names."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final

COMMANDS: Final = {
    "batch": "service.commands.batch",
    "bench": "service.commands.bench.command",
    "compare": "service.commands.compare",
    "deploy-config": "service.commands.deploy_config",
    "sweep": "service.commands.sweep",
    "export": "service.commands.export",
    "explain": "service.commands.explain",
    "load": "service.commands.load",
    "record": "service.commands.record",
    "predict": "service.commands.predict",
}


def main(argv: list[str]) -> int:
    """The exit code of the command; each imports only what it needs."""
    named = COMMANDS.get(argv[0]) if argv else None
    if named is not None:
        return int(import_module(named).main(argv[1:]))
    from service.launch.supervisor import main as run_service

    return run_service(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
