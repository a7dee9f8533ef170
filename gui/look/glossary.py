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
    "latency": ENTRIES["latency_s"].definition,
    "ttft": ENTRIES["time_to_first_token_s"].definition,
    "tpot": ENTRIES["time_per_output_token_s"].definition,
    "own lag": f"{ENTRIES['lag_ms'].definition} 99 of 100 requests; where it grows, the generator is the limit, not "
    "the service",
    "ghost": "The prediction for the value at which a slider is held: its course over the next 30 s, right of now",
    "replica": "A copy of the model with its own queue and engine, named r1, r2 …",
    "version": "The number of the settings in force, v1, v2 …; each batch carries the one it was formed under",
}
GLOSSARY: Final[Mapping[str, str]] = {**FORMATIONS, **SETTINGS, **FIGURES, **MEASURES, **TERMS}
