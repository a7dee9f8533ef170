"""Which server answers at an address, and what it reports of itself.

The names of figures are those of the servers' own documents:
https://docs.vllm.ai/en/stable/usage/metrics/, https://docs.sglang.io/references/production_metrics.html,
https://github.com/ggml-org/llama.cpp/tree/master/tools/server (`/metrics`, `/slots`, `/props`),
https://huggingface.co/docs/text-generation-inference/reference/metrics.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Final

import aiohttp
import msgspec
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from service.load.client import read_at_most

ANSWER_TIMEOUT_S: Final = 2.0
ALIVE_S: Final = 1.0
"""A server that reports nothing is asked this often whether it is there."""
MOST_BYTES: Final = 4 * 2**20
RANKS: Final = frozenset({"tp_rank", "pp_rank", "moe_ep_rank"})
"""Labels of SGLang for a process among those that hold one model together, and compute the same requests."""
_TIMEOUT: Final = aiohttp.ClientTimeout(total=ANSWER_TIMEOUT_S)


class ServerGoneError(Exception):
    """Nothing takes connections at the server's address."""


@dataclass(frozen=True)
class Gauges:
    """What a server reports at one moment; ``None`` stands for what it does not.

    Attributes:
        waiting, running: requests.
        cache_share: of the memory for keys and values, what is taken, from 0 to 1.
        tokens, prompt_tokens: generated, and read of prompts, since the server was started.
        steps: forward passes since the server was started.
        progress: grows with each of them, of a server that reports requests for a while when none is left.
    """

    waiting: int | None = None
    running: int | None = None
    cache_share: float | None = None
    tokens: float | None = None
    prompt_tokens: float | None = None
    steps: float | None = None
    progress: float | None = None


@dataclass(frozen=True)
class Samples:
    """Samples of `/metrics`: those of this name whose labels have one of the values given; a missing label is empty."""

    name: str
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def values(self, named: Iterable[Sample]) -> list[float]:
        """Of those among `named`, which have the name: one for all processes that compute the same requests."""
        found: dict[frozenset[tuple[str, str]], float] = {}
        for sample in named:
            if all(sample.labels.get(label, "") in values for label, values in self.labels.items()):
                engine = frozenset((name, value) for name, value in sample.labels.items() if name not in RANKS)
                found[engine] = max(found.get(engine, 0.0), sample.value)
        return list(found.values())


@dataclass(frozen=True)
class Kind:
    """A server's name, and what it calls its figures.

    Attributes:
        samples: for fields of `Gauges` the samples of `/metrics` that are added up, those of newer releases first.
        settings: where its batching is set, as a sentence.
        untold: what it does not report, in sentences.
        without_metrics: how to let it report more, as a sentence, where it has no `/metrics` now.
        refuses: fields of a completion's body that it refuses.
        keeps_connections: whether a connection can be used again after a streamed answer.
    """

    name: str
    samples: Mapping[str, tuple[Samples, ...]] = field(default_factory=dict)
    settings: str = "Its batching is set as it starts."
    untold: str = "It does not report which requests share a step."
    without_metrics: str = ""
    refuses: frozenset[str] = frozenset()
    keeps_connections: bool = True


