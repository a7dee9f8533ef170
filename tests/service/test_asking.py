"""All ways to ask, each with its own answer, and each bad question with a clear error that harms nobody."""

from __future__ import annotations

import asyncio
import json
import subprocess
from typing import Any

import aiohttp
import msgspec
import openai
import pytest
import requests

from service.engine.model.resolve import DEFAULT_MODEL
from tests.service import HANG_S
from tests.service.conftest import COMPLETED_TOKENS, TUNNEL, Service, ServiceProcess, error_of


def test_that_curl_gets_the_prompt_and_its_continuation_as_in_the_tutorial(service: Service) -> None:
    command = ["curl", "--silent", "--fail", f"{service.url}/?text=Once+upon+a+time"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=HANG_S).stdout
    assert answer.startswith("Once upon a time")
    assert len(answer) > len("Once upon a time") + 20


def test_that_the_openai_client_works_unchanged(service: Service) -> None:
    with openai.OpenAI(base_url=f"{service.url}/v1", api_key="none") as client:
        completion = client.completions.create(
            model=DEFAULT_MODEL, prompt="The three laws of robotics are", max_tokens=12, temperature=0, seed=1
        )
        chunks = list(
            client.completions.create(
                model=DEFAULT_MODEL, prompt="The three laws of robotics are", max_tokens=12, temperature=0, stream=True
            )
        )
        models = [model.id for model in client.models.list()]
    assert completion.choices[0].finish_reason == "length"
    assert completion.usage is not None
    assert completion.usage.completion_tokens == 12
    assert "".join(c.choices[0].text for c in chunks) == completion.choices[0].text
    assert models == [DEFAULT_MODEL]


def test_that_a_service_says_of_itself_whenever_asked_what_it_said_at_its_start(service: Service) -> None:
    looking = ServiceProcess("attach", "--url", service.url)
    try:
        ready = looking.wait_until_ready()
    finally:
        code = looking.stop()
    unlike = {"instance": "", "started_in_s": 0.0}
    assert msgspec.structs.replace(ready, **unlike) == msgspec.structs.replace(service.ready, **unlike)
    assert code == 0
    assert service.complete("It runs on").ok


@pytest.mark.promise("T27")
@pytest.mark.parametrize(("host", "status"), [(TUNNEL, 200), (TUNNEL.upper(), 200), (f"{TUNNEL}0", 403)])
def test_that_it_answers_to_the_names_that_were_allowed(service: Service, host: str, status: int) -> None:
    assert requests.get(f"{service.url}/batching", headers={"Host": host}, timeout=HANG_S).status_code == status


def test_that_a_list_of_prompts_is_answered_in_its_order(service: Service) -> None:
    prompts = ["One two three", "Monday Tuesday"]
    together = service.complete(prompts).json()["choices"]
    alone = [service.complete(prompt).json()["choices"][0]["text"] for prompt in prompts]
    assert [(c["index"], c["text"]) for c in together] == list(enumerate(alone))


def test_that_a_streamed_list_of_prompts_says_which_is_which(service: Service) -> None:
    prompts = ["One two three", "Monday Tuesday"]
    whole = [choice["text"] for choice in service.complete(prompts).json()["choices"]]
    texts = ["", ""]
    with service.complete(prompts, stream=True, stream_options={"include_usage": True}) as response:
        events = [line.removeprefix(b"data: ") for line in response.iter_lines() if line]
    assert events[-1] == b"[DONE]"
    for event in map(json.loads, events[:-1]):
        for choice in event["choices"]:
            texts[choice["index"]] += choice["text"]
    assert texts == whole
    assert json.loads(events[-2])["usage"]["completion_tokens"] == 16


def test_that_a_seed_repeats_a_sampled_completion_whatever_else_runs(service: Service) -> None:
    sampled = {"temperature": 1.0, "top_p": 0.9, "seed": 11}
    alone = service.complete("Once", **sampled).json()["choices"][0]["text"]
    with_others = service.complete(["Once", "Why", "It is said that"], **sampled).json()["choices"][0]["text"]
    assert with_others == alone


