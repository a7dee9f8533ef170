"""Results of other load generators, read as recordings: of vLLM's `bench serve`, of GuideLLM and of AIPerf.

They hold when each request was sent, and when its first token and its last came; nothing of the server's queue and its
batches. So all requests under way count as running, and tokens after the first as evenly spaced.
See https://docs.vllm.ai/en/latest/benchmarking/cli/ (`--save-detailed`), https://github.com/vllm-project/guidellm
(`--output-path`), https://github.com/ai-dynamo/aiperf (`profile_export.jsonl`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec
import numpy as np

from service.analysis.observed.columns import Floats
from service.analysis.observed.stretches import Stretches
from service.analysis.recording.format import Entry, RecordingEnded, RecordingError, RecordingHeader, ServiceStarted
from service.messages.life import Ready
from service.messages.settings import BOUNDS, Settings, VersionedSettings
from service.messages.telemetry import BatchWork, ReplicaStatus, RequestRecord, RequestState, TelemetryFrame

STEP_S: Final = 0.25
CLOCK: Final = "of a load generator's result"
REPLICA: Final = "r1"
FIXED: Final = "It is a result: nothing of it can be changed."
UNTOLD: Final = (
    "The result holds what a client measured, and nothing of the server's queue and its batches: all requests under "
    "way count as running, and tokens after the first as evenly spaced."
)
IN_FORCE: Final = VersionedSettings(
    version=1, settings=Settings(formation="continuous", max_batch_size=int(BOUNDS["max_batch_size"].high))
)
NO_DETAILS: Final = "{path} holds figures over all requests and no times of each: {remedy}"


@dataclass(frozen=True)
class Sent:
    """A request as its client saw it, in seconds on one clock.

    Attributes:
        first_s: when its first token came; ``None`` of an answer in one piece.
        error: why there was no answer; empty where there was one.
    """

    start_s: float
    first_s: float | None
    end_s: float
    prompt_tokens: int = 0
    tokens: int = 0
    error: str = ""


@dataclass(frozen=True)
class Result:
    """What a file holds: who measured, what was asked, when it began in seconds since 1970, and the requests."""

    generator: str
    model: str
    begun_at: float
    requests: Sequence[Sent]


def entries_of_result(path: object, content: bytes) -> tuple[RecordingHeader, Iterator[Entry]] | None:
    """The result in a file as a recording; ``None`` where the file is no result that is known.

    Raises `RecordingError` where it says nothing of single requests.
    """
    result = _result(path, content)
    if result is None:
        return None
    header = RecordingHeader(
        at_s=0.0, clock=CLOCK, recorded_at=result.begun_at, program_version=result.generator, model=result.model
    )
    return header, _entries(result)


def _result(path: object, content: bytes) -> Result | None:
    if content.lstrip()[:1] != b"{":
        return None
    try:
        first = msgspec.json.decode(content.splitlines()[0], type=dict[str, Any]) if b"\n{" in content else None
        whole = None if first is not None and "metadata" in first else msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    try:
        if whole is None or {"metadata", "metrics"} <= whole.keys():
            return _of_aiperf(path, content)
        if "benchmarks" in whole:
            return _of_guidellm(path, whole)
        if {"ttfts", "completed"} & whole.keys() and "total_output_tokens" in whole:
            return _of_vllm(path, whole)
        if "aiperf_version" in whole:
            remedy = "open profile_export.jsonl beside it."
            raise RecordingError(NO_DETAILS.format(path=path, remedy=remedy))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, msgspec.MsgspecError) as error:
        if isinstance(error, RecordingError):
            raise
        raise RecordingError(f"{path} is a load generator's result that cannot be read ({error}).") from error
    return None


def _of_vllm(path: object, whole: Mapping[str, Any]) -> Result:
    if not whole.get("start_times"):
        raise RecordingError(NO_DETAILS.format(path=path, remedy="let vllm bench serve write it with --save-detailed."))
    requests = []
    lists = (whole[name] for name in ("start_times", "ttfts", "itls", "input_lens", "output_lens", "errors"))
    for start_s, ttft_s, gaps_s, prompt_tokens, tokens, error in zip(*lists, strict=True):
        end_s = start_s + ttft_s + sum(gaps_s)
        first_s = start_s + ttft_s if not error else None
        requests.append(Sent(start_s, first_s, end_s, prompt_tokens, tokens, error or ""))
    begun_at = datetime.strptime(whole["date"], "%Y%m%d-%H%M%S").timestamp() if "date" in whole else 0.0
    return Result("vllm bench serve", str(whole.get("model_id", "")), begun_at, requests)


def _of_guidellm(path: object, whole: Mapping[str, Any]) -> Result:
    requests, model = [], ""
    for benchmark in whole["benchmarks"]:
        kinds = benchmark.get("requests") or {}
        for kind in ("successful", "incomplete", "errored"):
            for each in kinds.get(kind) or ():
                start_s, end_s = each["request_start_time"], each["request_end_time"]
                if start_s is None or end_s is None:
                    continue  # it was never sent
                ttft_ms = each.get("time_to_first_token_ms")
                error = "" if kind == "successful" else str((each.get("info") or {}).get("error") or kind)
                requests.append(
                    Sent(
                        start_s,
                        None if ttft_ms is None else start_s + ttft_ms / 1e3,
                        end_s,
                        each.get("prompt_tokens") or 0,
                        each.get("output_tokens") or 0,
                        error,
                    )
                )
        backend = (benchmark.get("config") or {}).get("backend") or {}
        model = model or str(backend.get("model") or "")
    if not requests:
        raise RecordingError(NO_DETAILS.format(path=path, remedy="let GuideLLM write its requests too."))
    return Result("GuideLLM", model, min(each.start_s for each in requests), requests)


def _of_aiperf(path: object, content: bytes) -> Result:
    requests = []
    for line in content.splitlines():
        each = msgspec.json.decode(line, type=dict[str, Any])
        metadata, metrics, error = each["metadata"], each.get("metrics") or {}, each.get("error")
        if metadata.get("benchmark_phase") == "warmup" or "request_end_ns" not in metadata:
            continue
        start_s, end_s = metadata["request_start_ns"] / 1e9, metadata["request_end_ns"] / 1e9
        ttft_ms = _value(metrics, "time_to_first_token")
        says = error.get("message", error.get("type", "it failed")) if isinstance(error, Mapping) else error or ""
        requests.append(
            Sent(
                start_s,
                None if ttft_ms is None else start_s + ttft_ms / 1e3,
                end_s,
                int(_value(metrics, "input_sequence_length") or 0),
                int(_value(metrics, "output_sequence_length") or 0),
                str(says) or ("cancelled" if metadata.get("was_cancelled") else ""),
            )
        )
    if not requests:
        raise RecordingError(f"{path} holds no request that was sent.")
    return Result("AIPerf", "", min(each.start_s for each in requests), requests)


def _value(metrics: Mapping[str, Any], name: str) -> float | None:
    found = metrics.get(name)
    return float(found["value"]) if isinstance(found, Mapping) else None if found is None else float(found)


# -- as telemetry -----------------------------------------------------------------------------------------------------


def _entries(result: Result) -> Iterator[Entry]:
    begun_s = min(each.start_s for each in result.requests)
    ready = Ready(
        url="",
        instance="",
        model=result.model,
        device="",
        dtype="",
        server=result.generator,
        fixed=FIXED,
        untold=UNTOLD,
        context_length=None,
        replicas=1,
        started_in_s=0.0,
    )
    yield Entry(at_s=0.0, event=ServiceStarted(ready=ready))
    at_s = 0.0
    for frame in _frames(result, begun_s):
        at_s = frame.at_s
        yield Entry(at_s=at_s, event=frame)
    yield Entry(at_s=at_s, event=RecordingEnded())


def _frames(result: Result, begun_s: float) -> Iterator[TelemetryFrame]:
    """A frame each `STEP_S`, with what became of requests since the one before, and how many were under way."""
    requests = sorted(result.requests, key=lambda each: each.start_s)
    start_s, first_s, end_s = (
        np.array([moment(each) - begun_s for each in requests]) for moment in (_start_of, _first_of, _end_of)
    )
    count = math.ceil(float(end_s.max()) / STEP_S) + 1
    at_s = STEP_S * np.arange(1, count + 1)
    running = np.searchsorted(start_s, at_s, "right") - np.searchsorted(np.sort(end_s), at_s, "right")
    tokens = np.diff(np.floor(_tokens_by(requests, first_s, end_s, at_s)), prepend=0.0)
    begun_in, first_in, ended_in = (
        np.clip(np.ceil(moments / STEP_S).astype(int) - 1, 0, count - 1) for moments in (start_s, first_s, end_s)
    )
    joins, leaves = (np.bincount(steps, minlength=count).astype(bool).tolist() for steps in (begun_in, ended_in))
    changed: list[list[int]] = [[] for _ in range(count)]
    for number, steps in enumerate(zip(begun_in, first_in, ended_in, strict=True)):
        for step in set(steps):
            changed[step].append(number)
    batches = Stretches(REPLICA, IN_FORCE)
    for step, now_s in enumerate(at_s.tolist()):
        rows, work = int(running[step]), BatchWork(computed=int(tokens[step]))
        yield TelemetryFrame(
            number=step + 1,
            at_s=now_s,
            clock=CLOCK,
            in_force=IN_FORCE,
            batches=batches.until(now_s - STEP_S, now_s, rows, work, joined=joins[step], left=leaves[step]),
            requests=tuple(_record(n, requests[n], begun_s, now_s) for n in changed[step]),
            replicas=(_status(now_s, rows, result.model),),
        )


def _start_of(request: Sent) -> float:
    return request.start_s


def _first_of(request: Sent) -> float:
    return request.end_s if request.first_s is None else request.first_s


def _end_of(request: Sent) -> float:
    return request.end_s


def _tokens_by(requests: Sequence[Sent], first_s: Floats, end_s: Floats, at_s: Floats) -> Floats:
    """The tokens of all requests by these moments: one at the first, the others evenly up to the end."""
    tokens = np.array([each.tokens for each in requests], float)
    span_s = end_s - first_s
    rate = np.divide(np.maximum(tokens - 1, 0), span_s, out=np.zeros(len(tokens)), where=span_s > 0)
    begun, ended = _Sums(first_s), _Sums(end_s)
    at_once = np.where(span_s > 0, np.minimum(tokens, 1), tokens)
    total: Floats = begun.of(at_once - rate * first_s, at_s) + at_s * begun.of(rate, at_s)
    return total + ended.of(rate * end_s, at_s) - at_s * ended.of(rate, at_s)


class _Sums:
    """Sums over what has come by a moment."""

    def __init__(self, moments_s: Floats) -> None:
        self._order = np.argsort(moments_s)
        self._sorted_s = moments_s[self._order]

    def of(self, values: Floats, at_s: Floats) -> Floats:
        sums = np.concatenate(([0.0], np.cumsum(values[self._order])))
        found: Floats = sums[np.searchsorted(self._sorted_s, at_s, "right")]
        return found


def _record(number: int, request: Sent, begun_s: float, now_s: float) -> RequestRecord:
    """What is known of a request at a moment."""

    def by_now(at_s: float | None) -> float | None:
        return None if at_s is None or at_s - begun_s > now_s else at_s - begun_s

    ended_s = by_now(request.end_s)
    state: RequestState = "running" if ended_s is None else "failed" if request.error else "done"
    start_s = request.start_s - begun_s
    return RequestRecord(
        id=f"{REPLICA}-{number + 1}",
        replica=REPLICA,
        state=state,
        prompt_tokens=request.prompt_tokens,
        max_tokens=request.tokens,
        completion_tokens=request.tokens if ended_s is not None else 0,
        received_s=start_s,
        enqueued_s=start_s,
        formed_s=start_s,
        started_s=start_s,
        first_token_s=by_now(request.first_s),
        finished_s=ended_s,
        error=request.error or None,
    )


def _status(at_s: float, rows: int, model: str) -> ReplicaStatus:
    return ReplicaStatus(
        replica=REPLICA,
        pid=0,
        at_s=at_s,
        settings_version=IN_FORCE.version,
        waiting=0,
        formed=0,
        running=rows,
        model=model,
        device="",
        dtype="",
    )
