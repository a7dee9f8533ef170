"""`python -m service attach`: reports a service that runs already, as one that is started here reports itself.

The states are the same JSON lines on standard output, `starting`, `ready` or `failed`, and `stopped`. It ends on
SIGTERM, on Ctrl-C and with its standard input, and ends nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence

import msgspec

from service.commands import cli
from service.commands.remote import RemoteService, ServiceUnreachableError
from service.load.control import CommandReader
from service.load.process import STDIN, STDOUT, on_signals
from service.messages.life import Failed, ServiceState, Stage, StageProgress, Starting, Stopped
from service.messages.pipes import ExitCode, write_all


@cli.command
def main(argv: Sequence[str]) -> int:
    """0 after it was asked to end, 2 where no service of ours answers."""
    options = _parser().parse_args(argv)
    return asyncio.run(_attach(options.url, options.token))


async def _attach(url: str, token: str | None) -> int:
    ended = asyncio.Event()
    on_signals(ended.set)
    CommandReader(STDIN, lambda _line: None, ended.set).start()
    _say(Starting(instance="", stages=(Stage(name="answer", title=f"Reach {url}"),)))
    _say(StageProgress(name="answer", elapsed_s=0.0))
    async with RemoteService(url, token) as remote:
        answer, end = asyncio.create_task(remote.ready()), asyncio.create_task(ended.wait())
        await asyncio.wait((answer, end), return_when=asyncio.FIRST_COMPLETED)
        try:
            if answer.done():
                _say(answer.result())
            await end
        except ServiceUnreachableError as error:
            end.cancel()
            _say(Failed(reason=str(error), exit_code=ExitCode.CANNOT))
            return ExitCode.CANNOT
        finally:
            answer.cancel()
    _say(Stopped())
    return ExitCode.DONE


def _say(state: ServiceState) -> None:
    write_all(STDOUT, msgspec.json.encode(state) + b"\n")


def _parser() -> argparse.ArgumentParser:
    parser = cli.Parser(
        "attach",
        "Report what a running service says of itself, as JSON lines, until Ctrl-C or the end of standard input. The "
        "window does this for batchscope --url.",
        "--url http://127.0.0.1:8000",
    )
    cli.add_address_options(parser)
    return parser
