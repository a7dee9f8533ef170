"""The options that declare a load."""

from __future__ import annotations

import argparse
import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args

import msgspec

from service.commands import cli
from service.load.client import Client
from service.messages.load import LOAD_BOUNDS, USUAL_PROMPTS, Length, LognormalLength, Pattern, RunLoad, UniformLength
from service.messages.objectives import Objectives
from service.messages.workload import WorkloadAbout

MOST_PROMPTS_BYTES: Final = 16 * 1024**2
PATTERNS: Final[dict[str, type[msgspec.Struct]]] = {str(kind.__struct_config__.tag): kind for kind in get_args(Pattern)}

_NUMBERS: Final = {name: cli.number(bounds) for name, bounds in LOAD_BOUNDS.items()}
_count, _rate, _span = _NUMBERS["count"], _NUMBERS["rate_per_s"], _NUMBERS["span_s"]

NOTATION: Final = 'a number ("24"), a range ("8-128") or "lognormal(32,0.6,256)": median, sigma and cap'
_RANGE = re.compile(r"(\d{1,9})\s*[-–]\s*(\d{1,9})")
_LOGNORMAL = re.compile(r"lognormal\(\s*(\d{1,9})\s*,\s*(\d{1,3}(?:\.\d{1,6})?)\s*,\s*(\d{1,9})\s*\)")


def _rates(text: str) -> tuple[float, ...]:
    return tuple(_rate(part.strip()) for part in text.split(","))


class _Choice(NamedTuple):
    """An option that some patterns have; `usual` is ``None`` where it must be given."""

    flag: str
    parse: Callable[[str], Any]
    usual: Any
    help: str


CHOICES: Final[dict[str, _Choice]] = {
    "count": _Choice("--count", _count, 64, "requests at once"),
    "users": _Choice("--users", _NUMBERS["users"], 16, "users, each of which waits for its answer"),
    "think_s": _Choice("--think-s", _NUMBERS["think_s"], 0.0, "from an answer to the user's next request"),
    "think": _Choice("--think", str, "fixed", "how think times are drawn: fixed or exponential"),
    "rate_per_s": _Choice("--rate", _rate, 4.0, "requests a second"),
    "shape": _Choice("--shape", _NUMBERS["shape"], 0.5, "of the intervals: below 1 clustered, above 1 even"),
    "on_s": _Choice("--on-s", _span, 5.0, "how long requests arrive"),
    "off_s": _Choice("--off-s", _span, 5.0, "how long none do"),
    "rate_to_per_s": _Choice("--rate-to", _rate, 16.0, "rate at the end of the ramp"),
    "over_s": _Choice("--over-s", _span, 30.0, "how long the ramp takes"),
    "rates_per_s": _Choice("--rates", _rates, (2.0, 4.0, 8.0), "rates one after the other, such as 2,4,8"),
    "step_s": _Choice("--step-s", _span, 10.0, "how long each of them holds"),
    "path": _Choice("--trace", str, None, "file of arrivals, JSON Lines with offset_s, prompt, max_tokens"),
    "time_scale": _Choice("--time-scale", _NUMBERS["time_scale"], 1.0, "0.5 replays it twice as fast"),
}


def add_load_options(parser: argparse.ArgumentParser) -> None:
    """Add what `load_of` makes a load of."""
    group = parser.add_argument_group("the load")
    group.add_argument("--pattern", choices=PATTERNS, default="poisson", help="(default: poisson)")
    for field, choice in CHOICES.items():
        names = ", ".join(name for name, kind in PATTERNS.items() if field in kind.__struct_fields__)
        usual = "" if choice.usual is None else f" (default: {_text(choice.usual)})"
        choices = ("fixed", "exponential") if field == "think" else None
        meaning = f"{names}: {choice.help}{usual}"
        group.add_argument(choice.flag, dest=field, type=choice.parse, choices=choices, help=meaning)
    group.add_argument("--tokens", type=parse_length, default=24, help=f"tokens a request: {NOTATION} (default: 24)")
    group.add_argument("--prompt", action="append", help="a prompt to draw from; may be given again")
    group.add_argument("--prompts-file", type=_prompts, help="file with a prompt a line")
    group.add_argument("--prompt-words", type=parse_length, help="cut or continue prompts to that many words")
    group.add_argument("--temperature", type=_NUMBERS["temperature"], default=0.0, help="(default: 0)")
    group.add_argument("--no-stream", dest="stream", action="store_false", help="ask for each answer in one piece")
    group.add_argument("--seed", type=int, default=0, help="the same seed gives the same arrivals and requests")
    beyond = "the most unanswered requests; arrivals beyond them are dropped and counted (default: 1024)"
    group.add_argument("--max-outstanding", type=_count, default=1024, help=beyond)


