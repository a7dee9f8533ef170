"""The load generator beside one that is not ours: GuideLLM, on the same service, at the same rate, the same lengths.

GuideLLM wants an environment of its own (the first line keeps torch to its CPU build):

    python3 -m venv outside && outside/bin/pip install torch==2.13.0
    outside/bin/pip install guidellm==0.8.1
    python -m tests.benchmarks.against_guidellm outside/bin/guidellm

It ends with 1 if throughput, median or p95 differ by more than 10 %. GuideLLM counts latency from the moment a request
was really sent, `python -m service load` from the moment it was intended: the difference is its own lag, which stands
beside. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from service.load.report import LoadReport
from service.messages import USUAL_PROMPTS, Ready
from tests.benchmarks.measure import batchscope

AGREEMENT: Final = 0.10
WARM_UP_S: Final = 10


@dataclass(frozen=True)
class Measured:
    """What a generator says it measured."""

    answered: int
    requests_per_s: float
    tokens_per_s: float
    p50_s: float
    p95_s: float


def main() -> int:
    options = _options()
    with batchscope() as ready, tempfile.TemporaryDirectory() as name:
        print(f"{options.pattern} {options.rate:g}/s for {options.seconds} s, {options.tokens} tokens, {ready.model}")
        folder = Path(name)
        _ours(ready, options, folder, WARM_UP_S)
        theirs = _guidellm(ready, options, folder)
        report = _ours(ready, options, folder, options.seconds)
    return _compare(theirs, report)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("guidellm", type=Path, help="the program, in an environment of its own")
    parser.add_argument("--pattern", choices=("constant", "poisson"), default="constant")
    parser.add_argument("--rate", type=float, default=3.0)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--tokens", type=int, default=24)
    return parser.parse_args()


def _ours(ready: Ready, options: argparse.Namespace, folder: Path, seconds: int) -> LoadReport:
    path = folder / "ours.json"
    load = ("--pattern", options.pattern, "--rate", options.rate, "--tokens", options.tokens, "--duration", seconds)
    command = (sys.executable, "-m", "service", "load", "--url", ready.url, *load, "--json", path)
    subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return msgspec.json.decode(path.read_bytes(), type=LoadReport)


def _guidellm(ready: Ready, options: argparse.Namespace, folder: Path) -> Measured:
    prompts, output = folder / "prompts.jsonl", folder / "theirs.json"
    count = round(options.rate * options.seconds)
    lines = [json.dumps({"prompt": prompt, "output_tokens_count": options.tokens}) for prompt in USUAL_PROMPTS]
    prompts.write_text("\n".join(lines * (count // len(lines) + 1)))  # each line is sent once
    command = (
        *(options.guidellm, "run", "--disable-console", "--output", f"kind=json,path={output}"),
        *("--backend", f"kind=openai_http,target={ready.url},model={ready.model},request_format=/v1/completions,"
          "validate_backend=false"),
        *("--profile", f"kind={options.pattern},rate={options.rate}"),
        *("--constraint", f"kind=max_requests,count={count}"),
        *("--data", f"kind=json_file,path={prompts}"),
    )  # fmt: skip
    one_process = {**os.environ, "GUIDELLM__MAX_WORKER_PROCESSES": "1"}  # ten of them would keep two cores from serving
    subprocess.run([str(part) for part in command], check=True, env=one_process, stdout=subprocess.DEVNULL)
    return _measured_by_guidellm(json.loads(output.read_bytes())["benchmarks"][0]["metrics"])


def _measured_by_guidellm(metrics: dict[str, Any]) -> Measured:
    latency = metrics["request_latency"]["successful"]
    return Measured(
        answered=latency["count"],
        requests_per_s=metrics["requests_per_second"]["successful"]["mean"],
        tokens_per_s=metrics["output_tokens_per_second"]["successful"]["mean"],
        p50_s=latency["percentiles"]["p50"],
        p95_s=latency["percentiles"]["p95"],
    )


def _compare(theirs: Measured, report: LoadReport) -> int:
    assert report.latency_s is not None
    assert report.lag_ms is not None
    rows = (
        ("requests/s", theirs.requests_per_s, report.requests_per_s or 0.0),
        ("tokens/s", theirs.tokens_per_s, report.tokens_per_s or 0.0),
        ("p50 (s)", theirs.p50_s, report.latency_s.p50),
        ("p95 (s)", theirs.p95_s, report.latency_s.p95),
    )
    print(f"{'':12}{'GuideLLM':>10}{'ours':>10}{'ours/theirs':>13}")
    for name, theirs_is, ours_is in rows:
        print(f"{name:12}{theirs_is:10.3f}{ours_is:10.3f}{ours_is / theirs_is:13.3f}")
    print(f"answered {theirs.answered} and {report.totals.ok}; own lag p99 {report.lag_ms.p99:.1f} ms")
    return 0 if all(abs(ours_is / theirs_is - 1) <= AGREEMENT for _, theirs_is, ours_is in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
