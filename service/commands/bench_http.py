"""A running service measured through HTTP: as many users as a batch holds, each of whom waits for the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from service.bench.figures import Run
from service.commands.runs import MeasuredService, MeasuringError
from service.load.report import LoadReport, tokens_between
from service.messages.load import RunLoad
from service.messages.patterns import USUAL_PROMPTS, ClosedLoop
from service.messages.settings import Formation, Settings
from service.messages.telemetry import BatchRecord

AT_ONCE_S: Final = 0.1  # no user asks a second time: the first answer takes longer


class ThroughHttp:
    """Batches of a service that is up; how long one takes at a size is known from the last run there."""

    def __init__(self, service: MeasuredService, formation: Formation) -> None:
        self._service = service
        self._formation = formation
        self._batch_s: dict[int, float] = {}

    async def run(self, size: int, tokens: int, batches: int) -> Run:
        """About so many batches: users ask again until the time for them is over. The first run at a size has one.

        What comes after that time does not count: fewer and fewer users are there then.
        """
        settings = Settings(formation=self._formation, max_batch_size=size)
        load = RunLoad(pattern=ClosedLoop(users=size), prompts=USUAL_PROMPTS, max_tokens=tokens)
        is_first = size not in self._batch_s
        for_s = AT_ONCE_S if is_first else batches * self._batch_s[size]
        report, executed = await self._service.run(settings, load, for_s)
        run = run_of(size, report, executed, self._service.most_memory_bytes, report.ran_s if is_first else for_s)
        self._batch_s[size] = size * tokens / run.tokens_per_s
        return run


def run_of(size: int, report: LoadReport, executed: Sequence[BatchRecord], memory_bytes: int, within_s: float) -> Run:
    """What was measured `within_s` of the start; raises `MeasuringError` if not all were answered."""
    answered_s = report.time_to_first_token_s
    if report.totals.ok < report.totals.sent or answered_s is None:
        why = " ".join(report.warnings) or "Nothing was sent."
        raise MeasuringError(f"Not all requests were answered at {size} users. {why}")
    return Run(
        subject="http",
        size=size,
        tokens=tokens_between(report.requests, 0.0, within_s),
        ran_s=within_s,
        step_s=_step_s(executed),
        first_token_s=answered_s.p50,
        memory_bytes=memory_bytes,
        rows=_rows(executed),
    )


def _step_s(executed: Sequence[BatchRecord]) -> float | None:
    """Time of a step as the service tells it, without the reading of prompts.

    Those of a new batch are read in a step of their own, those of who joins another in one that others share.
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
