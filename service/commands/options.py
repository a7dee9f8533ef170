"""What `compare` and `sweep` are asked alike: the server, the load, for how long, and where the result goes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

from service.analysis.compare.plan import WARM_UP_S, PlanError
from service.load.options import add_load_options, add_server_options, seconds

DURATION_S = 10.0


class Server(NamedTuple):
    """Whom to ask, as the command line says it."""

    url: str
    token: str | None = None
    model: str | None = None


def add_measuring_options(parser: argparse.ArgumentParser, rounds: int) -> None:
    add_server_options(parser)
    parser.add_argument("--duration", type=seconds, default=DURATION_S, help="seconds to send for, in each run")
    parser.add_argument(
        "--rounds", type=number_of_rounds, default=rounds, help=f"runs of each setting (default: {rounds})"
    )
    parser.add_argument("--warm-up", type=_warm_up, default=WARM_UP_S, help="seconds of load before; not counted")
    parser.add_argument("--json", type=Path, help="file for the result: plan, every run, and what they say")
    parser.add_argument("--html", type=Path, help="file for a report with plots, a page that needs nothing else")
    parser.add_argument("--control", action="store_true", help="plan in on standard input, events out: for the window")
    add_load_options(parser)


def server_of(options: argparse.Namespace) -> Server:
    return Server(options.url, options.token, options.model)


def check_folders(*paths: Path | None) -> None:
    """Say before minutes are spent that a result could not be written."""
    for path in paths:
        if path is not None and not path.parent.is_dir():
            raise PlanError(f"There is no folder {path.parent} to write {path.name} to.")


def number_of_rounds(text: str) -> int:
    """What the option spells; raises `argparse.ArgumentTypeError`."""
    rounds = int(text) if text.isascii() and text.isdigit() else 0
    if not 1 <= rounds <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 to 1000")
    return rounds


def _warm_up(text: str) -> float:
    return 0.0 if text == "0" else seconds(text)
