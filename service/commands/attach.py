"""`python -m service attach`: reports a service that runs already, as one that is started here reports itself.

A server that is not ours is given an address at which it is seen as ours is, for as long as the command runs. The
states are the same JSON lines on standard output, `starting`, `ready` or `failed`, and `stopped`. It ends on SIGTERM,
on Ctrl-C and with its standard input, and ends nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import aiohttp
import msgspec

from service.commands import cli
from service.commands.remote import RemoteService, ServiceUnreachableError
from service.load.client import CONNECT_TIMEOUT_S
from service.load.control import CommandReader
from service.load.process import STDIN, STDOUT, on_signals
from service.messages.life import Failed, Ready, ServiceState, Stage, StageProgress, Starting, Stopped
from service.messages.pipes import ExitCode, write_all


@cli.command
def main(argv: Sequence[str]) -> int:
    """0 after it was asked to end, 2 where no server answers that can be looked at."""
    options = _parser().parse_args(argv)
    return asyncio.run(_attach(options.url, options.token))


async def _attach(url: str, token: str | None) -> int:
    ended = asyncio.Event()
    on_signals(ended.set)
    CommandReader(STDIN, lambda _line: None, ended.set).start()
    _say(Starting(instance="", stages=(Stage(name="answer", title=f"Reach {url}"),)))
    _say(StageProgress(name="answer", elapsed_s=0.0))
    looking, end = asyncio.create_task(_look(url, token, ended)), asyncio.create_task(ended.wait())
    await asyncio.wait((looking, end), return_when=asyncio.FIRST_COMPLETED)
    try:
        if end.done():
            looking.cancel()
        await looking
    except ServiceUnreachableError as error:
        end.cancel()
        _say(Failed(reason=str(error), exit_code=ExitCode.CANNOT))
        return ExitCode.CANNOT
    except asyncio.CancelledError:
        pass
    _say(Stopped())
    return ExitCode.DONE


async def _look(url: str, token: str | None, ended: asyncio.Event) -> None:
    """Say what answers, and keep its address until the end."""
    async with _seen(url, token) as ready:
        _say(ready)
        await ended.wait()


@asynccontextmanager
async def _seen(url: str, token: str | None) -> AsyncIterator[Ready]:
    """The service at `url`, or the address at which another server is seen as one; raises `ServiceUnreachableError`."""
    try:
        async with RemoteService(url, token) as remote:
            ready = await remote.ready()
    except ServiceUnreachableError as no_service:
        from service.probe.relay import relayed  # what a service of ours does not need
        from service.probe.servers import recognise

        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(headers=headers, timeout=timeout, connector=connector) as session:
            server = await recognise(session, url)
            if server is None:
                raise no_service
            async with relayed(server, token) as relay:
                yield relay
    else:
        yield ready


def _say(state: ServiceState) -> None:
    write_all(STDOUT, msgspec.json.encode(state) + b"\n")


def _parser() -> argparse.ArgumentParser:
    parser = cli.Parser(
        "attach",
        "Report what a running service says of itself, as JSON lines, until Ctrl-C or the end of standard input. "
        "vLLM, SGLang, llama.cpp, TGI, transformers serve, or another server that completes prompts as OpenAI's does, "
        "is given an address at which it is seen as a service of ours. The window does this for batchscope --url.",
        "--url http://127.0.0.1:8000",
    )
    cli.add_address_options(parser)
    return parser
