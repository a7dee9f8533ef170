"""`python -m service predict`: predicts the figures of a running service under other settings."""

from __future__ import annotations

import argparse
import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from service.analysis.observed.history import History
from service.analysis.predict import control
from service.analysis.predict.load import PresentLoad
from service.analysis.predict.observation import Observation
from service.analysis.predict.predict import Predictor
from service.analysis.predict.prediction_report import PredictionReport, measured, table
from service.analysis.predict.speed import Withheld
from service.commands import cli
from service.commands.remote import RemoteService
from service.messages.clock import monotonic_clock_id
from service.messages.load import LOAD_BOUNDS
from service.messages.pipes import ExitCode
from service.messages.settings import Settings
from service.messages.telemetry import TelemetryFrame
from service.messages.text import UserError

WATCH_S: Final = 20.0


@cli.command
def main(argv: list[str]) -> int:
    """0 after a prediction, 2 if none could be made, 130 if it was interrupted."""
    if "--control" in argv:
        return control.main()
    options = _parser().parse_args(argv)
    report = asyncio.run(_watch_and_predict(options))
    print(table(report))
    cli.write_json(options.json, report)
    return ExitCode.DONE


def _parser() -> argparse.ArgumentParser:
    parser = cli.Parser(
        "predict",
        "Watch a running service and predict latency and throughput under other settings or another load.",
        "--url http://127.0.0.1:8000 --set max_batch_size=8,allow_small_batch=off",
        "--users 16",
    )
    cli.add_address_options(parser)
    parser.add_argument("--seconds", type=cli.seconds, default=WATCH_S, help="how long to watch the load (default: 20)")
    names = ", ".join(Settings.__struct_fields__)
    other = f"what would be different, such as max_batch_size=8; may be given again (settings: {names})"
    parser.add_argument("--set", action="append", default=[], metavar="SETTING=VALUE", help=other)
    load = parser.add_mutually_exclusive_group()
    rate, users = cli.number(LOAD_BOUNDS["rate_per_s"]), cli.number(LOAD_BOUNDS["users"])
    load.add_argument(
        "--rate", type=rate, help="Poisson arrivals of such requests a second, instead of the load it has"
    )
    load.add_argument("--users", type=users, help="users, each asking again when answered, instead of the load it has")
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--control", action="store_true", help="obey JSON lines on standard input instead")
    return parser


async def _watched(remote: RemoteService, watch_s: float) -> History:
    """The telemetry of the next `watch_s`, with a bar on standard error."""
    history = History(monotonic_clock_id())
    begun_s = time.monotonic()
    with cli.ProgressBar(cli.ProgressBar.SECONDS) as bar:

        def show(watched_s: float) -> None:
            bar.show(watched_s, watch_s, "watching", f"{len(history.requests.columns)} requests")

        try:
            async with asyncio.timeout(watch_s):
                async for event in remote.telemetry():
                    if isinstance(event, TelemetryFrame):
                        history.add_telemetry(event)
                    else:
                        history.add_missed(event)
                    show(time.monotonic() - begun_s)
        except TimeoutError:
            show(watch_s)
    return history


def _load_of(options: argparse.Namespace, present: PresentLoad) -> PresentLoad:
    """The load to predict for: the present one, or its requests at the rate or from the users that are asked about."""
    if options.rate is not None:
        return present.of_rate(options.rate)
    return present if options.users is None else present.of_users(options.users)


async def _watch_and_predict(options: argparse.Namespace) -> PredictionReport:
    url, watch_s = options.url, options.seconds
    async with RemoteService(url, options.token) as remote:
        before = await remote.settings()
        asked = cli.revised(before.settings, options.set)
        history = await _watched(remote, watch_s)
    first_s, at_s = history.first_s, history.last_s
    if first_s is None or at_s is None:
        raise UserError(f"{url} said nothing in {watch_s:g} s. Is it a Batchscope service?")
    if history.in_force is not None and history.in_force.version != before.version:
        raise UserError("The settings were changed meanwhile. Leave them alone while it watches.")
    observation, withheld = Observation.of_history(history, at_s, at_s - first_s), Withheld.at(history, at_s)
    if withheld is not None:
        raise UserError(f"{withheld.sentence} Ask again later.")
    if observation is None:
        seen = len(history.requests.columns)
        raise UserError(
            f"Only {seen} requests were seen in {watch_s:g} s, too few to predict from. "
            "Send some load (python -m service load …) or watch longer with --seconds."
        )
    predictor = Predictor.of(observation)
    other = replace(predictor, load=_load_of(options, predictor.load))
    expected, prediction = predictor.predict(before.settings), other.predict(asked)
    if expected is None or prediction is None:
        raise UserError(
            "What batches cost that run side by side is known only where they do: change max_concurrent_batches on the "
            "service first, then ask again."
        )
    cost = predictor.cost.under(asked.formation)
    return PredictionReport(
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
