"""What the requests of a load ask for."""

from __future__ import annotations

from collections import Counter

from service.load.arrivals import TraceEntry
from service.load.request_sampler import Filler, RequestSampler, dealt
from service.messages.load import Burst, Length, RunLoad, UniformLength


def load(max_tokens: Length = 24, prompt_words: Length | None = None, **fields: int) -> RunLoad:
    return RunLoad(
        pattern=Burst(count=1), prompts=("one two", "three"), max_tokens=max_tokens, prompt_words=prompt_words, **fields
    )


def test_that_each_prompt_comes_once_a_round_in_an_order_that_the_seed_decides() -> None:
    prompts = tuple("abcdefgh")
    deck, again, other = dealt(prompts, 1), dealt(prompts, 1), dealt(prompts, 2)
    drawn = [next(deck) for _ in range(24)]
    assert Counter(drawn) == dict.fromkeys(prompts, 3)
    assert drawn == [next(again) for _ in range(24)]
    assert drawn != [next(other) for _ in range(24)]


def test_that_a_prompt_is_cut_or_continued_with_the_words_of_all() -> None:
    filler = Filler(("one two three", "four"), 0)
    assert filler.fit("one two three", 2) == "one two"
    words = filler.fit("four", 50).split()
    assert len(words) == 50
    assert words[0] == "four"
    assert set(words) == {"one", "two", "three", "four"}


def test_that_prompts_without_a_word_are_continued_all_the_same() -> None:
    assert Filler(("", " "), 0).fit(" ", 3) == "and and and"


def test_that_each_thing_asked_has_a_stream_of_its_own() -> None:
    plain, varied = RequestSampler(load()), RequestSampler(load())
    short = [plain.draw(load()) for _ in range(20)]
    long = [varied.draw(load(max_tokens=UniformLength(low=1, high=99))) for _ in range(20)]
    assert [asked.prompt for asked in short] == [asked.prompt for asked in long]
    assert len({asked.max_tokens for asked in long}) > 10


def test_that_new_prompts_do_not_begin_the_lengths_again() -> None:
    wanted = load(max_tokens=UniformLength(low=1, high=1000))
    asking, undisturbed = RequestSampler(wanted), RequestSampler(wanted)
    for each in (asking, undisturbed):
        each.draw(wanted)
    other = RunLoad(pattern=Burst(count=1), prompts=("new",), max_tokens=wanted.max_tokens)
    asking = asking.revised(wanted, other)
    assert asking.draw(other) == ("new", undisturbed.draw(wanted).max_tokens)


def test_that_what_a_trace_leaves_open_is_up_to_the_load() -> None:
    wanted = load(max_tokens=9, prompt_words=5)
    trace = (
        TraceEntry(offset_s=0.0, prompt="said in the trace", max_tokens=3),
        TraceEntry(offset_s=0.0, prompt_words=2),
        TraceEntry(offset_s=0.0),
    )
    asking = RequestSampler(wanted, trace)
    drawn = [asking.draw(wanted) for _ in trace]
    assert drawn[0] == ("said in the trace", 3)
    assert [(len(asked.prompt.split()), asked.max_tokens) for asked in drawn[1:]] == [(2, 9), (5, 9)]
