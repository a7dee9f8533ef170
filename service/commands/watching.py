"""What commands that predict have in common: they watch a service under its load, and may ask about another load."""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Final, NamedTuple

from service.analysis.compare.comparison import ServiceFacts
from service.analysis.observed.history import History
from service.analysis.predict.load import PresentLoad
from service.analysis.predict.observation import Observation
from service.analysis.predict.speed import Withheld
from service.commands import cli
from service.commands.remote import RemoteService
from service.messages.clock import monotonic_clock_id
from service.messages.load import LOAD_BOUNDS
from service.messages.settings import Settings
from service.messages.telemetry import TelemetryFrame
from service.messages.text import UserError

WATCH_S: Final = 20.0


def add_watch_options(parser: argparse.ArgumentParser) -> None:
    """Add the service, how long it is watched, and what `load_to_predict` reads."""
    cli.add_address_options(parser)
    parser.add_argument("--seconds", type=cli.seconds, default=WATCH_S, help="how long to watch the load (default: 20)")
    load = parser.add_mutually_exclusive_group()
    rate, users = cli.number(LOAD_BOUNDS["rate_per_s"]), cli.number(LOAD_BOUNDS["users"])
    load.add_argument(
        "--rate", type=rate, help="Poisson arrivals of such requests a second, instead of the load it has"
    )
    load.add_argument("--users", type=users, help="users, each asking again when answered, instead of the load it has")


def load_to_predict(options: argparse.Namespace, present: PresentLoad) -> PresentLoad:
    """The present load, or its requests at the rate or from the users that are asked about."""
    if options.rate is not None:
        return present.of_rate(options.rate)
    return present if options.users is None else present.of_users(options.users)


class Watched(NamedTuple):
    """What was seen of a service under `settings`, up to `at_s` on its clock."""

    settings: Settings
    history: History
    observation: Observation
    at_s: float

    def facts(self, url: str) -> ServiceFacts:
        """What was watched."""
        first = self.history.replicas[0]
        count = len(self.history.replicas)
        return ServiceFacts(url=url, model=first.model, device=first.device, dtype=first.dtype, replicas=count)


async def watched(remote: RemoteService, watch_s: float) -> Watched:
    """Watch the service for `watch_s`, with a bar on standard error.

    Raises `UserError` where nothing can be predicted from that.
    """
    before = await remote.settings()
    history = await _history(remote, watch_s)
    first_s, at_s = history.first_s, history.last_s
    if first_s is None or at_s is None:
        raise UserError(f"{remote.url} said nothing in {watch_s:g} s. Is it a Batchscope service?")
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
    return Watched(before.settings, history, observation, at_s)


async def _history(remote: RemoteService, watch_s: float) -> History:
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
