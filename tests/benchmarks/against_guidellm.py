"""The load report beside those of two load generators that are not ours: GuideLLM and AIPerf, on the same requests.

Each wants an environment of its own (the first line keeps torch to its CPU build):

    python3 -m venv guidellm && guidellm/bin/pip install torch==2.13.0 && guidellm/bin/pip install guidellm==0.8.1
    python3 -m venv aiperf && aiperf/bin/pip install aiperf==0.13.0
    python -m tests.benchmarks.against_guidellm guidellm/bin/guidellm aiperf/bin/aiperf

Three generators cannot send the same run: two runs of one differ more than 10 % on a shared machine. So each sends its
own, in turns over several rounds, through a relay (`relay.py`) that passes every byte on and times it with the code of
our load report: the same reader of events, the same `Flight`, the same `load_figures`. What a generator reports is held
against what our report says of exactly these requests: "theirs/ours" shows where definition or measurement differ, and
the machine's moods are in both. The row "ours" is `python -m service load` held against the relay: what our sending
adds. It ends with 1 if a figure differs by more than 10 %.

The same words mean different things. Our TPOT, which is vLLM's, is `inter_token_latency` of a request in GuideLLM and
in AIPerf. Our ITL, a value for each gap between chunks, is AIPerf's `inter_chunk_latency`. GuideLLM keeps no gaps, but
the first and the last chunk and their number, which give the mean. Its own `inter_token_latency` over all requests is
the time per token after the first, a line of its own below: it differs from ITL where a chunk brings several tokens.
GuideLLM has no goodput: it is counted from its own times of each request.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from service.load.report import LoadReport, ReportedRequest, load_figures
from service.messages.installation import cache_folder
from service.messages.life import Ready
from service.messages.load import USUAL_PROMPTS
from service.messages.objectives import TIMES, Objectives
from tests.benchmarks.measure import batchscope
from tests.benchmarks.relay import Relay, relay_before

AGREEMENT: Final = 0.10
WARM_UP_S: Final = 10
ENDS_WITHIN_S: Final = 240
NICENESS: Final = 10  # that of the engine: a generator that polls would otherwise keep the service from computing
AIPERF_NAMES: Final = {"latency": "request_latency", "ttft": "time_to_first_token", "tpot": "inter_token_latency"}


@dataclass
class Requests:
    """Times of the answered requests as one generator has them, in seconds.

    Attributes:
        gap_sum_s, gap_count: of the times between chunks with tokens.
        tokens_after: tokens after the first of a request, of all of them.
        good_per_s: goodput of each round.
    """

    latency_s: list[float] = field(default_factory=list)
    ttft_s: list[float] = field(default_factory=list)
    tpot_s: list[float] = field(default_factory=list)
    gap_sum_s: float = 0.0
    gap_count: int = 0
    tokens_after: int = 0
    good_per_s: list[float] = field(default_factory=list)

    def add(self, latency_s: float, ttft_s: float, tpot_s: float, gap_sum_s: float, gaps: int, tokens: int) -> None:
        self.latency_s.append(latency_s)
        self.ttft_s.append(ttft_s)
        self.tpot_s.append(tpot_s)
        self.gap_sum_s += gap_sum_s
        self.gap_count += gaps
        self.tokens_after += tokens - 1

    def add_reported(self, requests: Iterable[ReportedRequest], goodput_per_s: float | None) -> None:
        """Requests of our report."""
        for each in requests:
            if each.latency_s and each.ttft_s is not None and each.tpot_s is not None and each.gaps is not None:
                gaps = each.gaps
                self.add(each.latency_s, each.ttft_s, each.tpot_s, gaps.total_s, gaps.count, each.tokens)
        self.good_per_s.append(goodput_per_s or 0.0)

    def figures(self) -> dict[str, float]:
        figures = {}
        for name in TIMES:
            p50_s, p95_s = np.percentile(getattr(self, f"{name}_s"), (50, 95))
            title = name if name == "latency" else name.upper()
            figures |= {f"{title} p50 (s)": float(p50_s), f"{title} p95 (s)": float(p95_s)}
        return {
            **figures,
            "ITL mean (s)": self.gap_sum_s / max(self.gap_count, 1),
            "time/token after 1st (s)": self.gap_sum_s / max(self.tokens_after, 1),
            "goodput (requests/s)": float(np.mean(self.good_per_s)),
        }


@dataclass(frozen=True)
class Asked:
    """What each generator is to send, and where."""

    url: str
    model: str
    folder: Path
    options: argparse.Namespace
    objectives: Objectives


Generator = Callable[[Asked, Requests], None]


def main() -> int:
    options = _options()
    generators: dict[str, Generator] = {"ours": _ours, "GuideLLM": _guidellm, "AIPerf": _aiperf}
    theirs = {name: Requests() for name in generators}
    relayed = {name: Requests() for name in generators}
    objectives = Objectives.parse(options.objective)
    with batchscope() as ready, tempfile.TemporaryDirectory() as name, relay_before(ready.url) as relay:
        assert ready.model is not None
        asked = Asked(relay.url, ready.model, Path(name), options, objectives)
        print(
            f"{options.pattern} {options.rate:g}/s, {options.tokens} tokens, {objectives.words}; {ready.model}",
            flush=True,
        )
        _load(ready, options, asked.folder, WARM_UP_S, ready.url)
        for number in range(options.rounds):
            for generator, send in generators.items():
                send(asked, theirs[generator])
                _note(relay, relayed[generator], objectives)
                busy = os.getloadavg()[0]
                print(f"round {number + 1}: {generator} has sent; load average {busy:.1f}", flush=True)
    return _compare(theirs, relayed)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("guidellm", type=Path, help="the program, in an environment of its own")
    parser.add_argument("aiperf", type=Path, help="the same")
    parser.add_argument("--pattern", choices=("constant", "poisson"), default="poisson")
    parser.add_argument("--rate", type=float, default=1.5, help="requests a second (default: 1.5)")
    parser.add_argument("--seconds", type=int, default=30, help="of a round (default: 30)")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--objective", nargs="+", default=["latency=1", "ttft=0.3", "tpot=0.05"])
    return parser.parse_args()


def _note(relay: Relay, requests: Requests, objectives: Objectives) -> None:
    """What our report says of the requests that the relay has seen since."""
    seen = [each for each in relay.take() if each.outcome == "ok"]
    requests.add_reported(seen, load_figures(seen, objectives).goodput_per_s)


def _run(command: Sequence[object], log: Path, **environment: str) -> None:
    with log.open("wb") as file:
        ended = subprocess.run(
            ["nice", "-n", str(NICENESS), *map(str, command)],
            env={**os.environ, **environment},
            stdout=file,
            stderr=file,
            timeout=ENDS_WITHIN_S,
            check=False,
        )
    if ended.returncode:
        raise SystemExit(f"{command[0]} failed:\n{log.read_text()[-3000:]}")


def _load(ready: Ready | None, options: argparse.Namespace, folder: Path, seconds: int, url: str) -> LoadReport:
    path = folder / "ours.json"
    load = ("--pattern", options.pattern, "--rate", options.rate, "--tokens", options.tokens, "--duration", seconds)
    goal = ("--objective", *options.objective)
    _run((sys.executable, "-m", "service", "load", "--url", url, *load, *goal, "--json", path), folder / "ours.log")
    return msgspec.json.decode(path.read_bytes(), type=LoadReport)


def _ours(asked: Asked, requests: Requests) -> None:
    report = _load(None, asked.options, asked.folder, asked.options.seconds, asked.url)
    requests.add_reported([each for each in report.requests if each.outcome == "ok"], report.goodput_per_s)


def _guidellm(asked: Asked, requests: Requests) -> None:
    options, folder = asked.options, asked.folder
    count = round(options.rate * options.seconds)
    lines = [json.dumps({"prompt": prompt, "output_tokens_count": options.tokens}) for prompt in USUAL_PROMPTS]
    (folder / "prompts.jsonl").write_text("\n".join(lines * (count // len(lines) + 1)))  # each line is sent once
    backend = f"target={asked.url},model={asked.model},request_format=/v1/completions,validate_backend=false"
    _run(
        (
            *(options.guidellm, "run", "--disable-console"),
            *("--output", f"kind=json,path={folder / 'guidellm.json'}"),
            *("--backend", f"kind=openai_http,{backend}"),
            *("--profile", f"kind={options.pattern},rate={options.rate}"),
            *("--constraint", f"kind=max_requests,count={count}"),
            *("--data", f"kind=json_file,path={folder / 'prompts.jsonl'}"),
        ),
        folder / "guidellm.log",
        GUIDELLM__MAX_WORKER_PROCESSES="1",  # ten of them would keep two cores from serving
    )
    report: dict[str, Any] = json.loads((folder / "guidellm.json").read_bytes())
    answered = report["benchmarks"][0]["requests"]["successful"]
    good = 0
    for each in answered:
        latency_s, ttft_s = each["request_latency"], each["time_to_first_token_ms"] / 1e3
        tpot_s, tokens = each["inter_token_latency_ms"] / 1e3, each["output_metrics"]["text_tokens"]
        chunks = each["info"]["timings"]["token_iterations"]
        requests.add(latency_s, ttft_s, tpot_s, tpot_s * (tokens - 1), chunks - 1, tokens)
        good += asked.objectives.are_met(latency_s, ttft_s, tpot_s)
    span_s = max(e["request_end_time"] for e in answered) - min(e["request_start_time"] for e in answered)
    requests.good_per_s.append(good / span_s)


def _aiperf(asked: Asked, requests: Requests) -> None:
    options, folder = asked.options, asked.folder / "aiperf"
    lines = [json.dumps({"text": prompt}) for prompt in USUAL_PROMPTS]
    prompts = asked.folder / "aiperf.jsonl"
    prompts.write_text("\n".join(lines) + "\n")
    wanted = {name: getattr(asked.objectives, field) for name, field in TIMES.items()}
    goal = " ".join(f"{AIPERF_NAMES[name]}:{1e3 * limit_s:g}" for name, limit_s in wanted.items() if limit_s)
    _run(
        (
            *(options.aiperf, "profile", "--ui", "none", "--model", asked.model, "--url", asked.url),
            *("--endpoint-type", "completions", "--streaming", "--use-legacy-max-tokens", "--use-server-token-count"),
            *("--tokenizer", cache_folder() / "models" / asked.model.rpartition("/")[2]),
            *("--input-file", prompts, "--custom-dataset-type", "single_turn"),
            *("--extra-inputs", f"max_tokens:{options.tokens}", "--extra-inputs", "ignore_eos:true"),
            *("--extra-inputs", "temperature:0", "--goodput", goal, "--workers-max", "1"),
            *("--request-rate", options.rate, "--arrival-pattern", options.pattern),
            *("--request-count", round(options.rate * options.seconds), "--output-artifact-dir", folder),
        ),
        asked.folder / "aiperf.log",
    )
    for line in (folder / "profile_export.jsonl").read_text().splitlines():
        found: dict[str, Any] = json.loads(line)["metrics"]
        times_s = {name: found[tag]["value"] / 1e3 for name, tag in AIPERF_NAMES.items()}
        gaps_ms = found["inter_chunk_latency"]["value"]
        tokens = int(found["output_sequence_length"]["value"])
        requests.add(*(times_s[name] for name in TIMES), sum(gaps_ms) / 1e3, len(gaps_ms), tokens)
    summary = json.loads((folder / "profile_export_aiperf.json").read_bytes())
    requests.good_per_s.append(summary["goodput"]["avg"])


def _compare(theirs: dict[str, Requests], relayed: dict[str, Requests]) -> int:
    agree = True
    for generator in theirs:
        print(f"\n{generator + ', ' + str(len(theirs[generator].latency_s)) + ' requests':26}"
              f"{'it says':>10}{'our report':>12}{'difference':>12}")  # fmt: skip
        of_ours = relayed[generator].figures()
        for name, their in theirs[generator].figures().items():
            apart = their / of_ours[name] - 1 if of_ours[name] else float(their != of_ours[name])
            agree &= abs(apart) <= AGREEMENT
            print(f"{name:26}{their:10.4f}{of_ours[name]:12.4f}{100 * apart:+11.1f} %")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