def add_objective_option(parser: argparse.ArgumentParser) -> None:
    """Add what `objectives_of` reads."""
    meaning = "what a request is to meet to count for goodput, in seconds: latency=1 ttft=0.3 tpot=0.05, or p95=1"
    parser.add_argument("--objective", nargs="+", action="extend", default=[], help=meaning)


def objectives_of(options: argparse.Namespace) -> Objectives:
    """The objectives of the options; raises `UsageError` for those that could not be measured."""
    objectives = Objectives.parse(options.objective)
    if not options.stream and (objectives.ttft_s is not None or objectives.tpot_s is not None):
        raise cli.UsageError("Without a stream only the latency is known: leave out --no-stream, ttft and tpot.")
    return objectives


def load_of(options: argparse.Namespace) -> RunLoad:
    """The load that the options declare; raises `UsageError` where they contradict each other."""
    prompts = (*(options.prompt or ()), *(options.prompts_file or ()))
    return RunLoad(
        pattern=_pattern(options),
        prompts=prompts or USUAL_PROMPTS,
        max_tokens=options.tokens,
        prompt_words=options.prompt_words,
        temperature=options.temperature,
        stream=options.stream,
        seed=options.seed,
        max_outstanding=options.max_outstanding,
    )


def ask_workload(server: cli.Server, options: argparse.Namespace) -> WorkloadAbout:
    """The workload of the server; options that name no prompts get its examples.

    A mistake in the load is reported before the server is asked. Raises `UsageError`.
    """
    load_of(options)
    about = asyncio.run(workload_at(server))
    if not about.generates:
        options.tokens = 1
        if not (options.prompt or options.prompts_file):
            options.prompt = list(about.examples)
    return about


async def workload_at(server: cli.Server) -> WorkloadAbout:
    """What the server computes; text, where it does not say."""
    async with Client(server.url, server.token) as client:
        return await client.workload()


def _pattern(options: argparse.Namespace) -> Pattern:
    name, kind = options.pattern, PATTERNS[options.pattern]
    fields = {field: choice.usual for field, choice in CHOICES.items() if field in kind.__struct_fields__}
    given = {field: value for field in CHOICES if (value := getattr(options, field)) is not None}
    for field in given.keys() - fields.keys():
        flags = ", ".join(CHOICES[field].flag for field in fields)
        raise cli.UsageError(f"{CHOICES[field].flag} does not belong to the pattern {name}, which has {flags}.")
    fields |= given
    for field, value in fields.items():
        if value is None:
            raise cli.UsageError(f"The pattern {name} needs {CHOICES[field].flag}.")
    try:
        pattern: Pattern = msgspec.convert({"pattern": name, **fields}, type=Pattern)
    except msgspec.ValidationError as error:
        raise cli.UsageError(f"The pattern {name} cannot be like this: {error}.") from error
    return pattern


def _text(value: object) -> str:
    return ",".join(f"{item:g}" for item in value) if isinstance(value, tuple) else f"{value}"


def parse_length(text: str) -> Length:
    """The type of an option that takes a length."""
    text = text.strip()
    try:
        if text.isascii() and text.isdecimal():
            return _whole(text)
        if found := _RANGE.fullmatch(text):
            return UniformLength(low=_whole(found[1]), high=_whole(found[2]))
        if found := _LOGNORMAL.fullmatch(text):
            return LognormalLength(median=_whole(found[1]), sigma=_sigma(found[2]), cap=_whole(found[3]))
    except ValueError as e:
        raise argparse.ArgumentTypeError(f"{text!r} is no length: {e}") from e
    raise argparse.ArgumentTypeError(f"{text!r} is no length: give {NOTATION}.")


def _whole(text: str) -> int:
    number, bounds = int(text), LOAD_BOUNDS["tokens"]
    if not bounds.low <= number <= bounds.high:
        raise ValueError(f"it must lie from {bounds.low:g} to {bounds.high:,.0f}.")
    return number


def _sigma(text: str) -> float:
    sigma = float(text)
    if not 0 < sigma <= 5:
        raise ValueError("its sigma must be above 0 and at most 5.")
    return sigma


def _prompts(path: str) -> tuple[str, ...]:
    try:
        with Path(path).open("rb") as file:
            content = file.read(MOST_PROMPTS_BYTES + 1)
        lines = content.decode().splitlines()
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"the prompts cannot be read from {path}: {error}") from error
    if len(content) > MOST_PROMPTS_BYTES:
        raise argparse.ArgumentTypeError(f"{path} is larger than {MOST_PROMPTS_BYTES // 1024**2} MiB")
    prompts = tuple([line for line in lines if line.strip()])
    if not prompts:
        raise argparse.ArgumentTypeError(f"{path} holds no prompt")
    return prompts
