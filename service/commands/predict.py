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

from service.clock import monotonic_clock_id
from service.files import NotWrittenError, write_whole
from service.load.options import SentenceParser, add_address_options, seconds
from service.messages import (
    BOUNDS,
    FramesMissed,
    SettingError,
    Settings,
    TelemetryEvent,
    TelemetryFrame,
    VersionedSettings,
    parse_number,
)
from service.observed.history import History
from service.predict import control
from service.predict.cost import Capacity
from service.predict.measured import Measured, measured
from service.predict.observation import Observation
from service.predict.predict import Estimate, Prediction, Predictor
from service.remote import RemoteService, ServiceUnreachableError

BAR: Final = "watching {percentage:3.0f}%|{bar}| {n:.1f} of {total:g} s{postfix}"
CANNOT: Final = 2
INTERRUPTED: Final = 130


class TooLittleSeenError(Exception):
    """Nothing can be predicted; the text is a sentence that says what to do."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What `--json` writes.

    Attributes:
        settings: in force while it watched, for which `measured` and `expected` are told.
        expected: what the same simulation says of the settings in force, beside `measured`: how far it can be trusted.
        capacity: of one replica whose batches are full under the settings asked for.
        marginal_s, marginal_error_s: what one more request adds to the time of its batch, and its standard error.
    """

    url: str
    watched_s: float
    settings: Settings
    measured: Measured
    expected: Prediction
    prediction: Prediction
    capacity: Capacity
    marginal_s: float
    marginal_error_s: float


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
    with tqdm(total=watch_s, bar_format=BAR, file=sys.stderr) as bar:
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
    return Report(
        url=url,
        watched_s=watch_s,
        settings=before.settings,
        measured=measured(history, observation.load.start_s, at_s),
        expected=predictor.predict(before.settings),
        prediction=predictor.predict(asked),
        capacity=predictor.cost.capacity(asked.max_batch_size),
        marginal_s=predictor.cost.marginal_s,
        marginal_error_s=predictor.cost.marginal_error_s,
    )


def table(report: Report) -> str:
    """What is measured now, what the simulation makes of it, and what it says of the settings asked for."""
    now, expected, then = report.measured, report.expected, report.prediction
    rows = [
        _row("p50 latency (s)", now.p50_s, expected.p50_s, then.p50_s, 3),
        _row("p95 latency (s)", now.p95_s, expected.p95_s, then.p95_s, 3),
        _row("requests/s", now.requests_per_s, expected.requests_per_s, then.requests_per_s, 2),
        _row("tokens/s", now.tokens_per_s, expected.tokens_per_s, then.tokens_per_s, 1),
        _row("mean batch", now.mean_batch, expected.mean_batch, then.mean_batch, 2),
    ]
    return "\n".join(
        [
            f"load: {_spelled_load(then)}, watched for {report.watched_s:g} s",
            f"now:  {_spelled(report.settings)}",
            f"then: {_spelled(then.settings)}",
            "",
            f"{'':<16}{'measured now':>14}{'simulated now':>16}{'predicted then':>30}",
            *rows,
            f"capacity of a full batch: {report.capacity.requests_per_s:.2f} requests/s, "
            f"{report.capacity.tokens_per_s:.0f} tokens/s a replica",
            f"one more request makes its batch {report.marginal_s:.3f} s longer (± {report.marginal_error_s:.3f})",
            *_warnings(then),
        ]
    )


def _row(name: str, now: float | None, expected: Estimate, then: Estimate, decimals: int) -> str:
    measured_now = "–" if now is None else f"{now:.{decimals}f}"
    interval = f"({then.low:.{decimals}f} to {then.high:.{decimals}f})"
    return f"{name:<16}{measured_now:>14}{expected.value:>16.{decimals}f}{then.value:>12.{decimals}f} {interval:>17}"


def _spelled_load(prediction: Prediction) -> str:
    if prediction.users:
        return f"closed loop of {prediction.users} users"
    return f"open loop of {prediction.rate_per_s:.2f} requests/s"


def _spelled(settings: Settings) -> str:
    return ", ".join(f"{name}={getattr(settings, name)}" for name in Settings.__struct_fields__)


def _warnings(then: Prediction) -> list[str]:
    if not then.saturated:
        return []
    refused = f" {then.refused_share.value:.0%} of them are refused." if then.refused_share.value else ""
    return [
        f"Saturated: requests come faster than these settings can serve them. The latencies are those of the next "
        f"{then.horizon_s:g} s and grow as long as the load lasts.{refused}"
    ]
