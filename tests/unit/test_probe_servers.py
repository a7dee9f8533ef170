"""Which server it is, by what only that kind answers, and what its own words come to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from service.probe.servers import LLAMA_CPP, SGLANG, TGI, VLLM, Gauges, Kind, Slots, gauges_of, recognise
from tests.foreign_server import Answers, foreign_server

RECORDED = Path(__file__).parents[1] / "recordings" / "servers"
VLLM_METRICS = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 2.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 4.0
vllm:num_requests_waiting{engine="1",model_name="m"} 0.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.25
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="m"} 64.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="m"} 1.5e+03
# TYPE vllm:iteration_tokens_total histogram
vllm:iteration_tokens_total_bucket{engine="0",le="1.0",model_name="m"} 3.0
vllm:iteration_tokens_total_bucket{engine="0",le="+Inf",model_name="m"} 40.0
vllm:iteration_tokens_total_count{engine="0",model_name="m"} 40.0
vllm:iteration_tokens_total_sum{engine="0",model_name="m"} 160.0
"""
OLD_SGLANG_METRICS = """\
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{model_name="m"} 162.0
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{model_name="m"} 26.0
# TYPE sglang:token_usage gauge
sglang:token_usage{model_name="m"} 0.28
# TYPE sglang:prompt_tokens_total counter
sglang:prompt_tokens_total{model_name="m"} 8.0e+06
# TYPE sglang:generation_tokens_total counter
sglang:generation_tokens_total{model_name="m"} 7.5e+06
"""
SGLANG_METRICS = """\
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{dp_rank="0",engine_type="unified",model_name="m",pp_rank="0",priority="",tp_rank="0"} 3.0
sglang:num_running_reqs{dp_rank="0",engine_type="unified",model_name="m",pp_rank="0",priority="1",tp_rank="0"} 2.0
sglang:num_running_reqs{dp_rank="0",engine_type="unified",model_name="m",pp_rank="0",priority="5",tp_rank="0"} 1.0
sglang:num_running_reqs{dp_rank="0",engine_type="unified",model_name="m",pp_rank="0",priority="",tp_rank="1"} 3.0
sglang:num_running_reqs{dp_rank="1",engine_type="unified",model_name="m",pp_rank="0",priority="",tp_rank="2"} 4.0
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{dp_rank="0",engine_type="unified",model_name="m",pp_rank="0",priority="",tp_rank="0"} 2.0
sglang:num_queue_reqs{dp_rank="0",engine_type="unified",model_name="m",pp_rank="0",priority="5",tp_rank="0"} 2.0
# TYPE sglang:token_usage gauge
sglang:token_usage{dp_rank="0",engine_type="unified",model_name="m",pp_rank="0",priority="",tp_rank="0"} 0.25
sglang:token_usage{dp_rank="0",engine_type="unified",model_name="m",pp_rank="0",priority="",tp_rank="1"} 0.25
sglang:token_usage{dp_rank="1",engine_type="unified",model_name="m",pp_rank="0",priority="",tp_rank="2"} 0.75
# TYPE sglang:realtime_tokens_total counter
sglang:realtime_tokens_total{dp_rank="0",engine_type="unified",mode="prefill_compute",model_name="m",tp_rank="0"} 500.0
sglang:realtime_tokens_total{dp_rank="0",engine_type="unified",mode="prefill_cache",model_name="m",tp_rank="0"} 700.0
sglang:realtime_tokens_total{dp_rank="0",engine_type="unified",mode="decode",model_name="m",tp_rank="0"} 25.0
sglang:realtime_tokens_total{dp_rank="0",engine_type="unified",mode="decode",model_name="m",tp_rank="1"} 25.0
sglang:realtime_tokens_total{dp_rank="1",engine_type="unified",mode="decode",model_name="m",tp_rank="2"} 30.0
# TYPE sglang:generation_tokens_total counter
sglang:generation_tokens_total{engine_type="unified",model_name="m",priority="1"} 10.0
"""
"""Two replicas, the first of them in two processes, with requests of two priorities."""
LLAMA_CPP_METRICS = """\
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 412
# TYPE llamacpp:tokens_predicted_total counter
llamacpp:tokens_predicted_total 1250
# TYPE llamacpp:n_decode_total counter
llamacpp:n_decode_total 700
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 4
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred 2
"""
TGI_METRICS = """\
# TYPE tgi_queue_size gauge
tgi_queue_size 7
# TYPE tgi_batch_current_size gauge
tgi_batch_current_size 4
# TYPE tgi_batch_inference_count counter
tgi_batch_inference_count{method="prefill"} 10
tgi_batch_inference_count{method="decode"} 500
# TYPE tgi_request_generated_tokens histogram
tgi_request_generated_tokens_bucket{le="+Inf"} 44
tgi_request_generated_tokens_sum 8123
tgi_request_generated_tokens_count 44
# TYPE tgi_request_input_length histogram
tgi_request_input_length_sum 900
tgi_request_input_length_count 44
"""


