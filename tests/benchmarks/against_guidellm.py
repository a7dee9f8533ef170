"""The load generator beside one that is not ours: GuideLLM, on the same service, at the same rate, at the same time.

GuideLLM wants an environment of its own (the first line keeps torch to its CPU build):

    python3 -m venv outside && outside/bin/pip install torch==2.13.0
    outside/bin/pip install guidellm==0.8.1
    python -m tests.benchmarks.against_guidellm outside/bin/guidellm

Both send at once, so that they meet the same queue and the same machine, of which GuideLLM takes a part. It ends with 1
if throughput, latency, TTFT, TPOT or ITL differ by more than 10 %, over the requests that each sent while the other
did, too. GuideLLM counts latency from the moment a request was sent, `python -m service load` from the moment it was
intended: the difference is its own lag, which stands below.

The same words mean different things. Our TPOT, which is vLLM's, is `inter_token_latency_ms` of a request in GuideLLM;
its `time_per_output_token_ms` is latency over tokens, the first included ("latency/token" below). It keeps no single
gaps, so ITL is compared by its mean: theirs over requests, weighted by the gaps of each, ours over all gaps.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from service.load.report import LoadReport
from service.messages.life import Ready
from service.messages.load import USUAL_PROMPTS
from tests.benchmarks.measure import batchscope

AGREEMENT: Final = 0.10
WARM_UP_S: Final = 10
LONGER_S: Final = 20  # GuideLLM begins earlier and ends later
START_TIMEOUT_S: Final = 60.0
STARTED: Final = b"Starting benchmark"
POLL_S: Final = 0.2
NICENESS: Final = 10  # that of the engine: GuideLLM, which polls, would otherwise keep the service from computing


@dataclass(frozen=True)
class Sent:
    """A request: sent and answered when (Unix time), its times as its generator counts them, and its tokens.

    Attributes:
        gaps_s: the sum of the times between its tokens.
    """

    sent_s: float
    answered_s: float
    latency_s: float
    ttft_s: float
    tpot_s: float
    latency_per_token_s: float
    gaps_s: float
    tokens: int


def main() -> int:
    options = _options()
    with batchscope() as ready, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        each = f"{options.pattern} {options.rate:g}/s from each of two generators for {options.seconds} s"
        print(f"{each}, {options.tokens} tokens, {ready.model}", flush=True)
        _ours(ready, options, folder, WARM_UP_S)
        with _guidellm(ready, options, folder):
            report = _ours(ready, options, folder, options.seconds)
        return _compare(_sent_by_guidellm(folder), report)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("guidellm", type=Path, help="the program, in an environment of its own")
    parser.add_argument("--pattern", choices=("constant", "poisson"), default="constant")
    parser.add_argument("--rate", type=float, default=1.5, help="requests a second of each (default: 1.5)")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--tokens", type=int, default=24)
    return parser.parse_args()


def _ours(ready: Ready, options: argparse.Namespace, folder: Path, seconds: int) -> LoadReport:
    path = folder / "ours.json"
    load = ("--pattern", options.pattern, "--rate", options.rate, "--tokens", options.tokens, "--duration", seconds)
    command = (sys.executable, "-m", "service", "load", "--url", ready.url, *load, "--json", path)
    subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return msgspec.json.decode(path.read_bytes(), type=LoadReport)


@contextmanager
def _guidellm(ready: Ready, options: argparse.Namespace, folder: Path) -> Iterator[None]:
    """It sends from the beginning of the block to after its end."""
    count = round(options.rate * (options.seconds + LONGER_S))
    lines = [json.dumps({"prompt": prompt, "output_tokens_count": options.tokens}) for prompt in USUAL_PROMPTS]
    (folder / "prompts.jsonl").write_text("\n".join(lines * (count // len(lines) + 1)))  # each line is sent once
    backend = f"target={ready.url},model={ready.model},request_format=/v1/completions,validate_backend=false"
    command = (
        *("nice", "-n", NICENESS, options.guidellm, "run", "--disable-console"),
        *("--output", f"kind=json,path={folder / 'theirs.json'}"),
        *("--backend", f"kind=openai_http,{backend}"),
        *("--profile", f"kind={options.pattern},rate={options.rate}"),
        *("--constraint", f"kind=max_requests,count={count}"),
        *("--data", f"kind=json_file,path={folder / 'prompts.jsonl'}"),
    )
    one_process = {**os.environ, "GUIDELLM__MAX_WORKER_PROCESSES": "1"}  # ten of them would keep two cores from serving
    with (folder / "theirs.log").open("wb") as log:
        process = subprocess.Popen([str(part) for part in command], env=one_process, stdout=log, stderr=log)
    try:
        _wait_for(process, folder / "theirs.log")
        yield
        process.wait(options.seconds + START_TIMEOUT_S)
    finally:
        process.kill()
        process.wait()


def _wait_for(process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(int(START_TIMEOUT_S / POLL_S)):
        if STARTED in log.read_bytes():
            return
        if process.poll() is not None:
            break
        time.sleep(POLL_S)
    raise SystemExit(f"GuideLLM did not start:\n{log.read_text()[-2000:]}")


def _sent_by_guidellm(folder: Path) -> list[Sent]:
    report: dict[str, Any] = json.loads((folder / "theirs.json").read_bytes())
    return [
        Sent(
            sent_s=request["request_start_time"],
            answered_s=request["request_end_time"],
            latency_s=request["request_latency"],
            ttft_s=request["time_to_first_token_ms"] / 1e3,
            tpot_s=request["inter_token_latency_ms"] / 1e3,
            latency_per_token_s=request["time_per_output_token_ms"] / 1e3,
            gaps_s=request["inter_token_latency_ms"] / 1e3 * (request["output_metrics"]["text_tokens"] - 1),
            tokens=request["output_metrics"]["text_tokens"],
        )
        for request in report["benchmarks"][0]["requests"]["successful"]
    ]


def _sent_by_us(report: LoadReport) -> list[Sent]:
    return [
        Sent(
            sent_s=report.started + request.intended_s,
            answered_s=report.started + request.finished_s,
            latency_s=request.finished_s - request.intended_s,
            ttft_s=request.ttft_s,
            tpot_s=request.tpot_s,
            latency_per_token_s=(request.finished_s - request.intended_s) / request.tokens,
            gaps_s=request.gaps.total_s,
            tokens=request.tokens,
        )
        for request in report.requests
        if request.outcome == "ok" and request.finished_s and request.ttft_s and request.tpot_s and request.gaps
    ]


def _compare(theirs: list[Sent], report: LoadReport) -> int:
    ours = _sent_by_us(report)
    start_s = max(min(request.sent_s for request in sent) for sent in (theirs, ours))
    end_s = min(max(request.sent_s for request in sent) for sent in (theirs, ours))
    rows = list(zip(_figures(theirs, start_s, end_s), _figures(ours, start_s, end_s), strict=True))
    print(f"{'':22}{'GuideLLM':>10}{'ours':>10}{'ours/theirs':>13}")
    for (name, their), (_, our) in rows:
        print(f"{name:22}{their:10.4f}{our:10.4f}{our / their:13.3f}")
    assert report.lag_ms is not None
    print(f"over {end_s - start_s:.0f} s; own lag p99 {report.lag_ms.p99:.1f} ms")
    return 0 if all(abs(our / their - 1) <= AGREEMENT for (_, their), (_, our) in rows) else 1


def _figures(sent: list[Sent], start_s: float, end_s: float) -> list[tuple[str, float]]:
    """Over the requests sent within the time, and the answers that came within it."""
    answered = [request for request in sent if start_s <= request.answered_s <= end_s]
    chosen = [request for request in sent if start_s <= request.sent_s <= end_s]
    span_s = end_s - start_s
    figures = [("requests/s", len(answered) / span_s), ("tokens/s", sum(each.tokens for each in answered) / span_s)]
    for name in ("latency", "ttft", "tpot", "latency_per_token"):
        p50_s, p95_s = np.percentile([getattr(request, f"{name}_s") for request in chosen], (50, 95))
        title = {"latency_per_token": "latency/token", "latency": name}.get(name, name.upper())
        figures += [(f"{title} p50 (s)", float(p50_s)), (f"{title} p95 (s)", float(p95_s))]
    gaps = sum(request.tokens - 1 for request in chosen)
    return [*figures, ("ITL mean (s)", sum(request.gaps_s for request in chosen) / gaps)]


if __name__ == "__main__":
    sys.exit(main())
