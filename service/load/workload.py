"""What a server computes, so that a load that names no prompts is one that it can answer."""

from __future__ import annotations

import argparse
import asyncio

from service.load.client import Client
from service.load.options import load_of
from service.messages.workload import WorkloadAbout


def ask_workload(parser: argparse.ArgumentParser, options: argparse.Namespace) -> WorkloadAbout:
    """What the server computes; the options get its examples where they name no prompts of their own.

    What is wrong with the load is said before the server is asked.
    """
    load_of(parser, options)
    about = asyncio.run(_workload_at(options.url, options.token))
    if not about.generates:
        options.tokens = 1
        if not (options.prompt or options.prompts_file):
            options.prompt = list(about.examples)
    return about


async def _workload_at(url: str, token: str | None) -> WorkloadAbout:
    async with Client(url, token) as client:
        return await client.workload()
