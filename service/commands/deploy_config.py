"""`python -m service deploy-config`: the settings in force, or others, as a Ray Serve config file."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from service.analysis.compare.comparison import ServiceFacts
from service.analysis.compare.serve_config import measured_config
from service.analysis.observed.descriptions import setting_value, settings_text
from service.commands.measuring import CANNOT, USER_ERRORS
from service.commands.options import Server, server_of
from service.commands.runs import MeasuredService, settings_in_force
from service.commands.sides import assignments
from service.load.options import SentenceParser, add_server_options
from service.messages.files import write_whole


def main(argv: list[str]) -> int:
    """0 when the file is written, 2 if it can't be."""
    options = _parser().parse_args(argv)
    try:
        server = server_of(options)
        in_force = asyncio.run(settings_in_force(server))
        changes = {name: value for text in options.set for name, value in assignments(text).items()}
        settings = in_force.revised({name: setting_value(value) for name, value in changes.items()})
        facts = asyncio.run(_facts(server))
        config = measured_config(facts, settings, f"{settings_text(settings)}.")
        write_whole(options.output, config.encode())
    except USER_ERRORS as error:
        print(error, file=sys.stderr)
        return CANNOT
    print(f"Written to {options.output}. Start it with: serve run {options.output}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = SentenceParser(
        prog="python -m service deploy-config",
        description="Write the settings of a running service as a file for `serve run` and `serve deploy`.",
    )
    add_server_options(parser)
    parser.add_argument("--set", action="append", default=[], help="another value, such as max_batch_size=8")
    parser.add_argument("output", type=Path, help="the file, such as serve.yaml")
    return parser


async def _facts(server: Server) -> ServiceFacts:
    async with MeasuredService.at(server, lambda _: None) as service:
        return await service.facts()
