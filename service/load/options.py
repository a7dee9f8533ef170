"""Options of the command line that declare a load and the server it goes to."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn, get_args
from urllib.parse import urlsplit

import msgspec

from service.load.request_sampler import NOTATION, parse_length
from service.messages.load import LOAD_BOUNDS, USUAL_PROMPTS, Length, Pattern, RunLoad
from service.messages.settings import SettingError
from service.messages.text import parse_number

MOST_PROMPTS_BYTES: Final = 16 * 1024**2
PATTERNS: Final[dict[str, type[msgspec.Struct]]] = {str(kind.__struct_config__.tag): kind for kind in get_args(Pattern)}


class SentenceParser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, without the usage before it."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message.rstrip('.')}. See --help.\n")


def _number(bound: str, is_whole: bool = False) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            number = parse_number(text)
            value = int(number) if is_whole and number.is_integer() else number
            LOAD_BOUNDS[bound].check(bound, value)
        except SettingError as e:
            raise argparse.ArgumentTypeError(f"{text!r} will not do: {e.rule}") from e
        except ValueError as e:
            raise argparse.ArgumentTypeError(f"{text!r} is not a finite number") from e
        return value

    return parse


seconds: Final = _number("span_s")


def _rates(text: str) -> tuple[float, ...]:
    return tuple([_number("rate_per_s")(part.strip()) for part in text.split(",")])


class _Choice(NamedTuple):
    """An option that some patterns have; `usual` is ``None`` where it must be given."""

    flag: str
    parse: Callable[[str], Any]
    usual: Any
    help: str


CHOICES: Final[dict[str, _Choice]] = {
    "count": _Choice("--count", _number("count", True), 64, "requests at once"),
    "users": _Choice("--users", _number("users", True), 16, "users, each of which waits for its answer"),
    "think_s": _Choice("--think-s", _number("think_s"), 0.0, "from an answer to the user's next request"),
    "think": _Choice("--think", str, "fixed", "how they think: fixed or exponential"),
    "rate_per_s": _Choice("--rate", _number("rate_per_s"), 4.0, "requests a second"),
    "shape": _Choice("--shape", _number("shape"), 0.5, "of the intervals: below 1 they cluster, above they even out"),
    "on_s": _Choice("--on-s", _number("span_s"), 5.0, "how long requests arrive"),
    "off_s": _Choice("--off-s", _number("span_s"), 5.0, "how long none do"),
    "rate_to_per_s": _Choice("--rate-to", _number("rate_per_s"), 16.0, "rate at the end of the ramp"),
    "over_s": _Choice("--over-s", _number("span_s"), 30.0, "how long the ramp takes"),
    "rates_per_s": _Choice("--rates", _rates, (2.0, 4.0, 8.0), "rates one after the other, such as 2,4,8"),
    "step_s": _Choice("--step-s", _number("span_s"), 10.0, "how long each of them holds"),
    "path": _Choice("--trace", str, None, "file of arrivals, JSON Lines with offset_s, prompt, max_tokens"),
    "time_scale": _Choice("--time-scale", _number("time_scale"), 1.0, "0.5 replays it twice as fast"),
}


def add_address_options(
    parser: argparse.ArgumentParser,
    *,
    is_required: bool = True,
    help: str = "the server, such as http://127.0.0.1:8000",
) -> None:
    """Which server: `url` and `token`."""
    parser.add_argument("--url", type=_url, required=is_required, help=help)
    parser.add_argument("--token-file", type=_token, dest="token", help="file that holds the server's bearer token")


def add_server_options(parser: argparse.ArgumentParser) -> None:
    """Where the load goes: `url`, `token` and `model`."""
    add_address_options(parser)
    parser.add_argument("--model", help="name of the model to ask for (default: the first one the server lists)")


def add_load_options(parser: argparse.ArgumentParser) -> None:
    """What `load_of` makes a load of."""
    group = parser.add_argument_group("the load")
    group.add_argument("--pattern", choices=PATTERNS, default="poisson", help="(default: poisson)")
    for field, choice in CHOICES.items():
        names = ", ".join(name for name, kind in PATTERNS.items() if field in kind.__struct_fields__)
        usual = "" if choice.usual is None else f" (default: {_spelled(choice.usual)})"
        choices = ("fixed", "exponential") if field == "think" else None
        text = f"{names}: {choice.help}{usual}"
        group.add_argument(choice.flag, dest=field, type=choice.parse, choices=choices, help=text)
    group.add_argument("--tokens", type=_length, default=24, help=f"tokens a request: {NOTATION} (default: 24)")
    group.add_argument("--prompt", action="append", help="a prompt to draw from; may be given again")
    group.add_argument("--prompts-file", type=_prompts, help="file with a prompt a line")
    group.add_argument("--prompt-words", type=_length, help="cut or continue prompts to that many words")
    group.add_argument("--temperature", type=_number("temperature"), default=0.0, help="(default: 0)")
    group.add_argument("--no-stream", dest="stream", action="store_false", help="ask for each answer in one piece")
    group.add_argument("--seed", type=int, default=0, help="the same seed gives the same arrivals and requests")
    group.add_argument(
        "--max-outstanding",
        type=_number("count", True),
        default=1024,
        help="arrivals beyond so many unanswered requests are dropped and counted (default: 1024)",
    )


def load_of(parser: argparse.ArgumentParser, options: argparse.Namespace) -> RunLoad:
    """The load that the options declare; ends the program with a sentence where they contradict each other."""
    prompts = (*(options.prompt or ()), *(options.prompts_file or ()))
    return RunLoad(
        pattern=_pattern(parser, options),
        prompts=prompts or USUAL_PROMPTS,
        max_tokens=options.tokens,
        prompt_words=options.prompt_words,
        temperature=options.temperature,
        stream=options.stream,
        seed=options.seed,
        max_outstanding=options.max_outstanding,
    )


def _pattern(parser: argparse.ArgumentParser, options: argparse.Namespace) -> Pattern:
    name, kind = options.pattern, PATTERNS[options.pattern]
    fields = {field: choice.usual for field, choice in CHOICES.items() if field in kind.__struct_fields__}
    flags = ", ".join(CHOICES[field].flag for field in fields)
    for field, choice in CHOICES.items():
        value = getattr(options, field)
        if value is None:
            continue
        if field not in fields:
            parser.error(f"{choice.flag} does not belong to the pattern {name}, which has {flags}")
        fields[field] = value
    for field, value in fields.items():
        if value is None:
            parser.error(f"the pattern {name} needs {CHOICES[field].flag}")
    try:
        pattern: Pattern = msgspec.convert({"pattern": name, **fields}, type=Pattern)
    except msgspec.ValidationError as e:
        parser.error(f"the pattern {name} cannot be like this: {e}")
    return pattern


def _spelled(value: object) -> str:
    return ",".join(f"{item:g}" for item in value) if isinstance(value, tuple) else f"{value}"


def _length(text: str) -> Length:
    try:
        return parse_length(text)
    except ValueError as e:
        raise argparse.ArgumentTypeError(str(e)) from e


def _prompts(path: str) -> tuple[str, ...]:
    try:
        with Path(path).open("rb") as file:
            content = file.read(MOST_PROMPTS_BYTES + 1)
        lines = content.decode().splitlines()
    except (OSError, ValueError) as e:
        raise argparse.ArgumentTypeError(f"the prompts cannot be read from {path}: {e}") from e
    if len(content) > MOST_PROMPTS_BYTES:
        raise argparse.ArgumentTypeError(f"{path} is larger than {MOST_PROMPTS_BYTES // 1024**2} MiB")
    prompts = tuple([line for line in lines if line.strip()])
    if not prompts:
        raise argparse.ArgumentTypeError(f"{path} holds no prompt")
    return prompts


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable:
        raise argparse.ArgumentTypeError(f"{text!r} is not an address such as http://127.0.0.1:8000")
    return text.rstrip("/").removesuffix("/v1")


def _token(path: str) -> str:
    try:
        token = Path(path).read_text(encoding="ascii").strip()
    except (OSError, ValueError) as e:
        raise argparse.ArgumentTypeError(f"the token cannot be read from {path}: {e}") from e
    if not token:
        raise argparse.ArgumentTypeError(f"{path} holds no token")
    return token
