"""`python -m service predict`: predicts the figures of a running service under other settings."""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import replace
from pathlib import Path

from service.analysis.predict import control
from service.analysis.predict.predict import Predictor
from service.analysis.predict.prediction_report import PredictionReport, measured, table
from service.commands import cli
from service.commands.remote import RemoteService
from service.commands.watching import add_watch_options, load_to_predict, watched
from service.messages.pipes import ExitCode
from service.messages.settings import Settings
from service.messages.text import UserError


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
        "--url http://127.0.0.1:8000 --pattern closed --users 16",
    )
    add_watch_options(parser)
    names = ", ".join(Settings.__struct_fields__)
    other = f"what would be different, such as max_batch_size=8; may be given again (settings: {names})"
    parser.add_argument("--set", action="append", default=[], metavar="SETTING=VALUE", help=other)
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--control", action="store_true", help="obey JSON lines on standard input instead")
    return parser


async def _watch_and_predict(options: argparse.Namespace) -> PredictionReport:
    async with RemoteService(options.url, options.token) as remote:
        asked = cli.revised((await remote.settings()).settings, options.set)
        seen = await watched(remote, options.seconds)
    predictor = Predictor.of(seen.observation)
    other = replace(predictor, load=load_to_predict(options, predictor.load))
    expected, prediction = predictor.predict(seen.settings), other.predict(asked)
    if expected is None or prediction is None:
        raise UserError(
            "What batches cost that run side by side is known only where they do: change max_concurrent_batches on the "
            "service first, then ask again."
        )
    cost = predictor.cost.under(asked.formation)
    return PredictionReport(
        url=options.url,
        unit=seen.history.unit,
        watched_s=options.seconds,
        settings=seen.settings,
        measured=measured(seen.history, seen.observation.load.start_s, seen.at_s),
        expected=expected,
        prediction=prediction,
        capacity=cost.capacity(asked.max_batch_size, asked.places),
        marginal_s=cost.marginal_s,
        marginal_error_s=cost.marginal_error_s,
    )