VLLM: Final = Kind(
    "vLLM",
    {
        "waiting": (Samples("vllm:num_requests_waiting"),),
        "running": (Samples("vllm:num_requests_running"),),
        "cache_share": (Samples("vllm:kv_cache_usage_perc"), Samples("vllm:gpu_cache_usage_perc")),
        "tokens": (Samples("vllm:generation_tokens_total"),),
        "prompt_tokens": (Samples("vllm:prompt_tokens_total"),),
        "steps": (Samples("vllm:iteration_tokens_total_count"),),
    },
    settings="Its batching is set as it starts: --max-num-seqs, --max-num-batched-tokens.",
    without_metrics="Its /metrics do not answer: start it without --disable-log-stats.",
)
SGLANG: Final = Kind(
    "SGLang",
    {
        # With priority scheduling, each priority has a count besides; that of all requests has an empty label.
        "waiting": (Samples("sglang:num_queue_reqs", {"priority": ("",)}),),
        "running": (Samples("sglang:num_running_reqs", {"priority": ("",)}),),
        "cache_share": (Samples("sglang:token_usage"),),
        # Older releases count tokens only when a request ends.
        "tokens": (
            Samples("sglang:realtime_tokens_total", {"mode": ("decode",)}),
            Samples("sglang:generation_tokens_total"),
        ),
        "prompt_tokens": (
            Samples("sglang:realtime_tokens_total", {"mode": ("prefill_compute", "prefill_cache")}),
            Samples("sglang:prompt_tokens_total"),
        ),
        "progress": (Samples("sglang:realtime_tokens_total"),),
    },
    settings="Its batching is set as it starts: --max-running-requests, --chunked-prefill-size.",
    untold="It reports neither which requests share a step nor how many steps there were, and what waits and runs when "
    "it reads prompts and after each 40th step: after each with --decode-log-interval 1.",
    without_metrics="Start it with --enable-metrics to see its queue and its batches.",
)
LLAMA_CPP: Final = Kind(
    "llama.cpp",
    {
        "waiting": (Samples("llamacpp:requests_deferred"),),
        "running": (Samples("llamacpp:requests_processing"),),
        "cache_share": (Samples("llamacpp:kv_cache_usage_ratio"),),
        "tokens": (Samples("llamacpp:tokens_predicted_total"),),
        "prompt_tokens": (Samples("llamacpp:prompt_tokens_total"),),
        "steps": (Samples("llamacpp:n_decode_total"),),
    },
    settings="Its batching is set as it starts: --parallel, --batch-size, --cont-batching.",
    without_metrics="Start it with --metrics to see its queue and its steps.",
    keeps_connections=False,
)
TGI: Final = Kind(
    "TGI",
    {
        "waiting": (Samples("tgi_queue_size"),),
        "running": (Samples("tgi_batch_current_size"),),
        "tokens": (Samples("tgi_request_generated_tokens_sum"),),
        "prompt_tokens": (Samples("tgi_request_input_length_sum"),),
        "steps": (Samples("tgi_batch_inference_count"), Samples("tgi_batch_inference_count_total")),
    },
    settings="Its batching is set as it starts: --max-concurrent-requests, --max-batch-total-tokens.",
    untold="It does not report which requests share a step, and counts the tokens of a request when that ends.",
)
TRANSFORMERS: Final = Kind(
    "transformers serve",
    untold="It reports nothing of its queue and its batches: all requests under way count as running. It knows no "
    "ignore_eos, so answers may end before max_tokens.",
    refuses=frozenset({"ignore_eos"}),
)
UNKNOWN: Final = Kind(
    "an OpenAI-compatible server",
    untold="It reports nothing of its queue and its batches: all requests under way count as running.",
)
WITH_METRICS: Final[Mapping[str, Kind]] = {"vllm:": VLLM, "sglang:": SGLANG, "llamacpp:": LLAMA_CPP, "tgi_": TGI}
"""By what the names of their figures begin with."""


def gauges_of(kind: Kind, metrics: str) -> Gauges:
    """What a server's `/metrics` say, of all its engines together; raises `ValueError` where they are none.

    >>> of_two_engines = 'vllm:num_requests_running{engine="0"} 3.0\\nvllm:num_requests_running{engine="1"} 1.0\\n'
    >>> gauges_of(VLLM, of_two_engines).running
    4
    """
    named: defaultdict[str, list[Sample]] = defaultdict(list)
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            named[sample.name].append(sample)
    found: dict[str, Any] = {}
    for name, candidates in kind.samples.items():
        values = next(filter(None, (each.values(named[each.name]) for each in candidates)), None)
        if values:
            found[name] = fmean(values) if name == "cache_share" else sum(values)
    for name in ("waiting", "running"):
        if name in found:
            found[name] = int(found[name])
    return Gauges(**found)


