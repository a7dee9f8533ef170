"""`python -m service` and its word `serve`: runs the service until it is asked to end."""

from __future__ import annotations

import argparse
import os
import stat
import sys
import time
from collections.abc import Sequence
from typing import Final, NoReturn

import msgspec

from service.commands import cli
from service.messages.installation import VERSION
from service.messages.life import Failed
from service.messages.options import (
    APP_NAME,
    DEFAULT_APP,
    LOOPBACK,
    RunOptions,
    ServiceOptions,
    is_loopback,
    read_token,
)
from service.messages.pipes import ExitCode
from service.messages.settings import MEANINGS, Scale, SettingError, Settings

MIN_TOKEN_LENGTH: Final = 16
SCALE_HELP: Final = {
    "replicas": "copies of the model",
    "max_ongoing_requests": "requests that Ray lets a replica hold; a low number caps every batch",
}


def main(argv: Sequence[str]) -> int:
    """Run the service until it ends; 0 after an orderly end, 1 after `Failed`, 2 for options not understood."""
    started_s = time.monotonic()
    try:
        options = parse(argv)
    except cli.UsageError as error:
        failed = Failed(reason=str(error), exit_code=ExitCode.CANNOT)
        sys.stdout.buffer.write(msgspec.json.encode(failed) + b"\n")
        sys.stdout.flush()
        return ExitCode.CANNOT
    from service.launch.supervisor import run_service

    return run_service(options, started_s)


def parse(arguments: Sequence[str]) -> RunOptions:
    """The options that `arguments` spell; raises `cli.UsageError`."""
    parsed = parser().parse_args(arguments)
    options = RunOptions(
        service=_service(parsed),
        host=LOOPBACK if parsed.host == "localhost" else parsed.host,
        port=parsed.port,
        address=parsed.address,
        token_file=parsed.token_file,
        allow_hosts=tuple(parsed.allow_host),
        name=parsed.name,
        route_prefix=parsed.route_prefix,
        app=parsed.app,
        parent_pid=parsed.parent_pid,
    )
    _check_token(options)
    if options.address is None and (options.name, options.route_prefix) != (APP_NAME, "/"):
        raise cli.UsageError(
            "--name and --route-prefix are for a cluster, where there are others: name it with --address."
        )
    return options


def parser() -> cli.Parser:
    """The parser of the service's own options."""
    made = _ServeParser(
        "serve",
        "Run the text generator on Ray Serve. Each state is a JSON line on standard output; the log goes to standard "
        "error. The service ends on SIGTERM, on Ctrl-C and when its parent process ends.",
        "--model ./my-model --formation continuous --max-batch-size 32",
    )
    add = made.add_argument
    add("--version", action="version", version=f"Batchscope {VERSION}")
    cli.add_service_options(made, *cli.SERVICE_HELP, usual=ServiceOptions())
    add("--host", default=LOOPBACK, help="address to listen on; any but loopback needs --token-file")
    port = "port to listen on (default: 8000 or the next free one; 0: any free one)"
    add("--port", type=cli.whole(0, 65535), help=port)
    add("--token-file", metavar="FILE", help="file with the bearer token that every request must carry")
    add("--allow-host", type=cli.host, action="append", default=[], metavar="NAME[:PORT]", help=cli.ALLOW_HOST)
    add("--address", metavar="RAY", help="run on the Ray cluster at this address instead of a local one")
    add("--name", default=APP_NAME, help="of the application on that cluster (default: %(default)s)")
    prefix = "where it answers on that cluster, beside other applications (default: %(default)s)"
    add("--route-prefix", type=cli.route_prefix, default="/", metavar="/PREFIX", help=prefix)
    add("--parent-pid", type=cli.whole(1, 2**31), help="end with this process instead of the one that started it")
    add("--app", default=DEFAULT_APP, help=argparse.SUPPRESS)
    cli.add_struct_options(made, Scale(), SCALE_HELP)
    cli.add_struct_options(made.add_argument_group("settings, in force until they are changed"), Settings(), MEANINGS)
    return made


class _ServeParser(cli.Parser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        raise cli.UsageError(f"The options are not understood: {message}. See python -m service --help.")


def _service(parsed: argparse.Namespace) -> ServiceOptions:
    given = vars(parsed)
    try:
        settings = Settings().revised({name: given[name] for name in MEANINGS})
        scale = Scale().revised({name: given[name] for name in SCALE_HELP})
    except SettingError as error:
        raise cli.UsageError(f"--{error.field.replace('_', '-')}: {error.rule}") from error
    named = {name: given[name] for name in cli.SERVICE_HELP}
    return ServiceOptions(**named, **msgspec.structs.asdict(scale), settings=settings)


def _check_token(options: RunOptions) -> None:
    path = options.token_file
    if path is None and is_loopback(options.host):
        return
    if path is None:
        raise cli.UsageError(
            f"Listening on {options.host} would let other machines in: give a bearer token with --token-file FILE, or "
            "leave --host out to listen on 127.0.0.1 only."
        )
    try:
        token = read_token(path)
        mode = os.stat(path).st_mode
    except (OSError, UnicodeError) as error:
        raise cli.UsageError(f"The token file {path} cannot be read: {error}.") from error
    if len(token) < MIN_TOKEN_LENGTH or not token.isprintable() or " " in token:
        raise cli.UsageError(
            f"The token file {path} must hold one word of at least {MIN_TOKEN_LENGTH} characters, such as the output "
            "of: openssl rand -hex 32."
        )
    if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise cli.UsageError(f"The token file {path} can be read by others: run chmod 600 on it.")
