"""What `python -m service` is told on its command line."""

from __future__ import annotations

import argparse
import ipaddress
import os
import stat
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from service.messages.options import ServiceOptions
from service.messages.settings import FORMATIONS, LONGEST_WAIT_S, SCALE_BOUNDS, SettingError, Settings
from service.messages.text import parse_number

DEFAULT_APP: Final = "service.app:build"
MIN_TOKEN_LENGTH: Final = 16


class OptionError(ValueError):
    """The command line cannot be obeyed; its text is a sentence for the user that says what to do."""


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        port: the one port to listen on; ``None`` for 8000 or the next free one, 0 for any free one.
        address: of a Ray cluster to run on, instead of a local one of our own.
        token_file: holds the bearer token that every request must carry.
        app: `module:function` that builds the Serve application from `ServiceOptions`.
        parent_pid: the service ends with this process; ``None`` for the one that started it.
    """

    service: ServiceOptions = ServiceOptions()
    host: str = "127.0.0.1"
    port: int | None = None
    address: str | None = None
    token_file: str | None = None
    app: str = DEFAULT_APP
    parent_pid: int | None = None


def parse(arguments: Sequence[str]) -> RunOptions:
    """The options that `arguments` spell; raises `OptionError`."""
    parsed = _parser().parse_args(arguments)
    options = RunOptions(
        service=ServiceOptions(
            workload=parsed.workload,
            model=parsed.model,
            device=parsed.device,
            dtype=parsed.dtype,
            replicas=parsed.replicas,
            settings=_settings(parsed),
            max_ongoing_requests=parsed.max_ongoing_requests,
        ),
        host="127.0.0.1" if parsed.host == "localhost" else parsed.host,
        port=parsed.port,
        address=parsed.address,
        token_file=parsed.token_file,
        app=parsed.app,
        parent_pid=parsed.parent_pid,
    )
    _check_token(options)
    return options


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        raise OptionError(f"The options are not understood: {message}. See python -m service --help.")


def _parser() -> argparse.ArgumentParser:
    default = ServiceOptions()
    parser = _Parser(prog="python -m service", description=__doc__, allow_abbrev=False)
    parser.description = (
        "Run the text generator on Ray Serve. Each state is a JSON line on standard output, the log goes to standard "
        "error. Ends on SIGTERM or Ctrl-C and when its parent ends. `python -m service load --help` is the load "
        "generator."
    )
    add = parser.add_argument
    add(
        "--workload",
        default=default.workload,
        help="text, adder, house-price, or your own as package.module:Class (default: %(default)s)",
    )
    add("--model", default=default.model, help="a local folder, a GGUF file or a hub id (default: %(default)s)")
    add("--device", default=default.device, help="auto, cpu, cuda, cuda:1, mps (default: %(default)s)")
    add("--dtype", default=default.dtype, help="auto, bfloat16, float16, float32, int8 (default: %(default)s)")
    add(
        "--replicas",
        type=_whole_in("replicas"),
        default=default.replicas,
        help="copies of the model (default: %(default)s)",
    )
    add("--host", default="127.0.0.1", help="address to listen on; any but loopback needs --token-file")
    add("--port", type=_whole(0, 65535), help="port to listen on (default: 8000 or the next free one; 0: any free one)")
    add("--token-file", metavar="FILE", help="file with the bearer token that every request must carry")
    add("--address", metavar="RAY", help="run on the Ray cluster at this address instead of a local one")
    _add_settings(parser)
    add(
        "--max-ongoing-requests",
        type=_whole_in("max_ongoing_requests"),
        default=default.max_ongoing_requests,
        help="requests Ray lets a replica hold; a low one caps every batch (default: %(default)s)",
    )
    add("--parent-pid", type=_whole(1, 2**31), help="end with this process instead of the one that started it")
    add("--app", default=DEFAULT_APP, help=argparse.SUPPRESS)
    return parser


def _add_settings(parser: argparse.ArgumentParser) -> None:
    """A flag for each of `Settings`, of which `_settings` makes them again."""
    settings, add = Settings(), parser.add_argument
    add(
        "--formation",
        choices=FORMATIONS,
        default=settings.formation,
        help="late: batches form when the engine is free; early: as Ray's decorator seals them; continuous: requests "
        "join and leave between two steps (default: %(default)s)",
    )
    add("--max-batch-size", type=_number, default=settings.max_batch_size)
    add("--batch-wait-timeout-s", type=_number, default=settings.batch_wait_timeout_s)
    add(
        "--allow-small-batch",
        type=_switch,
        default=settings.allow_small_batch,
        metavar="on|off",
        help=f"off: batches leave only when full, or after {LONGEST_WAIT_S:g} s (default: on)",
    )
    add("--stride-s", type=_number, default=settings.stride_s, help="batches leave only on ticks of this period")
    add("--max-batch-tokens", type=_number, default=settings.max_batch_tokens, help="prompts and max_tokens of a batch")
    add("--max-concurrent-batches", type=_number, default=settings.max_concurrent_batches)
    add("--max-queued-requests", type=_number, default=settings.max_queued_requests)


def _settings(parsed: argparse.Namespace) -> Settings:
    fields = {name: getattr(parsed, name) for name in Settings.__struct_fields__}
    try:
        return Settings().revised(fields)
    except SettingError as error:
        raise OptionError(f"--{error.field.replace('_', '-')}: {error.rule}") from error


def _check_token(options: RunOptions) -> None:
    if options.token_file is not None:
        _check_token_file(options.token_file)
    elif not is_loopback(options.host):
        raise OptionError(
            f"Listening on {options.host} would let other machines in: give a bearer token with --token-file FILE, or "
            "leave --host out to listen on 127.0.0.1 only."
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a service that listens on `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_token(path: str) -> str:
    """The token in the file at `path`; raises `OSError` or `UnicodeError`."""
    return Path(path).read_text(encoding="ascii").strip()


def _check_token_file(path: str) -> None:
    try:
        token = read_token(path)
        mode = os.stat(path).st_mode
    except (OSError, UnicodeError) as error:
        raise OptionError(f"The token file {path} cannot be read: {error}.") from error
    if len(token) < MIN_TOKEN_LENGTH or not token.isprintable() or " " in token:
        raise OptionError(
            f"The token file {path} must hold one word of at least {MIN_TOKEN_LENGTH} characters, such as the output "
            "of: openssl rand -hex 32."
        )
    if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise OptionError(f"The token file {path} can be read by others: run chmod 600 on it.")


def _number(text: str) -> float | int | str:
    """The number that `text` spells, or `text`: the setting's own rule then says what is wrong with it."""
    try:
        value = parse_number(text)
    except ValueError:
        return text
    return int(value) if value.is_integer() and text.lstrip("+-").isdigit() else value


def _switch(text: str) -> bool:
    if text not in ("on", "off"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither on nor off")
    return text == "on"


def _whole_in(field: str) -> Callable[[str], int]:
    bounds = SCALE_BOUNDS[field]
    return _whole(int(bounds.low), int(bounds.high))


def _whole(low: int, high: int) -> Callable[[str], int]:
    def parse_whole(text: str) -> int:
        if not (text.isascii() and text.isdigit() and low <= int(text) <= high):
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {low} to {high}")
        return int(text)

    return parse_whole
