"""Prompts become tokens or are refused with the reason."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from service.engine.engine import Encoder, TextEngine
from service.engine.job import Conversation, PromptError, SamplingParams, TokenIds
from service.engine.model.load import LoadedModel, load
from service.engine.model.resolve import ModelFolder
from tests.unit.tiny_models import CONTEXT, END, byte_level_tokenizer

VOCABULARY = 49_152  # of the default model


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    tokenizer = byte_level_tokenizer()
    return Encoder(tokenizer, CONTEXT, len(tokenizer))


@pytest.fixture(scope="module")
def real_model(model_folder: ModelFolder) -> LoadedModel:
    return load(model_folder, "cpu", "bfloat16")


def test_that_an_empty_prompt_is_refused(encoder: Encoder) -> None:
    with pytest.raises(PromptError, match="empty"):
        encoder.encode("", 1)


def test_that_a_prompt_fits_up_to_the_last_token_of_the_context(encoder: Encoder) -> None:
    assert len(encoder.encode("a" * (CONTEXT - 24), 24)) == CONTEXT - 24
    with pytest.raises(PromptError, match=f"{CONTEXT - 23} tokens and max_tokens is 24.* {CONTEXT} tokens"):
        encoder.encode("a" * (CONTEXT - 23), 24)


def test_that_max_tokens_alone_may_be_too_many(encoder: Encoder) -> None:
    with pytest.raises(PromptError, match="1000000"):
        encoder.encode("a", 1_000_000)


def test_that_a_huge_prompt_is_refused_by_its_beginning(encoder: Encoder) -> None:
    with pytest.raises(PromptError, match="at least"):
        encoder.encode("a" * 1_000_000, 24)


def test_that_half_a_surrogate_pair_is_refused_in_words(encoder: Encoder) -> None:
    with pytest.raises(PromptError, match=r"character 3 .*U\+D800"):
        encoder.encode("ab\ud800", 1)


def test_that_a_token_which_the_model_has_no_embedding_for_is_refused() -> None:
    tokenizer = byte_level_tokenizer()
    highest = max(tokenizer.encode("az"))
    with pytest.raises(PromptError, match=f"token {highest}.* has {highest}"):
        Encoder(tokenizer, CONTEXT, vocabulary=highest).encode("az", 1)


def test_that_all_refusals_are_value_errors() -> None:
    assert issubclass(PromptError, ValueError)


def test_that_text_which_looks_like_a_special_token_is_plain_text(encoder: Encoder) -> None:
    tokenizer = byte_level_tokenizer()
    end = tokenizer.convert_tokens_to_ids(END)
    assert tokenizer.encode(END) == [end]
    tokens = encoder.encode(f"a{END}", 1)
    assert end not in tokens
    assert tokenizer.decode(tokens) == f"a{END}"


TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def templated(template: str) -> Encoder:
    tokenizer = byte_level_tokenizer()
    tokenizer.chat_template = template
    return Encoder(tokenizer, CONTEXT, len(tokenizer))


def said(*contents: str) -> Conversation:
    roles = ("user", "assistant") * len(contents)
    return Conversation({"role": role, "content": text} for role, text in zip(roles, contents, strict=False))


def test_that_messages_are_written_as_the_models_template_has_them_and_end_no_role_themselves() -> None:
    tokenizer = byte_level_tokenizer()
    tokens = templated(TEMPLATE).encode(said("Hi", f"no {END}", "So"), 1)
    assert tokenizer.decode(tokens) == f"<|user|>Hi{END}<|assistant|>no {END}{END}<|user|>So{END}<|assistant|>"
    assert tokens.count(tokenizer.convert_tokens_to_ids(END)) == 3, "that in the message is plain text"


def test_that_the_default_models_messages_are_as_transformers_writes_them(real_model: LoadedModel) -> None:
    messages = said("Name a colour.", "Red.", "Another one?")
    expected = real_model.tokenizer.apply_chat_template(
        [dict(each) for each in messages], add_generation_prompt=True, return_dict=False
    )
    assert TextEngine(real_model).encode(messages, 8) == expected


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ("", "no chat template"),
        ("{{ raise_exception('Roles must alternate.') }}", "refuses these messages: Roles must alternate"),
        ("{{ 1 / 0 }}", "refuses these messages: division by zero"),
    ],
    ids=["none", "refuses", "fails"],
)
def test_that_messages_without_a_template_that_takes_them_are_refused_in_words(template: str, sentence: str) -> None:
    with pytest.raises(PromptError, match=sentence):
        templated(template).encode(said("Hi"), 1)


def test_that_the_ids_of_tokens_are_a_prompt_as_they_are(encoder: Encoder) -> None:
    assert encoder.encode(TokenIds((5, 7)), 1) == [5, 7]
    with pytest.raises(PromptError, match=r"token 260, which this model does not know: it has \d+\.$"):
        encoder.encode(TokenIds((5, 260)), 1)


def test_that_a_completion_may_end_where_the_room_does(tiny_engine: TextEngine) -> None:
    sampling = SamplingParams(max_tokens=1000, may_be_fewer=True)
    assert tiny_engine.job("fewer", "abc", sampling).max_tokens == CONTEXT - 3
    with pytest.raises(PromptError, match="context"):
        tiny_engine.job("none", "a" * CONTEXT, sampling)


def test_that_others_use_of_the_tokenizer_changes_nothing() -> None:
    tokenizer = byte_level_tokenizer()
    tokenizer.pad_token = END
    encoder = Encoder(tokenizer, CONTEXT, len(tokenizer))
    before = encoder.encode(f"abc{END}", 1)
    tokenizer(["a", "bb"], padding="max_length", truncation=True, max_length=2)
    assert encoder.encode(f"abc{END}", 1) == before


def test_that_threads_encode_at_once(real_model: LoadedModel) -> None:
    engine = TextEngine(real_model)
    texts = [f"Prompt number {i} says hello." for i in range(200)]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda text: engine.encode(text, 8), texts))
    assert together == [real_model.tokenizer.encode(text) for text in texts]


MEGABYTES = ["word " * 200_000, "a" * 1_000_000, "e\u0301" * 300_000, "<|im_end|>" * 100_000, " " * 1_000_000]


@pytest.mark.parametrize("text", MEGABYTES)
def test_that_a_megabyte_is_refused(real_model: LoadedModel, text: str) -> None:
    with pytest.raises(PromptError):
        Encoder(real_model.tokenizer, real_model.context_length, VOCABULARY).encode(text, 24)


@pytest.mark.parametrize("text", ["\x00", "a" + "\u0301" * 5000, "\u202e\u200d\ufeff", "🏳️‍🌈" * 50, "\n", " "])
def test_that_odd_text_is_read(real_model: LoadedModel, text: str) -> None:
    assert Encoder(real_model.tokenizer, 20_000, VOCABULARY).encode(text, 1)
