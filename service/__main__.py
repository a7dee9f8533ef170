"""`python -m service`: runs the service, or the subcommand that its first argument names."""

from __future__ import annotations

import sys


def main(argv: list[str]) -> int:
    if argv[:1] == ["load"]:
        from service.load.main import main as run_load

        return run_load(argv[1:])
    from service.process.supervisor import main as run_service

    return run_service(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
