"""`python -m service deploy-config`: the settings in force, or others, as a Ray Serve config file."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from service.analysis.compare.comparison import ServiceFacts
from service.analysis.compare.serve_config import Place, measured_config, merged
from service.analysis.observed.descriptions import settings_text
from service.commands import cli
from service.commands.runs import MeasuredService, settings_in_force
from service.messages.files import write_whole
from service.messages.options import APP_NAME
from service.messages.pipes import ExitCode


@cli.command
def main(argv: list[str]) -> int:
    """0 when the file is written, 2 if it can't be."""
    options = _parser().parse_args(argv)
    server = cli.server_of(options)
    settings = cli.revised(asyncio.run(settings_in_force(server)), options.set)
    place = Place(options.name, options.route_prefix, tuple(options.allow_host))
    config = measured_config(asyncio.run(_facts(server)), settings, f"{settings_text(settings)}.", place=place)
    if options.merge is not None:
        config = merged(config, _read(options.merge))
    write_whole(options.output, config.encode())
    print(f"Written to {options.output}. Start it with: serve run {options.output}")
    return ExitCode.DONE


def _parser() -> argparse.ArgumentParser:
    parser = cli.Parser(
        "deploy-config",
        "Write the settings of a running service as a file for `serve run` and `serve deploy`.",
        "--url http://127.0.0.1:8000 --set max_batch_size=8 serve.yaml",
    )
    cli.add_server_options(parser)
    parser.add_argument(
        "--set", action="append", default=[], metavar="SETTING=VALUE", help="another value, such as max_batch_size=8"
    )
    add = parser.add_argument
    add("--name", default=APP_NAME, help="of the application on its cluster (default: %(default)s)")
    add("--route-prefix", type=cli.route_prefix, default="/", metavar="/PREFIX", help="where it answers (default: /)")
    add("--allow-host", type=cli.host, action="append", default=[], metavar="NAME[:PORT]", help=cli.ALLOW_HOST)
    add("--merge", type=Path, metavar="FILE", help="keep the other applications of this config file")
    parser.add_argument("output", type=Path, help="the file, such as serve.yaml")
    return parser


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise cli.UsageError(f"The file {path} cannot be read: {error}.") from error


async def _facts(server: cli.Server) -> ServiceFacts:
    async with MeasuredService.at(server, lambda _: None) as service:
        return await service.facts()