class Slots:
    """llama.cpp's places for requests, which say while a request runs how many tokens it has."""

    def __init__(self) -> None:
        self._tokens = 0
        self._seen: dict[int, tuple[int, int]] = {}  # by slot: the task and its tokens

    def gauges(self, slots: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """How many slots run, and the tokens of all tasks that were seen in them; of an answer to `/slots`."""
        for slot in slots:
            task, tokens = slot.get("id_task", -1), _decoded(slot)
            before = self._seen.get(slot["id"])
            self._tokens += max(tokens - before[1], 0) if before is not None and before[0] == task else tokens
            self._seen[slot["id"]] = task, tokens
        return {"running": sum(bool(slot.get("is_processing")) for slot in slots), "tokens": self._tokens}


def _decoded(slot: Mapping[str, Any]) -> int:
    """Tokens of the task that a slot has; older releases have an object where newer ones have a list of one."""
    told = slot.get("next_token") or {}
    first = told[0] if isinstance(told, list) else told
    return int(first.get("n_decoded", 0))


@dataclass
class Server:
    """A server that answers, seen through `session`.

    Attributes:
        kind, release: the second may be empty.
        model: the first that it lists; empty where it lists none.
        context_length: of the model; ``None`` where it is not known.
        places: requests that it runs at a time; ``None`` where it is not known.
        has_metrics: whether it reports by `/metrics`.
    """

    url: str
    session: aiohttp.ClientSession
    kind: Kind
    release: str = ""
    model: str = ""
    context_length: int | None = None
    places: int | None = None
    has_metrics: bool = False
    slots: Slots | None = None
    _asked_s: float = -math.inf

    @property
    def title(self) -> str:
        return f"{self.kind.name} {self.release}".rstrip()

    @property
    def untold(self) -> str:
        """What is not known of it, and how more would be."""
        more = "" if self.has_metrics else self.kind.without_metrics
        return f"{self.kind.untold} {more}".rstrip()

    @property
    def reports(self) -> bool:
        """Whether it says anything of its requests."""
        return self.has_metrics or self.slots is not None

    async def gauges(self) -> Gauges | None:
        """What it reports now; ``None`` where it is late. Raises `ServerGoneError`."""
        found: dict[str, Any] = {}
        try:
            if self.has_metrics:
                gauges = gauges_of(self.kind, await _get(self.session, f"{self.url}/metrics"))
                found |= {name: value for name, value in vars(gauges).items() if value is not None}
            if self.slots is not None:
                found |= self.slots.gauges(msgspec.json.decode(await _get(self.session, f"{self.url}/slots")))
            if not self.reports and time.monotonic() - self._asked_s > ALIVE_S:
                self._asked_s = time.monotonic()
                await _get(self.session, f"{self.url}/v1/models")
        except aiohttp.ClientConnectorError as error:
            raise ServerGoneError from error
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return None
        return Gauges(**found)


async def recognise(session: aiohttp.ClientSession, url: str) -> Server | None:
    """The server at `url`; ``None`` where none that completes prompts as OpenAI's does answers there."""
    models = await _json(session, f"{url}/v1/models")
    data = models.get("data") if isinstance(models, dict) else None
    listed: dict[str, Any] = next((each for each in data or () if isinstance(each, dict)), {})
    metrics = await _text(session, f"{url}/metrics") or ""
    kind = next((kind for prefix, kind in WITH_METRICS.items() if f"\n{prefix}" in f"\n{metrics}"), None)
    server = Server(url, session, kind or UNKNOWN, has_metrics=kind is not None)
    server.model, server.context_length = str(listed.get("id", "")), listed.get("max_model_len")
    for learn in (_learn_llama_cpp, _learn_sglang, _learn_tgi, _learn_transformers, _learn_vllm):
        if await learn(server):
            return server
    return server if isinstance(data, list) else None


# Each asks what only that kind of server answers, and returns whether it did.


async def _learn_llama_cpp(server: Server) -> bool:
    props = await _json(server.session, f"{server.url}/props")
    if not isinstance(props, dict) or "build_info" not in props:
        return False
    server.kind, server.release = LLAMA_CPP, str(props["build_info"])
    server.places = props.get("total_slots")
    server.context_length = props.get("default_generation_settings", {}).get("n_ctx")
    if isinstance(await _json(server.session, f"{server.url}/slots"), list):
        server.slots = Slots()
    return True


async def _learn_sglang(server: Server) -> bool:
    for path in ("/server_info", "/get_server_info"):
        info = await _json(server.session, f"{server.url}{path}")
        if isinstance(info, dict) and ("sglang_version" in info or server.kind is SGLANG):
            server.kind, server.release = SGLANG, str(info.get("version") or info.get("sglang_version") or "")
            server.places = info.get("max_running_requests")
            return True
    return server.kind is SGLANG


async def _learn_tgi(server: Server) -> bool:
    info = await _json(server.session, f"{server.url}/info")
    if not isinstance(info, dict) or "max_concurrent_requests" not in info:
        return False
    server.kind, server.release = TGI, str(info.get("version", ""))
    server.context_length = info.get("max_total_tokens") or info.get("max_input_tokens")
    return True


async def _learn_transformers(server: Server) -> bool:
    described = await _json(server.session, f"{server.url}/openapi.json")
    paths = described.get("paths", {}) if isinstance(described, dict) else {}
    if not {"/load_model", "/v1/responses"} <= paths.keys():
        return False
    server.kind = TRANSFORMERS
    return True


async def _learn_vllm(server: Server) -> bool:
    told = await _json(server.session, f"{server.url}/version")
    if not isinstance(told, dict) or "version" not in told or server.kind not in (VLLM, UNKNOWN):
        return False
    server.kind, server.release = VLLM, str(told["version"])
    return True


async def _json(session: aiohttp.ClientSession, url: str) -> Any:
    text = await _text(session, url)
    try:
        return None if text is None else msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None


async def _text(session: aiohttp.ClientSession, url: str) -> str | None:
    """What answers there; ``None`` where nothing does, or not with 200."""
    try:
        return await _get(session, url)
    except (aiohttp.ClientError, TimeoutError):
        return None


async def _get(session: aiohttp.ClientSession, url: str) -> str:
    async with session.get(url, timeout=_TIMEOUT, raise_for_status=True) as response:
        return (await read_at_most(response, MOST_BYTES)).decode(errors="replace")