def test_that_a_stop_text_ends_the_completion_before_it(service: Service) -> None:
    text = service.complete("One two three four", max_tokens=16).json()["choices"][0]["text"]
    stop = text.split()[2]
    choice = service.complete("One two three four", max_tokens=16, stop=stop).json()["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert choice["text"] == text[: text.index(stop)]


async def test_that_200_concurrent_callers_each_get_their_own_completion(
    service: Service, completions: dict[str, str]
) -> None:
    service.change(max_batch_size=32)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def ask(prompt: str) -> str:
            body = {"prompt": prompt, "max_tokens": COMPLETED_TOKENS, "temperature": 0, "ignore_eos": True}
            async with session.post(f"{service.url}/v1/completions", json=body) as response:
                assert response.status == 200, await response.text()
                return str((await response.json())["choices"][0]["text"])

        answers = await asyncio.gather(*map(ask, completions))
    assert answers == list(completions.values())
    assert len(set(answers)) > 150, "too alike to notice a swap"


BAD_BODIES: list[tuple[str, bytes, int, str]] = [
    ("empty prompt", b'{"prompt": ""}', 400, "prompt"),
    ("no prompt", b"{}", 400, "prompt"),
    ("empty list of prompts", b'{"prompt": []}', 400, "prompt"),
    ("a number for a prompt", b'{"prompt": 7}', 400, "prompt"),
    ("not JSON", b"{prompt", 400, ""),
    ("not an object", b"[1, 2]", 400, ""),
    ("not UTF-8", b'{"prompt": "\xff\xfe"}', 400, ""),
    ("a lone surrogate", b'{"prompt": "\\ud800"}', 400, "prompt"),
    ("tokens as text", b'{"prompt": "x", "max_tokens": "8"}', 400, "max_tokens"),
    ("no tokens", b'{"prompt": "x", "max_tokens": 0}', 400, "max_tokens"),
    ("more tokens than the context holds", b'{"prompt": "x", "max_tokens": 100000}', 400, ""),
    ("huge number", b'{"prompt": "x", "max_tokens": 1' + b"0" * 400 + b"}", 400, "max_tokens"),
    ("NaN", b'{"prompt": "x", "temperature": NaN}', 400, "temperature"),
    ("infinity", b'{"prompt": "x", "temperature": 1e999}', 400, "temperature"),
    ("negative top_p", b'{"prompt": "x", "top_p": -1}', 400, "top_p"),
    ("seed beyond 64 bits", b'{"prompt": "x", "seed": 36893488147419103232}', 400, "seed"),
    ("empty stop", b'{"prompt": "x", "stop": ""}', 400, "stop"),
    ("truth for a number", b'{"prompt": "x", "max_tokens": true}', 400, "max_tokens"),
    ("two choices", b'{"prompt": "x", "n": 2}', 400, "n"),
    ("unknown model", b'{"prompt": "x", "model": "gpt-5"}', 404, "model"),
    ("a prompt beyond the context", b'{"prompt": "' + b"word " * 20_000 + b'"}', 400, ""),
]


@pytest.mark.parametrize(("body", "status", "param"), [case[1:] for case in BAD_BODIES], ids=[c[0] for c in BAD_BODIES])
def test_that_bad_input_is_refused_in_words(service: Service, body: bytes, status: int, param: str) -> None:
    headers = {"Content-Type": "application/json"}
    response = requests.post(f"{service.url}/v1/completions", data=body, headers=headers, timeout=HANG_S)
    assert response.status_code == status, response.text
    assert param in (error_of(response)["param"] or "")


def test_that_a_body_beyond_the_limit_is_refused_without_being_read(service: Service) -> None:
    headers = {"Content-Type": "application/json"}
    body = json.dumps({"prompt": "x" * 10_000_000}).encode()
    try:
        response = requests.post(f"{service.url}/v1/completions", data=body, headers=headers, timeout=HANG_S)
    except requests.ConnectionError:
        pass  # the service hung up while we were still sending, which says it too
    else:
        assert response.status_code == 413
    assert service.complete("Still there?").status_code == 200


BAD_SETTINGS: list[tuple[bytes, int, str | None]] = [
    (b'{"max_batch_size": 0}', 422, "max_batch_size"),
    (b'{"max_batch_size": 257}', 422, "max_batch_size"),
    (b'{"max_batch_size": "8"}', 422, "max_batch_size"),
    (b'{"max_batch_size": 8.5}', 422, "max_batch_size"),
    (b'{"max_batch_size": null}', 422, "max_batch_size"),
    (b'{"max_batch_size": true}', 422, "max_batch_size"),
    (b'{"batch_wait_timeout_s": -1}', 422, "batch_wait_timeout_s"),
    (b'{"batch_wait_timeout_s": 6}', 422, "batch_wait_timeout_s"),
    (b'{"batch_wait_timeout_s": []}', 422, "batch_wait_timeout_s"),
    (b'{"formation": "sideways"}', 422, "formation"),
    (b'{"batch_size": 8}', 422, "batch_size"),
    (b'{"batch_wait_timeout_s": NaN}', 400, None),
    (b'{"batch_wait_timeout_s": 1e400}', 400, None),
    (b"[]", 400, None),
    (b"", 400, None),
    (b"\xff", 400, None),
]


@pytest.mark.parametrize(("body", "status", "param"), BAD_SETTINGS, ids=[repr(case[0]) for case in BAD_SETTINGS])
def test_that_bad_settings_are_refused_and_nothing_changes(
    service: Service, body: bytes, status: int, param: str | None
) -> None:
    before: dict[str, Any] = requests.get(f"{service.url}/batching", timeout=HANG_S).json()
    response = requests.put(f"{service.url}/batching", data=body, timeout=HANG_S)
    assert response.status_code == status, response.text
    assert error_of(response)["param"] == param
    assert requests.get(f"{service.url}/batching", timeout=HANG_S).json() == before


def test_that_health_is_told_where_clients_of_vllm_look_too(service: Service) -> None:
    ours, theirs = (requests.get(f"{service.url}/{path}", timeout=HANG_S) for path in ("healthz", "health"))
    assert (theirs.status_code, theirs.json()) == (200, ours.json())
    assert ours.json()["status"] == "ok"


def test_that_an_unknown_path_is_refused_in_the_same_shape(service: Service) -> None:
    response = requests.post(f"{service.url}/v1/responses", json={"input": "Hi"}, timeout=HANG_S)
    assert response.status_code == 404
    assert error_of(response)["message"].startswith("There is no POST /v1/responses here; GET /openapi.json")


def test_that_a_question_without_text_says_how_to_ask(service: Service) -> None:
    response = requests.get(service.url, timeout=HANG_S)
    assert response.status_code == 400
    assert error_of(response)["param"] == "text"