@pytest.mark.parametrize(
    ("kind", "metrics", "gauges"),
    [
        (VLLM, VLLM_METRICS, Gauges(4, 5, 0.375, tokens=1500, prompt_tokens=64, steps=40)),
        (SGLANG, SGLANG_METRICS, Gauges(2, 7, 0.5, tokens=55, prompt_tokens=1200, progress=1255)),
        (SGLANG, OLD_SGLANG_METRICS, Gauges(26, 162, 0.28, tokens=7.5e6, prompt_tokens=8e6)),
        (LLAMA_CPP, LLAMA_CPP_METRICS, Gauges(2, 4, tokens=1250, prompt_tokens=412, steps=700)),
        (TGI, TGI_METRICS, Gauges(7, 4, tokens=8123, prompt_tokens=900, steps=510)),
        (VLLM, 'vllm:gpu_cache_usage_perc{model_name="m"} 0.75\n', Gauges(cache_share=0.75)),
        (TGI, "", Gauges()),
    ],
)
def test_that_figures_are_found_by_each_server_s_own_names(kind: Kind, metrics: str, gauges: Gauges) -> None:
    assert gauges_of(kind, metrics) == gauges


@pytest.mark.parametrize(
    ("kind", "file", "gauges"),
    [
        (
            VLLM,
            "vllm-0.32.0.prom",
            Gauges(8, 32, 0.0881542699724518, 1321, 128, 43),
        ),
        (LLAMA_CPP, "llama.cpp.prom", Gauges(8, 32, tokens=0, prompt_tokens=128, steps=20)),
    ],
)
def test_that_what_a_real_server_said_with_40_requests_and_32_places_is_read(
    kind: Kind, file: str, gauges: Gauges
) -> None:
    assert gauges_of(kind, (RECORDED / file).read_text()) == gauges


def test_that_the_slots_of_a_real_llama_cpp_are_read() -> None:
    assert Slots().gauges(json.loads((RECORDED / "llama.cpp-slots.json").read_text())) == {"running": 32, "tokens": 609}


def test_that_what_is_no_metrics_is_refused() -> None:
    with pytest.raises(ValueError, match=r".+"):
        gauges_of(VLLM, "<html>not here</html>")


def test_that_slots_tell_tokens_while_requests_run_and_none_twice() -> None:
    slots = Slots()

    def told(*tasks: tuple[int, int]) -> dict[str, Any]:
        return slots.gauges(
            [
                {"id": at, "id_task": task, "is_processing": True, "next_token": [{"n_decoded": tokens}]}
                for at, (task, tokens) in enumerate(tasks)
            ]
        )

    assert told((1, 3), (2, 5)) == {"running": 2, "tokens": 8}
    assert told((1, 7), (2, 5)) == {"running": 2, "tokens": 12}
    assert told((3, 1), (2, 9)) == {"running": 2, "tokens": 17}
    idle = [{"id": 0, "is_processing": False}, {"id": 1, "id_task": 2, "is_processing": False}]
    assert slots.gauges(idle)["running"] == 0


def said(**answers: Any) -> Answers:
    return {f"/{path.replace('__', '/').replace('_json', '.json')}": lambda _, a=a: a for path, a in answers.items()}


@pytest.mark.parametrize(
    ("answers", "title", "places", "untold"),
    [
        (said(metrics=VLLM_METRICS, version={"version": "0.32.0"}), "vLLM 0.32.0", None, "share a step"),
        (said(version={"version": "0.32.0"}), "vLLM 0.32.0", None, "--disable-log-stats"),
        (
            said(metrics=SGLANG_METRICS, get_server_info={"version": "0.5.9", "max_running_requests": 48}),
            "SGLang 0.5.9",
            48,
            "how many steps",
        ),
        (said(server_info={"sglang_version": "0.5.9"}), "SGLang 0.5.9", None, "--enable-metrics"),
        (
            said(
                props={"build_info": "b8681", "total_slots": 4, "default_generation_settings": {"n_ctx": 512}},
                slots=[{"id": 0, "is_processing": False}],
            ),
            "llama.cpp b8681",
            4,
            "--metrics",
        ),
        (
            said(metrics=TGI_METRICS, info={"version": "3.3.6", "max_concurrent_requests": 128}),
            "TGI 3.3.6",
            None,
            "ends",
        ),
        (
            said(openapi_json={"paths": {"/load_model": {}, "/v1/responses": {}, "/v1/completions": {}}}),
            "transformers serve",
            None,
            "ignore_eos",
        ),
        (said(), "an OpenAI-compatible server", None, "reports nothing"),
    ],
)
async def test_that_a_server_is_known_by_what_only_its_kind_answers(
    answers: Answers, title: str, places: int | None, untold: str
) -> None:
    with foreign_server(answers) as server:
        async with aiohttp.ClientSession() as session:
            found = await recognise(session, server.url)
            assert found is not None
            gauges = await found.gauges()
    assert (found.title, found.places, found.model) == (title, places, "tiny")
    assert untold in found.untold
    assert gauges is not None
