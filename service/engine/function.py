"""An engine around a function: each batch is one call."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

from service.engine.job import (
    TIMES_LONGEST,
    Admit,
    Conversation,
    DeviceLostError,
    Emit,
    Job,
    Line,
    Progress,
    TokenIds,
    is_of_lost_device,
)
from service.messages.settings import Settings
from service.messages.telemetry import BatchWork
from service.messages.text import encodable
from service.workloads.workload import Workload

logger = logging.getLogger(__name__)

LONGEST_REASON: Final = 300
LONGEST_FIRST_CALL_S: Final = 300.0  # which may compile something
LEAST_STALL_S: Final = 30.0
MOST_FAILED: Final = 8  # inputs alone, before any has an output: it is the function then, and no input


class Call(Job):
    """An input of the function, which counts in the token budget as much as it weighs."""

    def __init__(self, id: str, input: Any, weight: int = 1) -> None:
        super().__init__(id, prompt_tokens=weight - 1)  # beside its one output
        self.input = input


class BrokenContractError(Exception):
    """The function did not do what `Workload` says; the text is the end of a sentence about it."""


class FunctionEngine:
    """Calls a loaded workload. What goes wrong in a call ends jobs of that call alone, with the reason.

    Where `Workload.retry_members` allows it, only those end so with which the function fails alone.
    """

    def __init__(self, workload: Workload) -> None:
        self.name = workload.name
        self._workload = workload

    memory_tokens = 0
    gives_logprobs = False
    graphs = None

    def job(self, id: str, input: Any, sampling: object) -> Call:
        if isinstance(input, TokenIds | Conversation):
            kind = "token ids" if isinstance(input, TokenIds) else "messages"
            raise ValueError(
                f"The workload {self.name} is no language model and takes no {kind}: its inputs are lines of text at "
                "POST /v1/completions, or values at POST /."
            )
        try:
            value = self._workload.check(self._workload.parse(input) if isinstance(input, Line) else input)
            return Call(id, value, _checked_weight(self._workload.weight(value)))
        except ValueError:
            raise
        except Exception as error:  # a workload that did not expect such a thing
            raise ValueError(f"The workload {self.name} cannot take {_shown(input)}: {_in_words(error)}") from error

    def spell(self, token: int) -> bytes:
        return b""

    def adopt(self, settings: Settings) -> None:
        """A function reads no prompts."""

    def stall_limit_s(self, longest_s: float | None, unread_tokens: int) -> float:
        if self._workload.longest_call_s is not None:
            return self._workload.longest_call_s
        return LONGEST_FIRST_CALL_S if longest_s is None else max(TIMES_LONGEST * longest_s, LEAST_STALL_S)

    def generate(self, jobs: Sequence[Call], emit: Emit, admit: Admit | None = None) -> BatchWork:
        calls = 0
        while jobs:
            calls += self._answer(jobs, emit)
            jobs = admit(BatchWork(steps=calls), True) if admit else []
        return BatchWork(steps=calls)

    def _answer(self, jobs: Sequence[Call], emit: Emit) -> int:
        """Answer all jobs, those of a call that fails half by half; returns the number of calls."""
        parts, calls, failed_alone, has_answered = [list(jobs)], 0, 0, False
        while parts:
            part = parts.pop()
            emit([Progress(job, "", 0, "cancelled") for job in part if job.is_cancelled])
            part = [job for job in part if not job.is_cancelled]
            if not part:
                continue
            calls += 1
            can_split = self._workload.retry_members and len(part) > 1 and (has_answered or failed_alone < MOST_FAILED)
            match self._call(part, emit, can_split=can_split):
                case "answered":
                    has_answered = True
                case "failed":
                    failed_alone += len(part) == 1
                case "split":
                    middle = len(part) // 2
                    parts += [part[middle:], part[:middle]]
        return calls

    def _call(self, jobs: list[Call], emit: Emit, *, can_split: bool) -> Literal["answered", "failed", "split"]:
        """Call the function once; the jobs have their ends then, unless they are to be called in parts."""
        ended: set[Job] = set()
        lost: DeviceLostError | None = None
        has_begun = False  # to stream

        def emit_pieces(progress: list[Progress]) -> None:
            nonlocal has_begun
            has_begun = True
            emit(progress)

        try:
            outputs = self._workload([job.input for job in jobs])
            if isinstance(outputs, Iterator):
                last = self._streamed(jobs, outputs, emit_pieces, ended)
            else:
                last = [_result(job, output) for job, output in zip(jobs, _as_many(outputs, len(jobs)), strict=True)]
            result: Literal["answered", "failed"] = "answered"
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            is_lost = is_of_lost_device(error)
            if can_split and not has_begun and not is_lost:
                logger.warning("The workload %s failed on a batch of %d: %r", self.name, len(jobs), error)
                return "split"
            logger.exception("The workload %s failed on a batch of %d", self.name, len(jobs))
            of_what = "input" if len(jobs) == 1 else f"batch of {len(jobs)}"
            reason = f"The workload {self.name} failed on this {of_what}: {_in_words(error)}"
            last = [Progress(job, "", 0, "error", reason) for job in jobs]
            lost = DeviceLostError(reason) if is_lost else None
            result = "failed"
        emit([each for each in last if each.job not in ended])
        if lost is not None:
            raise lost
        return result

    def _streamed(self, jobs: list[Call], pieces: Iterator[Any], emit: Emit, ended: set[Job]) -> list[Progress]:
        """Emit the pieces as they come; returns the ends.

        A job that is cancelled meanwhile, or whose text cannot be sent, is `ended`; when none is left, the function is
        not asked further.
        """
        counts = [0] * len(jobs)
        for step in pieces:
            texts = _as_many(step, len(jobs))
            if not all(text is None or isinstance(text, str) for text in texts):
                raise BrokenContractError("it streamed something else than texts.")
            counts = [count + (text is not None) for count, text in zip(counts, texts, strict=True)]
            pieces_of_jobs = zip(jobs, texts, counts, strict=True)
            news = [_piece(job, text or "", count) for job, text, count in pieces_of_jobs if job not in ended]
            ended.update(each.job for each in news if each.finish_reason)
            emit(news)
            if len(ended) == len(jobs):
                break
        return [Progress(job, "", count, "stop") for job, count in zip(jobs, counts, strict=True)]


def _checked_weight(weight: Any) -> int:
    if isinstance(weight, bool) or not isinstance(weight, int) or weight < 1:
        raise BrokenContractError(f"its weight must be a whole number from 1 on, not {_shown(weight)}.")
    return weight


def _as_many(outputs: Any, wanted: int) -> list[Any]:
    if not isinstance(outputs, list):
        raise BrokenContractError(f"it returned {type(outputs).__name__}, not a list.")
    if len(outputs) != wanted:
        raise BrokenContractError(f"it returned {len(outputs)} outputs for {wanted} inputs.")
    return outputs


def _piece(job: Call, text: str, count: int) -> Progress:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return Progress(job, "", count, "error", f"The result cannot be sent as text: {error}.")
    return Progress(job, text, count, "cancelled" if job.is_cancelled else None)


def _result(job: Call, output: Any) -> Progress:
    try:
        text = json.dumps(output, allow_nan=False, ensure_ascii=False)
        text.encode()  # which a lone surrogate cannot be
    except (TypeError, ValueError, RecursionError) as error:
        return Progress(job, "", 0, "error", f"The result cannot be written as JSON: {error}.")
    return Progress(job, text, 1, "stop")


def _shown(input: Any) -> str:
    try:
        return repr(str(input)[:80])
    except Exception:  # nested too deeply, or a number of too many digits
        return f"this {type(input).__name__}"


def _in_words(error: BaseException) -> str:
    if isinstance(error, BrokenContractError):
        return str(error)
    text = encodable(" ".join(str(error).split())[:LONGEST_REASON])
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
