"""The words of the window, each with the sentence that explains it: shown as tooltips, and listed in gui/README.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from service.analysis.observed.register import ENTRIES, REGISTER

FORMATIONS: Final[Mapping[str, str]] = {
    "late": "A batch is formed when the engine is free for it; a request that arrives before can still join",
    "early": "Ray's @serve.batch: a batch is sealed every timeout, even while another one runs",
    "continuous": "Requests join the running batch and leave it between two steps; no request waits for the slowest",
}
SETTINGS: Final[Mapping[str, str]] = {
    "max_batch_size": "Requests that a batch may hold; in continuous, requests that run at a time",
    "batch_wait_timeout_s": "How long the first request waits for others: in late and continuous while the engine is "
    "free, in early always",
    "allow_small_batch": "Off: a batch is released only when it is full, or after 10 s; batch_wait_timeout_s then has "
    "no effect",
    "stride_s": "Batches are released only on the ticks of this period; 0: at once. In early they are sealed as ever "
    "and released on the ticks; in continuous it holds for a batch that finds the engine idle",
    "max_batch_tokens": "The token budget of a batch: prompt tokens + max_tokens of all its requests; 0: what memory "
    "holds. A request that does not fit keeps its place in the queue; one that needs more than the budget runs alone",
    "max_concurrent_batches": "Batches that a replica runs at a time. The steps of a text generator's batches take "
    "turns; a function is called by several threads. In continuous there is one batch",
    "max_queued_requests": "Requests that may wait in a replica before a further one is refused with 503",
    "prefill_chunk_tokens": "In continuous, the tokens of joining prompts that a step reads at most; a longer prompt "
    "is read in several steps, and the running requests get a token in each. Smaller: shorter stalls in their answers, "
    "a later first token of the one that joins. 0: 128 on a processor, 1024 on a GPU. Without effect in late and "
    "early, where no request joins",
    "replicas": "Copies of the model, each with a queue and an engine of its own. Takes a redeployment: a new replica "
    "takes requests once it has loaded the model; one that leaves first answers those it holds, so no request is lost",
    "max_ongoing_requests": "Requests that Ray lets a replica hold, readers of its telemetry included; below a full "
    "batch and a full queue it caps both. Takes a redeployment, of the replicas as they run: no request is lost",
}
FIGURES: Final[Mapping[str, str]] = {entry.name: entry.sentence for entry in REGISTER.values()}
MEASURES: Final[Mapping[str, str]] = {
    "answer": "From the intended send of a request to the end of its answer",
    "first token": "Time to first token (TTFT): from the intended send of a request to the first piece of its answer",
    "between tokens": "Time per output token (TPOT): from the first token of a request to its last, divided by "
    "the tokens after the first",
}
TERMS: Final[Mapping[str, str]] = {
    "enqueued": "The request is in the queue of a replica",
    "sealed": "No further request can join the batch; early batches are sealed before the engine is free",
    "drained": "A batch was released because no further request waited; after a change of settings, everything formed "
    "under the old ones has run",
    "stride": "The period on whose ticks batches are released",
    "tick": "A moment at which batches may be released, one every stride",
    "segment": "Steps of a continuous batch with the same members; a segment ends when a request joins or leaves",
    "straggler": "A request that runs much longer than the others of its batch",
    "saturated": "More requests arrive than the engine can compute, so the queue grows as long as that lasts",
    "open loop": "Arrivals do not wait for answers",
    "closed loop": "Users wait for their answer before they send the next request",
    "objectives": "The times that a request may take, as set under Load; goodput counts the requests that meet them",
    "goal": "The objectives, the load under which they must hold, and how many replicas there may be",
    "hold": "A controller that keeps the goal while the load changes: it simulates what comes next and moves settings",
    "latency": ENTRIES["latency_s"].definition,
    "ttft": ENTRIES["time_to_first_token_s"].definition,
    "tpot": ENTRIES["time_per_output_token_s"].definition,
    "own lag": f"{ENTRIES['lag_ms'].definition} 99 of 100 requests; where it grows, the generator is the limit, not "
    "the service",
    "ghost": "The prediction for the value at which a slider is held: its course over the next 30 s, right of now",
    "replica": "A copy of the model with its own queue and engine, named r1, r2 …",
    "version": "The number of the settings in force, v1, v2 …; each batch carries the one it was formed under",
}
PLOTS: Final[Mapping[str, str]] = {  # by the names of their declarations
    "batch-size": "A mark for each batch, coloured by its release reason: full, timeout or drained. The line is "
    "max_batch_size. Under continuous an area shows how many requests run",
    "queue-depth": "How many requests there are, stacked by stage: waiting, formed, running",
    "latency": "A point for each request, and p50, p95 and p99 of the last ten seconds as lines. The header chooses "
    "what is shown, here and in the distributions: the time to the end of the answer or to its first token (TTFT), "
    "both from the intended send time, or the time between tokens (TPOT). A function answers at once and has no "
    "choice",
    "throughput": "Requests and output a second; the curves are over 1 and 2 s, the legend at rest over 10 s. A "
    "dotted line is the capacity: what busy engines answer with full batches. Until some were full it is that of "
    "the largest so far, marked ≥",
    "timeline": "Each request is a bar from its arrival to its end, each batch a block. Rows are used again once "
    "their request has ended, so a row holds several requests, one after the other",
    "latency-histogram": "What share of the requests took how long; dashed, under the settings before",
    "latency-cumulative": "What share of the requests was answered within how long: the curve crosses 95 % at p95",
    "batch-distribution": "What share of the batches held how many requests, coloured by release reason",
    "stage-breakdown": "How long requests spend in each of their stages, from the intended send to the end of the "
    "answer",
    "wasted-work": "What share of all that the engine computed or held was for no token: rows that had ended before "
    "the longest of their batch, and padding to the longest prompt",
    "frontier": "A point for each of the settings that were simulated under one load: its goodput over its latency; "
    "crosses hold nine of ten simulated runs. The line joins the best of each number of places in memory",
    "sweep": "A point for each of the settings that were measured: its requests a second over its latency. Those on "
    "the front are beaten by no other in both; the best of them meets the objective",
}


def plot_title(name: str) -> str:
    """
    >>> plot_title("queue-depth")
    'Queue depth'
    """
    return name.replace("-", " ").capitalize()


GLOSSARY: Final[Mapping[str, str]] = {**FORMATIONS, **SETTINGS, **FIGURES, **MEASURES, **TERMS}
