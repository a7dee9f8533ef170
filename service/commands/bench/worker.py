"""A process that measures one thing: what a subject leaves behind in memory or in torch must not meet the next."""

from __future__ import annotations

import asyncio
import signal
import traceback
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple, Self

from service.commands.bench.report import BenchRun
from service.engine.model.report import ModelError
from service.messages.options import ServiceOptions
from service.messages.text import UserError

ENDS_WITHIN_S: Final = 5.0


class WorkerError(UserError):
    """A worker could not do what it was asked; the text is a sentence for the user."""


class _Answer(NamedTuple):
    value: Any = None
    error: str | None = None


class Worker:
    """Makes its object in a process of its own and calls its methods there, one at a time.

    The process ends with the block, and with its parent: then its pipe ends.
    """

    def __init__(self, make: Callable[[ServiceOptions], object], options: ServiceOptions) -> None:
        context = get_context("spawn")  # nothing is inherited: torch is imported there in the thread that computes
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, make, options), daemon=True)
        self._theirs = theirs

    async def __aenter__(self) -> Self:
        self._process.start()
        self._theirs.close()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._process.kill()
        await asyncio.to_thread(self._process.join, ENDS_WITHIN_S)
        self._pipe.close()

    @property
    def pid(self) -> int | None:
        return self._process.pid

    async def ready(self) -> None:
        """Raises `WorkerError` where the object could not be made."""
        await asyncio.to_thread(self._answer)

    async def run(self, size: int, tokens: int, run_s: float) -> BenchRun:
        """What the object's `run` measures in batches that take at least `run_s` in all; raises `WorkerError`."""
        measured: BenchRun = await self.ask("run", size, tokens, run_s)
        return measured

    async def ask(self, method: str, *arguments: Any) -> Any:
        """What the object's method returns; raises `WorkerError`."""
        return await asyncio.to_thread(self._ask, method, arguments)

    def _ask(self, method: str, arguments: tuple[Any, ...]) -> Any:
        try:
            self._pipe.send((method, arguments))
        except OSError:
            raise self._died() from None
        return self._answer()

    def _answer(self) -> Any:
        try:
            answer: _Answer = self._pipe.recv()
        except (EOFError, OSError):
            raise self._died() from None
        if answer.error is not None:
            raise WorkerError(answer.error)
        return answer.value

    def _died(self) -> WorkerError:
        self._process.join(ENDS_WITHIN_S)
        return WorkerError(
            f"A process that measured ended (exit code {self._process.exitcode}), perhaps because memory ran out. "
            "Try smaller batches with --batch-sizes."
        )


def _work(pipe: Connection, make: Callable[[ServiceOptions], object], options: ServiceOptions) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent to handle
    try:
        measured = make(options)
        pipe.send(_Answer())
        while True:
            method, arguments = pipe.recv()
            pipe.send(_Answer(getattr(measured, method)(*arguments)))
    except (EOFError, BrokenPipeError):  # the parent is gone
        return
    except ModelError as error:
        pipe.send(_Answer(error=str(error)))
    except Exception as error:
        traceback.print_exc()
        pipe.send(_Answer(error=f"What was to be measured failed: {error}."))
