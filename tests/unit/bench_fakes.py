"""What the tests of the bench measure in place of models: importable, since a worker process makes it."""

from __future__ import annotations

import os

from service.commands.bench.report import BenchRun, Rates, Subject, Weights
from service.engine.model.report import ModelError
from service.messages.options import ServiceOptions

RATES = Rates(bytes_per_s=1e9, operations_per_s=1e12)
WEIGHTS = Weights(parameters=5_000_000, bytes=10_000_000)


def run(subject: Subject, size: int, tokens_per_s: float = 100.0, rows: float | None = None) -> BenchRun:
    return BenchRun(
        subject=subject, size=size, tokens=240, ran_s=240 / tokens_per_s, step_s=size / tokens_per_s,
        first_token_s=0.1, memory_bytes=500_000_000, rows=size if rows is None else rows,
    )  # fmt: skip


class Counting:
    """Made in a worker: does what the tests ask."""

    def __init__(self, options: ServiceOptions) -> None:
        if options.model == "none":
            raise ModelError("There is no such model.")
        self._model = options.model

    def model(self) -> str:
        return self._model

    def add(self, a: int, b: int) -> int:
        return a + b

    def fail(self) -> None:
        raise RuntimeError("no kernel")

    def die(self) -> None:
        os._exit(9)


class FakeMeasurer:
    """Runs that took no time; remembers what it was asked for."""

    def __init__(self, subject: Subject, tokens_per_s: float) -> None:
        self._subject: Subject = subject
        self._tokens_per_s = tokens_per_s
        self.asked: list[tuple[int, int, float]] = []

    async def run(self, size: int, tokens: int, run_s: float) -> BenchRun:
        self.asked.append((size, tokens, run_s))
        return run(self._subject, size, self._tokens_per_s)


class FakeReference(FakeMeasurer):
    """The same, with the rates of a machine."""

    times_asked = 0

    async def ask(self, method: str) -> Rates:
        assert method == "rates"
        self.times_asked += 1
        return Rates(bytes_per_s=1e9 * self.times_asked, operations_per_s=1e12)
