"""The command line of `batchscope`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from service.__main__ import overview
from service.messages.installation import VERSION
from service.messages.options import Attachment, ServiceOptions, address, read_token
from service.messages.workload import TEXT

OF_A_START: Final = ("workload", "model", "device", "dtype", "port", "replicas", "address")
ThemePreference: TypeAlias = Literal["system", "dark", "light"]


@dataclass(frozen=True)
class Arguments:
    """The parsed command line.

    Attributes:
        model, device, dtype, theme: override the preferences; ``None`` keeps them.
        attachment: a running service to look at, instead of one that is started.
        service: further options, handed to the service as they are.
        file: a recording or a lesson to open.
        demo_s: seconds of load in a demo that runs, reports and ends by itself.
    """

    model: str | None = None
    device: str | None = None
    dtype: str | None = None
    theme: ThemePreference | None = None
    attachment: Attachment | None = None
    port: int | None = None
    service: tuple[str, ...] = ()
    file: Path | None = None
    demo_s: float | None = None
    report: Path | None = None
    screenshot: Path | None = None


def parse(words: Sequence[str] | None = None) -> Arguments:
    """Parse `words` (by default the command line); exit with a message if they are invalid."""
    parser = _parser()
    given = parser.parse_args(words)
    if given.demo_s is None and (given.report or given.screenshot):
        parser.error("--report and --screenshot need --demo.")
    if given.demo_s is not None and given.file is not None:
        parser.error("a --demo runs the service; it opens no file.")
    fields = vars(given)
    url, token_file = fields.pop("url"), fields.pop("token_file")
    if url is None and token_file is not None:
        parser.error("--token-file is of a running service: name it with --url.")
    of_a_start = [name for name in OF_A_START if fields[name] is not None]
    if url is not None and of_a_start:
        parser.error(f"--url attaches to a running service, which has a {of_a_start[0]} already.")
    model = _served(fields.pop("workload"), fields.pop("model"))
    further = {f"--{name}": fields.pop(name) for name in ("replicas", "address")}
    service = tuple(f"{name}={value}" for name, value in further.items() if value is not None)
    attachment = None if url is None else Attachment(url, token_file or "")
    return Arguments(model=model, service=service, attachment=attachment, **fields)


def mistyped(word: str) -> bool:
    """Whether `word` looks like a command: it is neither an option nor an existing file, nor named like a file.

    >>> mistyped("bnech"), mistyped("--demo"), mistyped("run.bsr"), mistyped("./run")
    (True, False, False, False)
    """
    return not word.startswith("-") and word.replace("-", "_").isidentifier() and not Path(word).exists()


def _served(workload: str | None, model: str | None) -> str | None:
    """The entry in the model's place: a workload other than text, or a model."""
    if workload == TEXT.name:
        return model or ServiceOptions().model
    return workload or model


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="batchscope",
        usage="batchscope [COMMAND ...] | [RECORDING.bsr | LESSON.md] [OPTION ...] | lesson [new] [FILE] | desktop",
        description="An oscilloscope for dynamic batching: opens the window, or runs a command.",
        epilog=overview(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--version", action="version", version=f"Batchscope {VERSION}")
    add(
        "file",
        type=Path,
        nargs="?",
        metavar="FILE",
        help="open a recording (.bsr) or another load generator's result (.json, .jsonl), without a service, or a "
        "lesson (.md)",
    )
    add("--url", type=address, metavar="URL", help="attach to this running service, such as http://127.0.0.1:8000")
    add("--token-file", type=_token_file, metavar="FILE", help="holds the bearer token of the service at --url")
    add("--workload", metavar="NAME", help="text, adder, house-price, or your own as package.module:Class")
    add(
        "--model",
        metavar="SPEC",
        help="a local folder, a GGUF file, a hub id, or stub for none, instead of the one last used",
    )
    add("--device", help="auto, cpu, cuda, mps")
    add("--dtype", help="auto, bfloat16, float16, float32, int8")
    add("--port", type=_port, help="port of the service (8000 or the next free one)")
    add("--replicas", type=int, metavar="N", help="copies of the model (1)")
    add("--address", metavar="RAY", help="run the service on this Ray cluster instead of a local one")
    add("--theme", choices=("system", "dark", "light"), help="instead of the one last used")
    add("--demo", dest="demo_s", type=_seconds, metavar="SECONDS", help="run a scripted load for this time, and report")
    add("--report", type=Path, metavar="FILE.json", help="where the demo writes what it measured")
    add("--screenshot", type=Path, metavar="FILE.png", help="where the demo puts its picture of the window")
    return parser


def _token_file(path: str) -> str:
    try:
        read_token(path)
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"the token cannot be read from {path}: {error}") from error
    return str(Path(path).absolute())


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65535:
        raise ValueError(text)
    return port


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError("must be from 1 to 3600 s")
    return seconds
