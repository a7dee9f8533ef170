"""A running service measured through HTTP, by a closed loop of as many users as keep a batch full."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from service.commands.bench.plan import HTTP, Subject
from service.commands.bench.report import BenchRun
from service.commands.runs import MeasuredService, MeasuringError
from service.load.report import LoadReport, tokens_between
from service.messages.load import USUAL_PROMPTS, ClosedLoop, RunLoad
from service.messages.settings import Formation, Settings
from service.messages.telemetry import BatchRecord

AT_ONCE_S: Final = 0.1  # no user asks a second time: the first answer takes longer
USERS_A_ROW: Final = 2  # one is generated for, and one waits to take the place
BATCHES_BEFORE: Final = 1  # its users have all come at once
BATCHES_AFTER: Final = 2  # until every request counts that was under way in the measured time


class ThroughHttp:
    """Batches of a service that is up; how long one takes at a size is known from the last run there."""

    def __init__(self, service: MeasuredService, formation: Formation, subject: Subject) -> None:
        self._service = service
        self._formation = formation
        self._subject: Subject = subject
        self._batch_s: dict[int, float] = {}

    async def run(self, size: int, tokens: int, batches: int) -> BenchRun:
        """About so many batches, counted while all users are there; the first run at a size has those of one wave."""
        settings = Settings(formation=self._formation, max_batch_size=size)
        load = RunLoad(
            pattern=ClosedLoop(users=USERS_A_ROW * size),
            prompts=USUAL_PROMPTS,
            max_tokens=tokens,
            stream=HTTP[self._subject],
        )
        batch_s = self._batch_s.get(size)
        for_s = AT_ONCE_S if batch_s is None else (BATCHES_BEFORE + batches + BATCHES_AFTER) * batch_s
        report, executed = await self._service.run(settings, load, for_s)
        within_s = (
            (0.0, report.ran_s) if batch_s is None else (BATCHES_BEFORE * batch_s, for_s - BATCHES_AFTER * batch_s)
        )
        run = run_of(self._subject, size, report, executed, self._service.most_memory_bytes, within_s)
        self._batch_s[size] = size * tokens / run.tokens_per_s
        return run


def run_of(
    subject: Subject,
    size: int,
    report: LoadReport,
    executed: Sequence[BatchRecord],
    memory_bytes: int,
    within_s: tuple[float, float],
) -> BenchRun:
    """What was measured between two times since the start; raises `MeasuringError` if not all were answered."""
    if report.totals.ok < max(report.totals.sent, 1):
        why = " ".join(report.warnings) or "Nothing was sent."
        raise MeasuringError(f"Not all requests were answered at a batch size of {size}. {why}")
    tokens = tokens_between(report.requests, *within_s)
    if not tokens:
        raise MeasuringError(f"The service was too slow at a batch size of {size}: nothing came in the time measured.")
    first_token_s = report.time_to_first_token_s
    return BenchRun(
        subject=subject,
        size=size,
        tokens=tokens,
        ran_s=within_s[1] - within_s[0],
        step_s=_step_s(executed),
        first_token_s=None if first_token_s is None else first_token_s.p50,
        memory_bytes=memory_bytes,
        rows=_rows(executed),
    )


def _step_s(executed: Sequence[BatchRecord]) -> float | None:
    """Time of a step as the service reports it, without the reading of prompts.

    Prompts of a new batch are read in a step of their own; those of a request that joins are read in a shared step.
    """
    decoding_s, steps = 0.0, 0
    for batch in executed:
        if batch.work is None or batch.started_s is None or batch.finished_s is None:
            continue
        decoding_s += batch.finished_s - batch.started_s - batch.work.prefill_s
        steps += batch.work.steps - (batch.release_reason not in ("joined", "left"))
    return decoding_s / steps if steps > 0 else None


def _rows(executed: Sequence[BatchRecord]) -> float:
    """Rows of a step, on average."""
    steps = sum(batch.work.steps for batch in executed if batch.work is not None)
    return sum(batch.tokens for batch in executed) / steps if steps else 0.0
