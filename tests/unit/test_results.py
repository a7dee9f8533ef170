"""Results of other load generators are opened as recordings are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from service.analysis.compare.run import recorded_run
from service.analysis.observed.statistics import figures
from service.analysis.recording.format import Bookmarked, RecordingError
from service.analysis.recording.reader import Recording, open_recording
from service.analysis.recording.writer import add_to
from service.commands.explain import as_text, explain

BEGUN_NS = 1_795_000_000_000_000_000
COUNT, EVERY_S, TTFT_S, GAP_S, TOKENS = 40, 0.5, 0.25, 0.05, 11
LATENCY_S = TTFT_S + (TOKENS - 1) * GAP_S
"""Of each request: two a second of them, of 0.75 s, so that 1.5 are under way on average."""

STARTS_S = [100.0 + number * EVERY_S for number in range(COUNT)]


def of_vllm(**changes: Any) -> str:
    """As `vllm bench serve --save-result --save-detailed` writes it; the last request has failed."""
    errors = [""] * (COUNT - 1) + ["Traceback: Connection reset"]
    whole = {
        "date": "20261127-120000",
        "backend": "openai",
        "model_id": "tiny",
        "num_prompts": COUNT,
        "completed": COUNT - 1,
        "total_output_tokens": TOKENS * COUNT,
        "start_times": STARTS_S,
        "input_lens": [4] * COUNT,
        "output_lens": [TOKENS] * COUNT,
        "ttfts": [TTFT_S] * COUNT,
        "itls": [[GAP_S] * (TOKENS - 1)] * COUNT,
        "errors": errors,
    }
    return json.dumps(whole | changes)


def of_guidellm() -> str:
    """As `guidellm benchmark` writes it; the last request has failed."""
    requests = [
        {
            "request_start_time": start_s,
            "request_end_time": start_s + LATENCY_S,
            "time_to_first_token_ms": TTFT_S * 1e3,
            "prompt_tokens": 4,
            "output_tokens": TOKENS,
            "info": {"error": "Connection reset" if number == COUNT - 1 else None},
        }
        for number, start_s in enumerate(STARTS_S)
    ]
    never = {"request_start_time": None, "request_end_time": None}
    kinds = {"successful": requests[:-1], "incomplete": [never], "errored": requests[-1:]}
    return json.dumps({"benchmarks": [{"requests": kinds, "config": {"backend": {"model": "tiny"}}}]}, indent=2)


def of_aiperf() -> str:
    """As AIPerf writes profile_export.jsonl; the last request has failed, and one was of its warm-up."""
    lines: list[dict[str, Any]] = [
        {
            "metadata": {
                "benchmark_phase": "profiling",
                "request_start_ns": BEGUN_NS + round(number * EVERY_S * 1e9),
                "request_end_ns": BEGUN_NS + round((number * EVERY_S + LATENCY_S) * 1e9),
            },
            "metrics": {
                "time_to_first_token": {"value": TTFT_S * 1e3, "unit": "ms"},
                "input_sequence_length": {"value": 4, "unit": "tokens"},
                "output_sequence_length": {"value": TOKENS, "unit": "tokens"},
            },
            "error": {"type": "ClientError", "message": "Connection reset"} if number == COUNT - 1 else None,
        }
        for number in range(COUNT)
    ]
    warm_up = lines[0] | {"metadata": lines[0]["metadata"] | {"benchmark_phase": "warmup"}}
    return "\n".join(map(json.dumps, (warm_up, *lines)))


RESULTS = {"vllm.json": of_vllm(), "guidellm.json": of_guidellm(), "profile_export.jsonl": of_aiperf()}
GENERATORS = {"vllm.json": "vllm bench serve", "guidellm.json": "GuideLLM", "profile_export.jsonl": "AIPerf"}


@pytest.fixture(params=list(RESULTS))
def recording(request: pytest.FixtureRequest, tmp_path: Path) -> Recording:
    (tmp_path / request.param).write_text(RESULTS[request.param])
    return open_recording(tmp_path / request.param)


def test_that_its_requests_are_those_of_a_recording(recording: Recording) -> None:
    assert recording.history.server == GENERATORS[recording.path.name]
    run = recorded_run(recording.history)
    assert run is not None
    assert (run.answered, run.failed, run.tokens) == (COUNT - 1, 1, TOKENS * COUNT)
    assert run.latencies_s == pytest.approx([LATENCY_S] * (COUNT - 1), abs=1e-6)
    assert run.ttfts_s == pytest.approx([TTFT_S] * (COUNT - 1), abs=1e-6)
    assert run.tpots_s == pytest.approx([GAP_S] * (COUNT - 1), abs=1e-6)


def test_that_the_figures_of_a_moment_are_those_of_the_requests_under_way(recording: Recording) -> None:
    shown = figures(recording.history, recording.history.first_s + 15.0)  # type: ignore[operator]
    assert shown.requests_per_s == pytest.approx(2.0, rel=0.06)
    assert shown.tokens_per_s == pytest.approx(2.0 * TOKENS, rel=0.06)
    assert shown.p95_s == pytest.approx(LATENCY_S, abs=1e-6)
    assert shown.mean_batch == pytest.approx(1.5, abs=0.3)


def test_that_it_is_explained_and_says_what_a_client_cannot_know(recording: Recording) -> None:
    text = as_text(explain(recording, None))
    assert GENERATORS[recording.path.name] in text.splitlines()[0]
    assert "nothing of the server's queue and its batches" in text


def test_that_no_note_is_added_to_it(recording: Recording) -> None:
    before = recording.path.read_text()
    with pytest.raises(RecordingError, match="no note is added"):
        add_to(recording.path, 1.0, Bookmarked(text="here", start_s=1.0, end_s=1.0), is_ended=True)
    assert recording.path.read_text() == before


def test_that_a_result_without_single_requests_says_how_to_have_them(tmp_path: Path) -> None:
    for name, text, remedy in (
        ("vllm.json", of_vllm(start_times=[]), "--save-detailed"),
        ("profile_export_aiperf.json", '{"aiperf_version": "0.13.0"}', r"profile_export\.jsonl"),
        ("guidellm.json", '{"benchmarks": [{"requests": {}}]}', "its requests"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(RecordingError, match=remedy):
            open_recording(tmp_path / name)


@pytest.mark.promise("T15")
@pytest.mark.parametrize(
    "text",
    [
        *("{", '{"a": 1}', "[]", "{" * 10_000),
        *(of_vllm(itls=[[0.1]]), of_vllm(ttfts=["soon"] * COUNT), of_aiperf()[:-30]),
    ],
)
def test_that_a_file_that_is_none_or_is_damaged_is_refused_in_words(text: str, tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(text)
    with pytest.raises(RecordingError, match=r"result\.json is"):
        open_recording(tmp_path / "result.json")
