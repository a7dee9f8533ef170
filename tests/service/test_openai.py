"""Clients of OpenAI's as their users write them, with nothing changed but the address."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import openai
import pytest
import requests
from openai.types.chat import ChatCompletionMessageParam

from service.engine.model.resolve import DEFAULT_MODEL
from tests.service import HANG_S
from tests.service.conftest import Service, error_of

MESSAGES: list[ChatCompletionMessageParam] = [
    {"role": "system", "content": "You answer with one word."},
    {"role": "user", "content": [{"type": "text", "text": "The capital of France is"}]},
]


@pytest.fixture
def client(service: Service) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{service.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def post(service: Service, path: str, **body: Any) -> requests.Response:
    return requests.post(f"{service.url}{path}", json=body, timeout=HANG_S)


def test_that_a_chat_is_answered_whole_and_streamed_alike(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model=DEFAULT_MODEL, messages=MESSAGES, max_tokens=12, temperature=0)
    with client.chat.completions.stream(
        model=DEFAULT_MODEL,
        messages=MESSAGES,
        max_completion_tokens=12,
        temperature=0,
        stream_options={"include_usage": True},
    ) as stream:
        streamed = stream.get_final_completion()
    message = whole.choices[0].message
    assert message.role == "assistant"
    assert message.content
    assert "Paris" in message.content
    assert streamed.choices[0].message.content == message.content
    assert streamed.choices[0].finish_reason == whole.choices[0].finish_reason
    assert streamed.usage == whole.usage
    assert whole.usage is not None
    assert 0 < whole.usage.completion_tokens <= 12 < whole.usage.prompt_tokens


def test_that_usage_comes_once_at_the_end_and_only_where_it_is_asked_for(client: openai.OpenAI) -> None:
    def usages(**options: Any) -> list[int | None]:
        chunks = client.completions.create(
            model=DEFAULT_MODEL, prompt="Once", max_tokens=4, temperature=0, stream=True, **options
        )
        return [chunk.usage and chunk.usage.completion_tokens for chunk in chunks]

    assert set(usages()) == {None}
    *others, last = usages(stream_options={"include_usage": True})
    assert (set(others), last) == ({None}, 4)
    every = usages(stream_options={"include_usage": True, "continuous_usage_stats": True})
    assert every == sorted(count or 0 for count in every)


async def test_that_the_asynchronous_client_is_answered_too(service: Service) -> None:
    async with openai.AsyncOpenAI(base_url=f"{service.url}/v1", api_key="none", max_retries=0) as client:
        chunks = await client.chat.completions.create(
            model=DEFAULT_MODEL, messages=MESSAGES, max_tokens=3, temperature=0, seed=1, stop=["\n"], stream=True
        )
        deltas = [chunk.choices[0].delta async for chunk in chunks]
    assert deltas[0].role == "assistant"
    assert {delta.role for delta in deltas[1:]} <= {None}
    assert "".join(delta.content or "" for delta in deltas)


def test_that_each_token_is_told_of_with_those_that_were_likeliest(client: openai.OpenAI) -> None:
    completion = client.chat.completions.create(
        model=DEFAULT_MODEL, messages=MESSAGES, max_tokens=4, temperature=0, logprobs=True, top_logprobs=3
    )
    choice = completion.choices[0]
    assert choice.logprobs is not None
    assert choice.logprobs.content
    assert completion.usage is not None
    assert len(choice.logprobs.content) == completion.usage.completion_tokens
    for token in choice.logprobs.content:
        assert token.bytes == list(token.token.encode())
        values = [other.logprob for other in token.top_logprobs]
        assert values == sorted(values, reverse=True)
        assert token.logprob == values[0], "the likeliest was taken"


def test_that_prompts_of_token_ids_are_judged_as_an_evaluation_asks_it(client: openai.OpenAI) -> None:
    """What the evaluation harness sends: both prompts with the likelihoods of their tokens, and one token more."""
    ids = [[504, 3575, 282, 4649, 314], [504, 3575]]
    completion = client.completions.create(
        model=DEFAULT_MODEL, prompt=ids, max_tokens=1, temperature=0, logprobs=1, echo=True, seed=1234
    )
    for prompt, choice in zip(ids, completion.choices, strict=True):
        told = choice.logprobs
        assert told is not None
        assert told.tokens is not None
        assert told.token_logprobs is not None
        assert len(told.tokens) == len(told.token_logprobs) == len(prompt) + 1
        assert "".join(told.tokens) == choice.text
        assert told.token_logprobs[0] is None
        assert all(value <= 0 for value in told.token_logprobs[1:])
    first, second = (choice.logprobs.token_logprobs for choice in completion.choices if choice.logprobs)
    assert first is not None
    assert second is not None
    assert first[1] == pytest.approx(second[1], abs=1e-3), "both begin alike"


def test_that_the_ids_of_a_text_are_completed_as_the_text(service: Service) -> None:
    echoed = service.complete([504, 3575], echo=True, max_tokens=6).json()["choices"][0]["text"]
    text = service.complete([504, 3575], max_tokens=6).json()["choices"][0]["text"]
    prompt = echoed.removesuffix(text)
    assert service.complete(prompt, max_tokens=6, echo=True).json()["choices"][0]["text"] == echoed


def test_that_curl_chats(service: Service) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3, "stream": True})
    command = ["curl", "--silent", "--fail", f"{service.url}/v1/chat/completions", "-d", body]
    command += ["-H", "Content-Type: application/json"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=HANG_S).stdout.split("\n\n")
    assert json.loads(lines[0].removeprefix("data: "))["object"] == "chat.completion.chunk"
    assert lines[-2:] == ["data: [DONE]", ""]


def test_that_the_one_model_is_found_by_its_name_and_no_other(client: openai.OpenAI) -> None:
    assert client.models.retrieve(DEFAULT_MODEL).id == DEFAULT_MODEL
    with pytest.raises(openai.NotFoundError, match="There is no model 'org/other' here"):
        client.models.retrieve("org/other")
    with pytest.raises(openai.NotFoundError) as refused:
        client.chat.completions.create(model="gpt-5", messages=MESSAGES)
    assert refused.value.code == "model_not_found"


def test_that_what_is_not_offered_is_an_error_of_the_client_in_words(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="does not offer that tools: leave it out") as refused:
        client.chat.completions.create(
            model=DEFAULT_MODEL,
            messages=MESSAGES,
            tools=[{"type": "function", "function": {"name": "look", "parameters": {}}}],
        )
    assert refused.value.param == "tools"


def test_that_the_release_is_told(service: Service) -> None:
    answer = requests.get(f"{service.url}/version", timeout=HANG_S).json()
    assert set(answer) == {"version"}
    assert answer["version"][0].isdigit()


def test_that_a_function_chats_with_nobody(adder_service: Service) -> None:
    refused = post(adder_service, "/v1/chat/completions", messages=[{"role": "user", "content": "3"}])
    assert refused.status_code == 400
    error = error_of(refused)
    assert error["param"] == "messages"
    assert "no language model" in error["message"]
    judged = post(adder_service, "/v1/completions", prompt="3", logprobs=1)
    assert (judged.status_code, error_of(judged)["param"]) == (400, "logprobs")
