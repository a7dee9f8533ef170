"""A beginning that prompts share is read once, and changes no answer."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.engine.engine import TextEngine
from service.engine.job import Sequence
from service.engine.model.batch_cache import BatchCache
from service.engine.prefixes import BLOCK_TOKENS, Prefixes
from service.messages.telemetry import BatchWork
from tests.unit.tiny_models import Listener, run, sequence

SYSTEM = "Answer as a pirate would, and be as brief as you can be, sailor."  # two blocks of one token a character


@pytest.fixture
def engine(tiny_engine: TextEngine, monkeypatch: pytest.MonkeyPatch) -> TextEngine:
    """One that has read nothing yet."""
    monkeypatch.setattr(tiny_engine.forward, "prefixes", Prefixes())
    return tiny_engine


def asked(engine: TextEngine, *texts: str, max_tokens: int = 6) -> list[Sequence]:
    return [sequence(engine, text, max_tokens=max_tokens) for text in texts]


def read_anew(engine: TextEngine, each: Sequence) -> list[int]:
    """What it is answered where nothing is known."""
    alone = Sequence(each.id, each.prompt_ids, each.sampling)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine.forward, "prefixes", None)
        run(engine, alone)
    return alone.tokens


def test_that_what_two_prompts_began_with_is_not_read_again(engine: TextEngine) -> None:
    first, second, third = (asked(engine, SYSTEM + text) for text in ("Hello", "Ahoy there", "Hi"))
    works = [run(engine, *each).work for each in (first, second, third)]
    assert [work.saved for work in works] == [0, 0, len(SYSTEM)], "one prompt shares nothing"
    assert [work.prompts for work in works] == [len(SYSTEM) + 5, len(SYSTEM) + 10, 2]
    for (each,) in (first, second, third):
        assert each.tokens == read_anew(engine, each)


def test_that_each_row_of_a_batch_takes_what_lies_before_the_column_from_which_all_are_read(engine: TextEngine) -> None:
    run(engine, *asked(engine, f"{SYSTEM} 1", f"{SYSTEM} 2"))
    rows = asked(engine, f"{SYSTEM} and then some more", f"{SYSTEM} 3", "no beginning")
    work = run(engine, *rows).work
    longest, shorter, alone = (len(row.prompt_ids) for row in rows)
    pads = longest - shorter, longest - alone
    start = min(len(SYSTEM), pads[0] + len(SYSTEM), pads[1])
    assert work.saved == start + (start - pads[0])
    for each in rows:
        assert each.tokens == read_anew(engine, each)


def test_that_a_request_that_joins_is_read_from_where_it_is_new(engine: TextEngine) -> None:
    run(engine, *asked(engine, f"{SYSTEM} 1", f"{SYSTEM} 2"))
    running, joining = asked(engine, f"{SYSTEM} first", max_tokens=12), asked(engine, f"{SYSTEM} joins")
    coming = iter([[], joining])

    def admit(work: BatchWork, can_join: bool) -> SequenceOf[Sequence]:
        return next(coming, [])

    work = engine.generate(running, Listener(), admit)
    assert work.saved == 2 * len(SYSTEM)
    for each in (*running, *joining):
        assert each.tokens == read_anew(engine, each)


def test_that_a_prompt_that_is_known_as_a_whole_is_read_from_its_last_block_on(engine: TextEngine) -> None:
    """The logits that follow its last token have to be computed."""
    for _ in range(2):
        run(engine, *asked(engine, SYSTEM))
    (again,) = asked(engine, SYSTEM)
    assert run(engine, again).work.saved == len(SYSTEM) - BLOCK_TOKENS
    assert again.tokens == read_anew(engine, again)


BEGINNINGS = ("", SYSTEM[:BLOCK_TOKENS], SYSTEM, SYSTEM[:BLOCK_TOKENS] + "Another way on, as long as that.")


@settings(max_examples=8, deadline=None)
@given(
    batches=st.lists(
        st.lists(st.tuples(st.sampled_from(BEGINNINGS), st.text(min_size=1, max_size=8)), min_size=1, max_size=4),
        min_size=2,
        max_size=5,
    ),
    prefill_tokens=st.sampled_from([7, 512]),
    room_blocks=st.integers(0, 4),
)
def test_that_no_answer_depends_on_what_was_read_before(
    tiny_engine: TextEngine, batches: list[list[tuple[str, str]]], prefill_tokens: int, room_blocks: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny_engine.forward, "prefixes", Prefixes(room_blocks * BLOCK_TOKENS))
        patch.setattr(tiny_engine.forward, "prefill_tokens", prefill_tokens)
        for batch in batches:
            rows = [
                Sequence(str(i), tiny_engine.encode(beginning + text, 4), sequence(tiny_engine, "a").sampling)
                for i, (beginning, text) in enumerate(batch)
            ]
            run(tiny_engine, *rows)
            for each in rows:
                assert each.tokens == read_anew(tiny_engine, each)


# ---------------------------------------------------------------------------------------------------- which are kept


def blocks(*names: str) -> list[int]:
    return [ord(name) for name in names for _ in range(BLOCK_TOKENS)]


def known(prefixes: Prefixes, prompt: list[int]) -> int:
    found = prefixes.find([*prompt, 0])
    return 0 if found is None else found.tokens


def note_twice(prefixes: Prefixes, prompt: list[int]) -> int:
    for _ in range(2):
        prefixes.note(prompt)
    return prefixes.wanted(prompt)


def test_that_what_one_prompt_alone_had_is_not_kept() -> None:
    prefixes = Prefixes()
    prefixes.note(blocks("a", "b"))
    assert prefixes.wanted(blocks("a", "b")) == 0
    prefixes.note(blocks("a", "c"))
    assert prefixes.wanted(blocks("a", "c")) == BLOCK_TOKENS
    assert prefixes.wanted(blocks("a")[:-1]) == 0, "less than a block"


def test_that_a_longer_beginning_takes_the_place_of_a_shorter_one() -> None:
    prefixes = Prefixes(room_tokens=3 * BLOCK_TOKENS)
    for prompt in (blocks("a"), blocks("a", "b"), blocks("x")):
        prefixes.keep(prompt, BatchCache(1))
    assert [known(prefixes, prompt) for prompt in (blocks("a", "b"), blocks("a", "z"), blocks("x"))] == [
        2 * BLOCK_TOKENS,
        BLOCK_TOKENS,
        BLOCK_TOKENS,
    ]
    assert note_twice(prefixes, blocks("a")) == 0, "it is kept within the longer one"


def test_that_what_was_not_needed_for_longest_goes_first() -> None:
    prefixes = Prefixes(room_tokens=2 * BLOCK_TOKENS)
    for name in "ab":
        prefixes.keep(blocks(name), BatchCache(1))
    assert known(prefixes, blocks("a")) == BLOCK_TOKENS
    prefixes.keep(blocks("c"), BatchCache(1))
    assert [known(prefixes, blocks(name)) for name in "abc"] == [BLOCK_TOKENS, 0, BLOCK_TOKENS]
    assert note_twice(prefixes, blocks("d", "e", "f")) == 0, "there is no room for so much"
