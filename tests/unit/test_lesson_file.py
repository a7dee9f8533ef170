"""The file of a lesson: what it may say, and how errors name the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.analysis.lesson.file import TEMPLATE, LessonError, begun, parse, path_of, read, shipped
from service.analysis.lesson.lesson import Lesson, filled
from service.analysis.observed.register import Figures
from service.messages.load import ClosedLoop, LognormalLength, Poisson, Steps
from service.messages.settings import Settings
from service.messages.text import UserError

WHOLE = """---
lesson: Small
settings: {max_batch_size: 8}
load: {pattern: poisson, share: 60 %, max_tokens: 6}
---
About *it*.

## One by one
Before.
```run
settings: {max_batch_size: 1}
for_s: 5
```
After {p95_s}.

## How many?
```guess
figure: mean_batch
```

## Eight
```run
settings: {max_batch_size: 8}
load: {share: 90 %}
```

## Rest
```run
load: none
```

## Asked
```question
ask: Why?
answers: [No, Yes]
right: 2
```
"""


@pytest.fixture(scope="module")
def lesson() -> Lesson:
    return parse(WHOLE, "small.md")


def test_that_each_heading_is_a_step_after_one_that_says_what_it_is_about(lesson: Lesson) -> None:
    assert [step.title for step in lesson.steps] == ["Small", "One by one", "How many?", "Eight", "Rest", "Asked"]
    assert lesson.steps[0].before == "<p>About <em>it</em>.</p>\n"
    assert (lesson.steps[1].before, lesson.steps[1].after) == ("<p>Before.</p>\n", "<p>After {p95_s}.</p>\n")
    assert lesson.steps[2].guess is not None
    assert lesson.steps[2].guess.figure == "mean_batch"
    assert lesson.steps[5].questions[0].answers == ("No", "Yes")


def test_that_what_a_step_does_not_name_stays_as_it_was(lesson: Lesson) -> None:
    runs = [step.run for step in lesson.steps if step.run is not None]
    assert [run.settings.max_batch_size for run in runs] == [1, 8, 8]
    first, second, third = (run.load.at(10.0) for run in runs)
    assert first is not None
    assert second is not None
    assert (first.pattern, first.max_tokens) == (Poisson(rate_per_s=6.0), 6)
    assert (second.pattern, second.max_tokens) == (Poisson(rate_per_s=9.0), 6)
    assert third is None, "no requests come"


@pytest.mark.parametrize(
    ("load", "pattern"),
    [
        ("{pattern: closed, users: 32}", ClosedLoop(users=32)),
        ("{rate_per_s: 3}", Poisson(rate_per_s=3.0)),
        ("{pattern: steps, shares: [30 %, 0.9], step_s: 5}", Steps(rates_per_s=(3.0, 9.0), step_s=5.0)),
    ],
)
def test_that_a_load_may_have_any_pattern_with_rates_or_shares(load: str, pattern: object) -> None:
    steps = parse(WHOLE.replace("load: {share: 90 %}", f"load: {load}"), "small.md").steps
    assert steps[3].run is not None
    asked = steps[3].run.load.at(10.0)
    assert asked is not None
    assert asked.pattern == pattern


def test_that_lengths_may_be_drawn() -> None:
    text = WHOLE.replace("max_tokens: 6", "max_tokens: {drawn: lognormal, median: 6, sigma: 1, cap: 20}")
    run = parse(text, "small.md").steps[1].run
    assert run is not None
    assert run.load.asked.max_tokens == LognormalLength(median=6, sigma=1.0, cap=20)


@pytest.mark.parametrize(
    ("right", "wrong", "line", "says"),
    [
        ("---\nlesson", "lesson", 1, "begins with a line ---"),
        ("About *it*.\n", "", 6, "what the lesson is about"),
        ("lesson: Small", "lesson: [Small", 3, "no YAML"),
        ("lesson: Small", "lessn: Small", 2, "lessn"),
        ("max_batch_size: 8}\nload: {pat", "max_batch_size: 0}\nload: {pat", 3, "from 1 to 256"),
        ("max_batch_size: 1}", "max_batch: 1}", 11, "max_batch: Unknown setting"),
        ("for_s: 5", "for_s: 500", 12, "120"),
        ("share: 60 %,", "share: much,", 4, "load: Expected `float`"),
        ("pattern: poisson", "pattern: fish", 4, "fish"),
        ("{share: 90 %}", "{share: 90 %, users: 3}", 24, "has no users"),
        ("{p95_s}", "{p96_s}", 14, "There is no figure p96_s"),
        ("figure: mean_batch", "figure: p99_s", 18, "must be one of p50_s"),
        ("## Eight\n```run", "## Eight\n```python", 16, "followed by a step that runs"),
        ("right: 2", "right: 3", 34, "from 1 to 2"),
        ("## Eight", "## Rest", 27, "a step called 'Rest' already"),
        ("## One by one", "## One by one\n```run\n```\n", 13, "one block"),
    ],
)
def test_that_an_error_names_the_line_and_what_is_to_be_there(right: str, wrong: str, line: int, says: str) -> None:
    assert WHOLE.count(right) == 1
    with pytest.raises(LessonError) as raised:
        parse(WHOLE.replace(right, wrong), "small.md")
    assert raised.value.line == line
    assert str(raised.value).startswith(f"small.md, line {line}: ")
    assert says in str(raised.value)


def test_that_figures_take_their_places() -> None:
    text = "{before.p95_s} then {p95_s}, {failed_share} of {capacity}"
    seen, earlier = Figures(p95_s=1.954, failed_share=0.25), Figures(p95_s=12.0)
    assert filled(text, seen, earlier, 14.52) == "12.0 s then 1.95 s, 25 % of 14.5"
    assert filled(text, None, None, None) == "– then –, – of –"


def test_that_nothing_of_a_lesson_is_taken_for_html() -> None:
    steps = parse(WHOLE.replace("About *it*.", "<img src=x> <script>"), "small.md").steps
    assert "&lt;img" in steps[0].before
    assert "<script" not in steps[0].before


def test_that_a_file_that_is_no_lesson_is_refused_in_words(tmp_path: Path) -> None:
    for content, says in ((b"\xff\xfe", "no text in UTF-8"), (b"x" * 300_000, "too long"), (None, "No such file")):
        path = tmp_path / "odd.md"
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(UserError, match=says):
            read(path)


def test_that_a_new_lesson_can_be_taken_as_it_is_and_overwrites_nothing(tmp_path: Path) -> None:
    path = begun(tmp_path / "mine.md")
    assert read(path).title == "My lesson"
    with pytest.raises(UserError, match="File exists"):
        begun(path)
    assert path.read_text() == TEMPLATE
    with pytest.raises(UserError, match=r"ends in \.md: .*mine\.md"):
        begun(tmp_path / "mine.txt")


ANSWERS = {  # of the quiz, by a word of the question
    "16 times as long": "read once",
    "64 users": "About 4 s",
    "one request at a time": "Nothing",
    "late batch formed": "free for it",
    "sealed batch waits": "later batch",
    "little to do": "rises by up to half a second",
    "busy all the time": "Hardly anything",
    "one long answer": "since the batch began",
    "prefill_chunk_tokens": "later first token",
    "at 98 %": "Much more",
    "50 users": "ask less often",
    "for hours": "Only longer latency",
}


def test_that_a_quiz_asks_twelve_questions_whose_right_answers_are_known_here() -> None:
    quiz = read(path_of("9"))
    asked = [question for step in quiz.steps for question in step.questions]
    assert len(asked) == len(ANSWERS) == 12
    for question, (about, answer) in zip(asked, ANSWERS.items(), strict=True):
        assert about in question.ask
        assert answer in question.answers[question.right - 1]
    assert {question.right for question in asked} == {1, 2, 3}, "the right one has no usual place"


def test_that_eight_lessons_come_with_the_program() -> None:
    *lessons, _quiz = (read(path) for path in shipped().values())
    assert len(lessons) == 8
    for lesson in lessons:
        runs = [step.run for step in lesson.steps if step.run is not None]
        assert 40 <= sum(run.for_s for run in runs) <= 120, "four minutes with reading"
        assert any(step.questions for step in lesson.steps)
        assert all(step.run.load.pattern is not None for step in lesson.steps if step.run is not None and step.after)
    assert lessons[0].settings == Settings()


def test_that_one_of_them_is_named_by_its_number() -> None:
    assert path_of("5").name == "5-the-knee.md"
    assert path_of("mine.md") == Path("mine.md")
