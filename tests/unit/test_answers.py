"""Answers in the shapes that clients of OpenAI's read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from service.engine.job import Conversation, Likelihoods, SamplingParams, Sequence
from service.replica.answers import Answers, answers_to, usage_of
from service.replica.bodies import ChatBody, CompletionBody
from service.replica.requests import GenerationRequest, TextChunk

ENGINE: Any = SimpleNamespace(name="bytes", spell=lambda token: bytes([token]))
"""Each byte is a token."""
MESSAGES = [{"role": "user", "content": "hi"}]


def job_of(body: CompletionBody | ChatBody, prompt: str, text: str) -> Sequence:
    """That has generated `text`, each byte with the likelihood of its number, beside a less likely "?"."""
    job = Sequence("r1", list(prompt.encode()), body.sampling)
    job.tokens = list(text.encode())
    judged = [*job.prompt_ids[1:], *job.tokens] if body.sampling.judges_prompt else job.tokens
    job.likelihoods = [Likelihoods(-float(token), {token: -float(token), 63: -300.0}) for token in judged]
    return job


def answers(body: CompletionBody | ChatBody, prompt: str, text: str) -> Answers:
    request = GenerationRequest(job_of(body, prompt, text), None, body.stream, 0.0, 0.0)
    return answers_to(body, ENGINE, [request], "r1")


def written(answer: msgspec.Struct) -> Any:
    return msgspec.to_builtins(answer)


def test_that_logprobs_of_a_stream_follow_its_tokens_and_count_characters_from_the_prompts_first() -> None:
    body = CompletionBody(prompt="hi", logprobs=2)
    told = answers(body, "hi", "éx")
    parts = [TextChunk("", 2, 1, None), TextChunk("éx", 2, 3, "length")]
    first, second = (written(told.part(0, part, None))["choices"][0]["logprobs"] for part in parts)
    assert (first["tokens"], first["text_offset"]) == (["bytes:\\xc3"], [2])
    assert (second["tokens"], second["text_offset"]) == (["bytes:\\xa9", "x"], [3, 3])
    assert second["token_logprobs"] == [-169.0, -120.0]
    assert second["top_logprobs"][1] == {"x": -120.0, "?": -300.0}


def test_that_an_echo_comes_first_and_tells_nothing_of_its_first_token() -> None:
    body = CompletionBody(prompt="hi", echo=True, logprobs=1)
    (choice,) = written(answers(body, "hi", "x").whole([TextChunk("x", 2, 1, "length")]))["choices"]
    assert choice["text"] == "hix"
    assert choice["logprobs"]["tokens"] == ["h", "i", "x"]
    assert choice["logprobs"]["token_logprobs"] == [None, -105.0, -120.0]
    assert choice["logprobs"]["top_logprobs"][0] is None
    assert choice["logprobs"]["text_offset"] == [0, 1, 2]


def test_that_an_echo_of_token_ids_is_their_text_and_comes_with_the_first_chunk_alone() -> None:
    told = answers(CompletionBody(prompt=[104, 105], echo=True), "hi", "xy")
    texts = [written(told.part(0, TextChunk(text, 2, count, None), None)) for text, count in (("x", 1), ("y", 2))]
    assert [each["choices"][0]["text"] for each in texts] == ["hix", "y"]
    assert texts[0]["choices"][0]["logprobs"] is None


def test_that_a_message_is_whole_or_begins_with_its_role() -> None:
    body = ChatBody(messages=MESSAGES, logprobs=True, top_logprobs=2)
    chunk = TextChunk("éx", 2, 3, "stop")
    whole = ChatCompletion.model_validate(written(answers(body, "hi", "éx").whole([chunk])))
    assert (whole.choices[0].message.role, whole.choices[0].message.content) == ("assistant", "éx")
    assert whole.choices[0].logprobs is not None
    assert whole.choices[0].logprobs.content is not None
    assert [each.bytes for each in whole.choices[0].logprobs.content] == [[0xC3], [0xA9], [0x78]]
    assert [each.token for each in whole.choices[0].logprobs.content[2].top_logprobs] == ["x", "?"]
    told = answers(body, "hi", "éx")
    parts = [TextChunk("é", 2, 2, None), TextChunk("x", 2, 3, "stop")]
    chunks = [ChatCompletionChunk.model_validate(written(told.part(0, part, None))).choices[0] for part in parts]
    assert [(each.delta.role, each.delta.content) for each in chunks] == [("assistant", "é"), (None, "x")]
    assert [len(each.logprobs.content or []) for each in chunks if each.logprobs] == [2, 1]
    end = ChatCompletionChunk.model_validate(written(told.end(usage_of([chunk]))))
    assert end.usage is not None
    assert (end.choices, end.usage.total_tokens) == ([], 5)


def test_that_each_message_reaches_the_template_as_a_text() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    body = ChatBody(messages=[{"role": "developer", "content": "Be brief."}, {"role": "user", "content": parts}])
    (conversation,) = body.prompts
    assert isinstance(conversation, Conversation)
    assert list(conversation) == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "one\ntwo"}]


def test_that_each_bound_of_an_answers_tokens_holds() -> None:
    def sampling(**bounds: int) -> SamplingParams:
        return ChatBody(messages=MESSAGES, **bounds).sampling

    assert (sampling(max_tokens=5).max_tokens, sampling(max_tokens=5).may_be_fewer) == (5, False)
    assert sampling(max_tokens=5, max_completion_tokens=3).max_tokens == 3
    assert sampling().may_be_fewer
