"""What all commands share: parsers, the types of options, `setting=value`, exit codes and the progress bar."""

from __future__ import annotations

import argparse
import functools
import re
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, Self

import msgspec

from service.messages.files import write_whole
from service.messages.load import LOAD_BOUNDS
from service.messages.options import SMALL_MODEL, ServiceOptions, address, host_and_port, read_token
from service.messages.pipes import ExitCode
from service.messages.settings import (
    BOUNDS,
    SCALE_BOUNDS,
    SWITCH,
    Bounds,
    SettingError,
    Settings,
    setting_text,
    setting_value,
)
from service.messages.text import UserError

if TYPE_CHECKING:
    from tqdm import tqdm

HELP_WIDTH: Final = 100
DRAW_EVERY_S: Final = 0.2
LOG_EVERY_S: Final = 5.0  # a log is not to be flooded
MOST_ROUNDS: Final = 1000
ALLOW_HOST: Final = "a further name by which clients call, behind a tunnel, a container or a proxy; may be given again"
ROUTE_PREFIX: Final = re.compile(r"/|(/[A-Za-z0-9._~-]+)+")
ASSIGNMENT: Final = re.compile(r"(?:^|,)\s*([a-z_-]+)\s*=")
SERVICE_HELP: Final = {
    "workload": "text, adder, house-price, or your own as package.module:Class",
    "model": "a local folder, a GGUF file, a hub id, or stub for none; auto takes what suits the device",
    "device": "auto, cpu, cuda, cuda:1, mps",
    "dtype": "auto, bfloat16, float16, float32, int8",
    "deterministic": "let no completion depend on the requests beside it",
}


SWITCHES: Final = frozenset({"deterministic"})
WITHOUT_SERVICE: Final = ServiceOptions(model=SMALL_MODEL)
"""What is computed or measured without starting a service: by the same model on every machine, and after `--resume`."""


class UsageError(UserError):
    """The options of a command are not understood, or contradict each other or the state of its files."""


def command(main: Callable[[list[str]], int]) -> Callable[[list[str]], int]:
    """`main` with the end that all commands have: a `UserError` is a sentence on standard error, Ctrl-C is 130."""

    @functools.wraps(main)
    def run(argv: list[str]) -> int:
        try:
            return main(argv)
        except UserError as error:
            print(error, file=sys.stderr)
            return ExitCode.CANNOT
        except KeyboardInterrupt:
            return ExitCode.INTERRUPTED

    return run


