"""`python -m service predict`: watches a running service and tells what other settings would give under its load."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path
from typing import Final

import msgspec
from tqdm import tqdm

from service.analysis.observed.history import History
from service.analysis.predict import control
from service.analysis.predict.observation import Observation
from service.analysis.predict.predict import Predictor
from service.analysis.predict.report import Report, measured, table
from service.commands.remote import RemoteService, ServiceUnreachableError
from service.load.options import SentenceParser, add_address_options, seconds
from service.messages.clock import monotonic_clock_id
from service.messages.files import NotWrittenError, write_whole
from service.messages.settings import BOUNDS, SettingError, Settings, VersionedSettings
from service.messages.telemetry import FramesMissed, TelemetryEvent, TelemetryFrame
from service.messages.text import parse_number

BAR: Final = "watching {percentage:3.0f}%|{bar}| {n:.1f} of {total:g} s{postfix}"
CANNOT: Final = 2
INTERRUPTED: Final = 130


class TooLittleSeenError(Exception):
    """Nothing can be predicted; the text is a sentence that says what to do."""


def main(argv: list[str]) -> int:
    """0 after a prediction, 2 if none could be made, 130 if it was interrupted."""
    if "--control" in argv:
        return control.main()
    options = _parser().parse_args(argv)
    try:
        report = asyncio.run(_watch_and_predict(options))
        print(table(report))
        if options.json is not None:
            write_whole(options.json, msgspec.json.encode(report) + b"\n")
    except (ServiceUnreachableError, SettingError, TooLittleSeenError, NotWrittenError) as error:
        print(error, file=sys.stderr)
        return CANNOT
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = SentenceParser(prog="python -m service predict", description=__doc__.partition(": ")[2] if __doc__ else "")
    add_address_options(parser)
    parser.add_argument("--seconds", type=seconds, default=20.0, help="how long to watch the load (default: 20)")
    parser.add_argument(
        "--set",
        dest="changes",
        action="append",
        default=[],
        type=_change,
        metavar="SETTING=VALUE",
        help=f"what would be different, such as max_batch_size=8; may be given again ({', '.join(BOUNDS)}, formation)",
    )
    parser.add_argument("--json", type=Path, help="file for the figures")
    return parser


def _change(text: str) -> tuple[str, object]:
    name, is_set, value = text.partition("=")
    if not is_set:
        raise argparse.ArgumentTypeError(f"{text!r} is no SETTING=VALUE such as max_batch_size=8")
    return name.strip(), _value(name.strip(), value.strip())


def _value(name: str, text: str) -> object:
    """A number where the setting is one; what is none is left for the settings to refuse by name."""
    try:
        number = parse_number(text)
    except ValueError:
        return text
    return int(number) if name in BOUNDS and BOUNDS[name].integral and number.is_integer() else number


async def _watch_and_predict(options: argparse.Namespace) -> Report:
    async with RemoteService(options.url, options.token) as remote:
        before = await remote.settings()
        asked = before.settings.revised(dict(options.changes))
        history = await _watched(remote, options.seconds)
    return _report(options.url, before, asked, history, options.seconds)


async def _watched(remote: RemoteService, watch_s: float) -> History:
    """The telemetry of the next `watch_s`, with a bar on standard error."""
    history = History(monotonic_clock_id())
    begun_s = time.monotonic()
    every_s = 0.1 if sys.stderr.isatty() else 5.0  # a log shall not be flooded
    with tqdm(total=watch_s, bar_format=BAR, mininterval=every_s, file=sys.stderr) as bar:
        try:
            async with asyncio.timeout(watch_s):
                async for event in remote.telemetry():
                    _add(history, event)
                    bar.set_postfix_str(f"{len(history.requests.columns)} requests", refresh=False)
                    bar.update(min(time.monotonic() - begun_s, watch_s) - bar.n)
        except TimeoutError:
            bar.update(watch_s - bar.n)
    return history


def _add(history: History, event: TelemetryEvent) -> None:
    match event:
        case TelemetryFrame():
            history.add_telemetry(event)
        case FramesMissed():
            history.add_missed(event)


def _report(url: str, before: VersionedSettings, asked: Settings, history: History, watch_s: float) -> Report:
    first_s, at_s = history.first_s, history.last_s
    if first_s is None or at_s is None:
        raise TooLittleSeenError(f"{url} said nothing in {watch_s:g} s. Is it a Batchscope service?")
    if history.in_force is not None and history.in_force.version != before.version:
        raise TooLittleSeenError("The settings were changed meanwhile. Leave them alone while it watches.")
    observation = Observation.of_history(history, at_s, at_s - first_s)
    if observation is None:
        seen = len(history.requests.columns)
        raise TooLittleSeenError(
            f"Only {seen} requests were seen in {watch_s:g} s, too few to predict from. "
            "Send some load (python -m service load …) or watch longer with --seconds."
        )
    predictor = Predictor.of(observation)
    expected, prediction = predictor.predict(before.settings), predictor.predict(asked)
    if expected is None or prediction is None:
        raise TooLittleSeenError(
            "What batches cost that run side by side is known only where they do: change max_concurrent_batches on the "
            "service first, then ask again."
        )
    cost = predictor.cost.under(asked.formation)
    return Report(
        url=url,
        unit=history.unit,
        watched_s=watch_s,
        settings=before.settings,
        measured=measured(history, observation.load.start_s, at_s),
        expected=expected,
        prediction=prediction,
        capacity=cost.capacity(asked.max_batch_size, asked.places),
        marginal_s=cost.marginal_s,
        marginal_error_s=cost.marginal_error_s,
    )
