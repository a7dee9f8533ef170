"""The pieces of a streamed text add up to the whole, and stop texts never show."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.job import SamplingParams, Sequence
from service.engine.model.load import LoadedModel, load
from service.engine.model.resolve import ModelFolder
from service.engine.row import Detokenizer, Row, StopFilter
from tests.unit.tiny_models import END, byte_fallback_tokenizer, byte_level_tokenizer

BYTE_LEVEL = byte_level_tokenizer()
BYTE_FALLBACK = byte_fallback_tokenizer()
DETOKENIZERS = {"level": Detokenizer(BYTE_LEVEL), "fallback": Detokenizer(BYTE_FALLBACK)}
TOKENIZERS = {"level": BYTE_LEVEL, "fallback": BYTE_FALLBACK}


def streamed(detokenizer: Detokenizer, prompt_ids: list[int], tokens: list[int]) -> list[str]:
    stream = detokenizer.stream(prompt_ids)
    return [*(stream.push(token) for token in tokens), stream.flush()]


@given(tokens=st.lists(st.integers(0, 257), max_size=40))
def test_that_any_bytes_in_pieces_give_the_text_of_the_whole(tokens: list[int]) -> None:
    pieces = streamed(DETOKENIZERS["level"], [], tokens)
    assert "".join(pieces) == BYTE_LEVEL.decode(tokens, skip_special_tokens=True)


@pytest.mark.parametrize("kind", ["level", "fallback"])
@given(text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30))
def test_that_unicode_text_comes_back_in_whole_characters(kind: str, text: str) -> None:
    tokens = TOKENIZERS[kind].encode("a" + text, add_special_tokens=False)
    head = TOKENIZERS[kind].encode("a", add_special_tokens=False)
    pieces = streamed(DETOKENIZERS[kind], head, tokens[len(head) :])
    assert "".join(pieces) == text
    assert pieces[-1] == ""


def test_that_the_space_before_the_first_word_of_a_completion_is_kept() -> None:
    ids = BYTE_FALLBACK.encode("hello world", add_special_tokens=False)
    prompt = BYTE_FALLBACK.encode("hello", add_special_tokens=False)
    assert "".join(streamed(DETOKENIZERS["fallback"], prompt, ids[len(prompt) :])) == " world"


@pytest.mark.parametrize("kind", ["level", "fallback"])
def test_that_tokens_alone_spell_the_text_of_the_whole(kind: str) -> None:
    tokens = TOKENIZERS[kind].encode("a tree in a field", add_special_tokens=False)
    head = TOKENIZERS[kind].encode("a", add_special_tokens=False)
    assert b"".join(map(DETOKENIZERS[kind].spell, tokens[len(head) :])) == b" tree in a field"


def test_that_parts_of_characters_and_special_tokens_are_spelled_too() -> None:
    tokens = BYTE_LEVEL.encode("🙂", add_special_tokens=False)
    assert [DETOKENIZERS["level"].spell(token) for token in tokens] == [b"\xf0", b"\x9f", b"\x99", b"\x82"]
    assert DETOKENIZERS["level"].spell(BYTE_LEVEL.convert_tokens_to_ids(END)) == END.encode()


def test_that_a_character_is_held_back_until_it_is_complete() -> None:
    tokens = BYTE_LEVEL.encode("a🙂b", add_special_tokens=False)
    assert streamed(DETOKENIZERS["level"], [], tokens) == ["a", "", "", "", "🙂", "b", ""]


@pytest.mark.parametrize("kind", ["level", "fallback"])
def test_that_a_character_cut_short_by_the_end_shows_as_a_replacement(kind: str) -> None:
    tokens = TOKENIZERS[kind].encode("a🙂", add_special_tokens=False)
    assert "".join(streamed(DETOKENIZERS[kind], tokens[:1], tokens[1:-1]))[-1] == "\N{REPLACEMENT CHARACTER}"


def test_that_bytes_that_never_become_a_character_do_not_hold_the_text_back() -> None:
    broken = BYTE_FALLBACK.convert_tokens_to_ids("<0xFF>")
    pieces = streamed(DETOKENIZERS["fallback"], [], [broken] * 40)
    assert any(pieces[:20])


@pytest.mark.parametrize("kind", ["level", "fallback"])
def test_that_special_tokens_and_unknown_numbers_show_as_nothing(kind: str) -> None:
    end = TOKENIZERS[kind].convert_tokens_to_ids(END)
    assert "".join(streamed(DETOKENIZERS[kind], [], [end, 100_000])) == ""


@pytest.fixture(scope="module")
def real_model(model_folder: ModelFolder) -> LoadedModel:
    return load(model_folder, "cpu", "bfloat16")


@pytest.mark.parametrize(
    "text", ["Naïve café – 日本語 🙂👩‍👩‍👧 ﷽", "  two  spaces\n\n\ttab", "\u202eRTL\u0301\u0302", "\x00\x01"]
)
def test_that_the_real_tokenizer_streams_every_text_as_it_is(real_model: LoadedModel, text: str) -> None:
    tokens = real_model.tokenizer.encode(text, add_special_tokens=False)
    assert "".join(streamed(Detokenizer(real_model.tokenizer), [], tokens)) == text


# -- stop texts --------------------------------------------------------------------------------------------------------


def filtered(stops: list[str], pieces: list[str]) -> tuple[list[str], bool]:
    """What gets through, piece by piece, and whether a stop text came."""
    stop_filter = StopFilter(stops)
    shown = []
    for piece in pieces:
        shown.append(stop_filter.push(piece))
        if stop_filter.has_stopped:
            return shown, True
    return [*shown, stop_filter.flush()], False


def first_cut(stops: list[str], text: str) -> str | None:
    """The text before the stop text that is complete first; of those complete at once the longest counts."""
    ends = [(text.index(stop) + len(stop), -len(stop)) for stop in stops if stop in text]
    return text[: sum(min(ends))] if ends else None


@given(
    stops=st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3),
    pieces=st.lists(st.text("abc", max_size=4), max_size=12),
)
def test_that_text_ends_before_the_first_stop_text_however_it_is_cut(stops: list[str], pieces: list[str]) -> None:
    shown, has_stopped = filtered(stops, pieces)
    cut = first_cut(stops, "".join(pieces))
    assert has_stopped == (cut is not None)
    assert "".join(shown) == ("".join(pieces) if cut is None else cut)


def test_that_a_stop_text_never_shows_in_part() -> None:
    assert filtered(["\n\nQ:"], ["Yes.", "\n", "\n", "Q", ": What"]) == (["Yes.", "", "", "", ""], True)


def test_that_what_was_held_back_shows_as_soon_as_it_cannot_be_a_stop_text() -> None:
    assert filtered(["\n\nQ:"], ["Yes.\n", "\n", "A"]) == (["Yes.", "", "\n\nA", ""], False)


def test_that_a_huge_stop_text_costs_no_more_than_its_length() -> None:
    shown, has_stopped = filtered(["a" * 100_000 + "b"], ["a" * 50_000] * 4)
    assert (len("".join(shown)), has_stopped) == (200_000, False)


def progress_of(text: str, **sampling: Any) -> list[tuple[str, str | None]]:
    tokens = BYTE_LEVEL.encode(text, add_special_tokens=False)
    row = Row(Sequence("r", [1], SamplingParams(**sampling)), DETOKENIZERS["level"], frozenset())
    steps = []
    for token in tokens:
        progress = row.advance(token)
        steps.append((progress.text, progress.finish_reason))
        if progress.finish_reason:
            break
    return steps


def test_that_a_row_ends_at_its_stop_text() -> None:
    assert progress_of("ab##cd", stop=("##",)) == [("a", None), ("b", None), ("", None), ("", "stop")]


def test_that_a_row_which_ends_by_length_shows_what_was_held_back() -> None:
    assert progress_of("ab#", stop=("##",), max_tokens=3) == [("a", None), ("b", None), ("#", "length")]


def test_that_a_stop_text_in_the_very_last_token_counts() -> None:
    assert progress_of("a#", stop=("#",), max_tokens=2) == [("a", None), ("", "stop")]