# -- parsers ----------------------------------------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    """Answers a mistake with one sentence, without the usage before it; its help ends with an example."""

    def __init__(self, word: str, description: str, *examples: str) -> None:
        prog = f"{program()} {word}"
        lines = "\n".join(f"  {prog} {example}" for example in examples)
        super().__init__(
            prog=prog,
            description=textwrap.fill(description, HELP_WIDTH),
            epilog=f"example:\n{lines}" if examples else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        self.exit(ExitCode.CANNOT, f"{self.prog}: {message.rstrip('.')}. See --help.\n")


def program() -> str:
    """The name under which the commands were called."""
    return "batchscope" if Path(sys.argv[0]).stem == "batchscope" else "python -m service"


class Server(NamedTuple):
    """The server that a command asks, and the model that it asks for."""

    url: str
    token: str | None = None
    model: str | None = None


def add_address_options(
    parser: argparse.ArgumentParser,
    *,
    is_required: bool = True,
    meaning: str = "the server, such as http://127.0.0.1:8000",
) -> None:
    """Add `url` and `token`."""
    parser.add_argument("--url", type=address, required=is_required, help=meaning)
    parser.add_argument("--token-file", type=_token, dest="token", help="file that holds the server's bearer token")


def add_server_options(parser: argparse.ArgumentParser) -> None:
    """Add what `server_of` reads: `url`, `token` and `model`."""
    add_address_options(parser)
    parser.add_argument("--model", help="name of the model to ask for (default: the first one the server lists)")


def server_of(options: argparse.Namespace) -> Server:
    return Server(options.url, options.token, options.model)


def add_service_options(parser: argparse.ArgumentParser, *names: str, usual: ServiceOptions = WITHOUT_SERVICE) -> None:
    """Add options for these fields of `ServiceOptions`, with the values of `usual` as defaults."""
    add_struct_options(parser, usual, {name: SERVICE_HELP[name] for name in names if name not in SWITCHES})
    for name in SWITCHES.intersection(names):
        meaning = f"{SERVICE_HELP[name]} (default: off)"
        parser.add_argument(flag(name), type=switch, default=False, metavar="on|off", help=meaning)


def add_struct_options(parser: argparse._ActionsContainer, usual: msgspec.Struct, meanings: Mapping[str, str]) -> None:
    """Add an option for each field of the struct `usual` that `meanings` names, with its value as the default."""
    for name, meaning in meanings.items():
        value = getattr(usual, name)
        bounds = BOUNDS.get(name) or SCALE_BOUNDS.get(name)
        parser.add_argument(
            flag(name),
            type=functools.partial(setting_value, name),
            default=value,
            metavar="on|off" if isinstance(value, bool) else "N" if bounds and bounds.integral else None,
            help=f"{meaning} (default: {setting_text(value)})",
        )


def flag(name: str) -> str:
    """The option of a field.

    >>> flag("max_batch_size")
    '--max-batch-size'
    """
    return f"--{name.replace('_', '-')}"


# -- the types of options ---------------------------------------------------------------------------------------------


def switch(text: str) -> bool:
    """The type of an option that is on or off."""
    value = SWITCH.get(text.strip().lower())
    if value is None:
        raise argparse.ArgumentTypeError(f"{text!r} is neither on nor off")
    return value


def number(bounds: Bounds) -> Callable[[str], Any]:
    """The type of an option that takes a number within these bounds."""

    def parse(text: str) -> object:
        value = bounds.parse(text)
        try:
            bounds.check("", value)
        except SettingError as error:
            raise argparse.ArgumentTypeError(f"{text!r} is not {bounds}") from error
        return value

    return parse


def whole(low: int, high: int) -> Callable[[str], Any]:
    """The type of an option that takes a whole number from `low` to `high`."""
    return number(Bounds(low, high, integral=True))


seconds: Final = number(LOAD_BOUNDS["span_s"])
rounds: Final = whole(1, MOST_ROUNDS)


def assignments(texts: Iterable[str]) -> dict[str, str]:
    """The names and values in texts such as "max_batch_size=8,stride_s=0"; raises `UsageError`.

    >>> assignments(["formation=early, tokens=uniform(8,64)", "stride_s=0"])
    {'formation': 'early', 'tokens': 'uniform(8,64)', 'stride_s': '0'}
    """
    found: dict[str, str] = {}
    for text in texts:
        before, *rest = ASSIGNMENT.split(text)
        if before.strip() or not rest:
            raise UsageError(f"{text!r} says nothing. Write settings such as formation=early,max_batch_size=8.")
        found |= {name: value.strip() for name, value in zip(rest[::2], rest[1::2], strict=True)}
    return found


def revised(settings: Settings, texts: Iterable[str]) -> Settings:
    """`settings` with the changes that texts such as "max_batch_size=8" spell; raises `SettingError`."""
    return settings.revised({name: setting_value(name, value) for name, value in assignments(texts).items()})


def host(text: str) -> str:
    """The type of an option that names a host by which clients call."""
    if host_and_port(text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no name such as gpu-box or localhost:9000")
    return text


def route_prefix(text: str) -> str:
    """The type of an option that says where an application answers."""
    if not ROUTE_PREFIX.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no prefix such as /batchscope")
    return text


def _token(path: str) -> str:
    try:
        token = read_token(path)
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"the token cannot be read from {path}: {error}") from error
    if not token:
        raise argparse.ArgumentTypeError(f"{path} holds no token")
    return token


# -- files and progress -----------------------------------------------------------------------------------------------


def check_folders(*paths: Path | None) -> None:
    """Raise `UsageError` before minutes are spent on a result that could not be written."""
    for path in paths:
        if path is not None and not path.parent.is_dir():
            raise UsageError(f"There is no folder {path.parent} to write {path.name} to.")


def write_json(path: Path | None, value: object, *, indent: int = 0) -> None:
    """Write `value` as JSON, if there is a path; raises `NotWrittenError`."""
    if path is not None:
        encoded = msgspec.json.encode(value)
        write_whole(path, (msgspec.json.format(encoded, indent=indent) if indent else encoded) + b"\n")


class ProgressBar:
    """A progress bar on standard error, from the first `show` on."""

    SECONDS: Final = "{desc} {percentage:3.0f}%|{bar}| {n:.1f} of {total:g} s{postfix}"
    OPEN: Final = "{desc} {n:.1f} s{postfix}"
    SEARCHED: Final = "{desc:<24} {percentage:3.0f}%|{bar}| {n_fmt} of {total_fmt} settings{postfix}"
    RUNS: Final = "{desc:<44} {bar} {n_fmt}/{total_fmt}{postfix}"
    LINES: Final = "{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_fmt}]"

    def __init__(self, form: str, *, leaves: bool = True) -> None:
        """With `leaves` its last state stays on the screen."""
        from tqdm import tqdm  # not above: a service has no bar; not in `show`: that is while something is timed

        self._tqdm = tqdm
        self._form = form
        self._leaves = leaves
        self._every_s = DRAW_EVERY_S if sys.stderr.isatty() else LOG_EVERY_S
        self._drawn_s = 0.0
        self._bar: tqdm[NoReturn] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()

    def show(
        self, done: float, total: float | None, doing: str = "", remark: str = "", *, at_once: bool = False
    ) -> None:
        """Show that `done` of `total` is done; drawn when the last drawing is old enough, or `at_once`."""
        if self._bar is None:
            form = self._form if total is not None else self.OPEN
            how = {"bar_format": form, "unit": " lines", "leave": self._leaves, "file": sys.stderr}
            self._bar = self._tqdm(total=total, initial=done, **how)
        self._bar.total = total
        self._bar.n = done if total is None else min(done, total)
        self._bar.set_description_str(doing, refresh=False)
        self._bar.set_postfix_str(remark, refresh=False)
        if at_once or time.monotonic() - self._drawn_s >= self._every_s:
            self._drawn_s = time.monotonic()
            self._bar.refresh()

    def say(self, sentence: str) -> None:
        """Print `sentence` above the bar."""
        if self._bar is None:
            print(sentence, file=sys.stderr)
        else:
            self._bar.write(sentence, file=sys.stderr)
