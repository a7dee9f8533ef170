"""The file of a lesson: Markdown with a front part in YAML, a heading for each step, and blocks that say what is done.

::

    ---
    lesson: The knee
    settings: {max_batch_size: 16}
    load: {pattern: poisson, share: 60 %}
    ---
    What it is about, in a sentence or two.

    ## At 60 % of capacity
    What to look at while it runs.

    ```run
    for_s: 25
    ```

    What was seen: {requests_per_s} requests/s, 95 of 100 within {p95_s}.

gui/README.md says what may stand where. Nothing of a file is executed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from service.analysis.observed.register import REGISTER, UNKNOWN_FIGURES, Figures, numbers
from service.analysis.observed.statistics import figures
from service.analysis.recording.page import PageStep, player_page
from service.analysis.recording.reader import Recording
from service.messages.load import USUAL_PROMPTS, Length, Pattern, RunLoad
from service.messages.settings import SettingError, Settings, setting_value
from service.messages.text import UNKNOWN, UserError, parse_number, percent, significant
from service.messages.workload import TEXT

SUFFIX: Final = ".md"
FOLDER: Final = Path(__file__).parents[2] / "assets" / "lessons"
MOST_BYTES: Final = 200_000
GUESSED: Final = ("p50_s", "p95_s", "mean_batch", "requests_per_s", "tokens_per_s")  # both measured and predicted
CAPACITY: Final = "capacity"  # a word for a number beside the figures: requests a second in full batches
SHARES: Final[Mapping[str, str]] = {"share": "rate_per_s", "share_to": "rate_to_per_s", "shares": "rates_per_s"}
"""What names a rate of a pattern as a share of the capacity, and the rate."""

_QUESTION: Final = Markup(
    "<p><strong>{}</strong></p><ul><li>{}</li></ul><details><summary>Answer</summary>{}</details>"
)
_ANSWERS: Final = Markup("</li><li>")
_FRONT: Final = re.compile(r"---\n(.*?\n)---\n", re.DOTALL)
_PLACE: Final = re.compile(r"\{(before\.)?(\w+)\}")
_PATH: Final = re.compile(r"(?:\.(\w+))|(?:\[(\d+)\])")
_UNKNOWN: Final = re.compile(r"unknown field `(\w+)`")
T = TypeVar("T")


class LessonError(UserError):
    """A lesson that cannot be read; the text names the file, the line and what is to be there."""

    def __init__(self, name: str, line: int, what: str) -> None:
        super().__init__(f"{name}, line {line}: {what}")
        self.line = line


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What requests of a load ask for."""

    max_tokens: Length = 24
    prompt_words: Length | None = None
    prompts: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] = USUAL_PROMPTS


class LessonLoad(msgspec.Struct, frozen=True, kw_only=True):
    """A load whose rates may be shares.

    Attributes:
        pattern: of arrivals; ``None``: none.
        is_share: its rates are shares of the capacity.
    """

    pattern: Pattern | None
    is_share: bool = False
    asked: Asked = Asked()

    def capacity_at(self, pattern: Pattern | None) -> float | None:
        """The capacity of a service on which the load was `pattern`; ``None`` where it has no shares."""
        if not self.is_share or pattern is None or not hasattr(pattern, self._rates[0]):
            return None
        share, rate = (next(_listed(getattr(each, self._rates[0]))) for each in (self.pattern, pattern))
        return rate / share

    def at(self, capacity_per_s: float) -> RunLoad | None:
        """The load on a service of that capacity; ``None`` where nothing is to come.

        >>> from service.messages.load import Poisson
        >>> LessonLoad(pattern=Poisson(rate_per_s=0.6), is_share=True).at(14.5).pattern
        Poisson(rate_per_s=8.7)
        """
        if self.pattern is None:
            return None
        pattern = self.pattern
        if self.is_share:
            rates = {name: _times(getattr(pattern, name), capacity_per_s) for name in self._rates}
            pattern = msgspec.structs.replace(pattern, **rates)
        return RunLoad(pattern=pattern, **{name: getattr(self.asked, name) for name in Asked.__struct_fields__})

    @property
    def _rates(self) -> list[str]:
        return [name for name in SHARES.values() if hasattr(self.pattern, name)]

    @property
    def share_words(self) -> str:
        """Its shares; empty where it has none.

        >>> from service.messages.load import Ramp
        >>> LessonLoad(pattern=Ramp(rate_per_s=0.3, rate_to_per_s=0.9, over_s=60), is_share=True).share_words
        '30 to 90 % of the capacity'
        """
        if not self.is_share:
            return ""
        shares = [share for name in self._rates for share in _listed(getattr(self.pattern, name))]
        *first, last = (percent(share) for share in shares)
        return " to ".join([*(each.removesuffix(" %") for each in first), last]) + " of the capacity"


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What a step does on the service.

    Attributes:
        settings: that are in force in it.
        load: that runs.
        for_s: how long, from the first batch of the settings on.
    """

    settings: Settings
    load: LessonLoad
    for_s: float


class Guess(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the reader is to guess of the next run."""

    figure: str

    def __post_init__(self) -> None:
        if self.figure not in GUESSED:
            raise ValueError(f"figure must be one of {', '.join(GUESSED)}")


class Question(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One with several answers.

    Attributes:
        right: the number of the right one, from 1 on.
        why: said once it is answered.
    """

    ask: str
    answers: Annotated[tuple[str, ...], msgspec.Meta(min_length=2, max_length=5)]
    right: Annotated[int, msgspec.Meta(ge=1)]
    why: str = ""

    @property
    def said(self) -> str:
        """The right answer, and why."""
        return f"{self.answers[self.right - 1]} {self.why}".rstrip()

    def __post_init__(self) -> None:
        if self.right > len(self.answers):
            raise ValueError(f"right must be from 1 to {len(self.answers)}")


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A page.

    Attributes:
        before, after: HTML, shown until its run is over, and then; the second has places for figures.
    """

    title: str
    before: str = ""
    after: str = ""
    run: Run | None = None
    guess: Guess | None = None
    questions: tuple[Question, ...] = ()


class Lesson(msgspec.Struct, frozen=True, kw_only=True):
    """What a file says.

    Attributes:
        workload: the name of the one that it is for.
        settings: by whose full batches shares of the capacity are meant.
        recording: the name of a file beside the lesson's, which is played where no service runs; empty: none.
        steps: the first says what it is about, and neither runs nor asks.
    """

    title: str
    workload: str
    settings: Settings
    recording: str
    steps: tuple[Step, ...]

    def run_after(self, place: int) -> Run | None:
        """The run of the step after this one."""
        return self.steps[place + 1].run if place + 1 < len(self.steps) else None


class _Front(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    lesson: Annotated[str, msgspec.Meta(min_length=1)]
    workload: str = TEXT.name
    settings: dict[str, Any] = {}
    load: dict[str, Any] = {}
    recording: str = ""


class _Run(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    settings: dict[str, Any] = {}
    load: dict[str, Any] | Literal["none"] = {}
    for_s: Annotated[float, msgspec.Meta(ge=1, le=120)] = 25.0


TEMPLATE: Final = """\
---
lesson: My lesson
settings: {max_batch_size: 16, batch_wait_timeout_s: 0.05}
load: {pattern: poisson, share: 60 %, max_tokens: 24}
---

What it is about, in two or three sentences.

## At 60 % of the capacity

What to look at while it runs.

```run
for_s: 25
```

{requests_per_s} of {capacity} requests/s were answered, 95 of 100 within {p95_s}.

## Where will p95 land?

Next the load rises to 90 % of the capacity.

```guess
figure: p95_s
```

## At 90 % of the capacity

```run
load: {share: 90 %}
for_s: 30
```

p95 went from {before.p95_s} to {p95_s}. Say why in one sentence.

## A question

```question
ask: What grew most?
answers: [The batches, The queue]
right: 2
why: Say why in one sentence.
```
"""


def shipped() -> dict[str, Path]:
    """The lessons that come with the program, by their titles, in order."""
    return {read(path).title: path for path in sorted(FOLDER.glob(f"*{SUFFIX}"))}


def begun(path: Path) -> Path:
    """A new lesson to go on from; raises `UserError` where there is a file already."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(TEMPLATE)
    except OSError as error:
        raise UserError(f"{path} could not be written: {error.strerror or error}.") from error
    return path


def path_of(word: str) -> Path:
    """The file that `word` names: a path, or the number or the name of one that comes with the program."""
    found = [path for path in FOLDER.glob(f"*{SUFFIX}") if word in (path.stem, path.stem.partition("-")[0])]
    return found[0] if found and not Path(word).exists() else Path(word)


def read(path: Path) -> Lesson:
    """Read a lesson; raises `LessonError`, or `UserError` where there is no such text."""
    try:
        content = path.read_bytes()[: MOST_BYTES + 1]
    except OSError as error:
        raise UserError(f"Could not open {path}: {error.strerror or error}.") from error
    if len(content) > MOST_BYTES:
        raise UserError(f"{path} is too long for a lesson: up to {MOST_BYTES:,} bytes are read.")
    try:
        return parse(content.decode(), path.name)
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is no text in UTF-8.") from error


def parse(text: str, name: str) -> Lesson:
    """The lesson that `text` spells; `name` is what errors call it."""
    text = text.replace("\r\n", "\n")
    matched = _FRONT.match(text)
    if matched is None:
        raise LessonError(name, 1, "A lesson begins with a line ---, its front part, and a line --- again.")
    front = _Block(name, matched[1], first_line=2)
    said = front.read(_Front)
    settings, load = front.settings(Settings(), said.settings), front.load({}, said.load)
    front.lesson_load(load)
    reader = _Steps(name, text[: matched.end()].count("\n"), settings, load)
    steps = reader.read(text[matched.end() :], said.lesson)
    return Lesson(title=said.lesson, workload=said.workload, settings=settings, recording=said.recording, steps=steps)


class _Loader(yaml.SafeLoader):
    """Takes "yes", "no", "on" and "off" for words, as YAML 1.2 does: they are answers of questions."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:bool"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("true|false"), list("tf"))


class _Block:
    """YAML at a place of the file, whose errors name the line."""

    def __init__(self, name: str, text: str, first_line: int) -> None:
        self._name, self._text, self._first_line = name, text, first_line
        try:
            self._node = yaml.compose(text, Loader=_Loader)
            self._data = yaml.load(text, Loader=_Loader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            raise self._error(mark.line if mark else 0, f"no YAML: {error.problem}.") from error
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise self._error(0, f"no YAML: {error}.") from error

    def read(self, kind: type[T]) -> T:
        try:
            return msgspec.convert({} if self._data is None else self._data, kind)
        except msgspec.ValidationError as error:
            what, _, where = str(error).partition(" - at `$")
            path = [key or int(index) for key, index in _PATH.findall(where)]
            path += _UNKNOWN.findall(what)
            raise self._error(self._line_of(path), f"{what}.") from error

    def settings(self, before: Settings, changes: Mapping[str, object]) -> Settings:
        values = {name: setting_value(name, each) if isinstance(each, str) else each for name, each in changes.items()}
        try:
            return before.revised(values)
        except SettingError as error:
            raise self._error(self._line_of(["settings", error.field]), f"{error.field}: {error.rule}") from error

    def load(self, before: Mapping[str, object], changes: Mapping[str, object] | Literal["none"]) -> dict[str, object]:
        """The fields of the load from here on: what is not named stays; a rate goes with the share of it, or back."""
        if changes == "none":
            return {}
        fields = (
            {**before, **changes}
            if changes.get("pattern", before.get("pattern")) == before.get("pattern")
            else {
                **{name: before[name] for name in Asked.__struct_fields__ if name in before},
                **changes,
            }
        )
        for share, rate in SHARES.items():
            for given, other in ((share, rate), (rate, share)):
                if given in changes:
                    fields.pop(other, None)
        return fields

    def lesson_load(self, fields: Mapping[str, object]) -> LessonLoad:
        """The load of these fields."""
        if not fields.keys() - set(Asked.__struct_fields__):
            return LessonLoad(pattern=None)
        shares = {rate: fields[share] for share, rate in SHARES.items() if share in fields}
        kept = {name: value for name, value in fields.items() if name not in SHARES}
        asked = {name: kept.pop(name) for name in Asked.__struct_fields__ if name in kept}
        try:
            pattern: Pattern = msgspec.convert(
                {**kept, **{name: _shares(each) for name, each in shares.items()}}, Pattern
            )
            unknown = kept.keys() - {"pattern"} - set(pattern.__struct_fields__)
            if unknown:
                raise ValueError(f"a load of this pattern has no {min(unknown)}")
            return LessonLoad(pattern=pattern, is_share=bool(shares), asked=msgspec.convert(asked, Asked))
        except ValueError as error:  # msgspec's are, too
            what = str(error).partition(" - at `$")[0]
            raise self._error(self._line_of(["load"]), f"load: {what}.") from error

    def _error(self, line: int, what: str) -> LessonError:
        return LessonError(self._name, self._first_line + line, what)

    def _line_of(self, path: Sequence[str | int]) -> int:
        """Of what stands at `path`, or of what is nearest above it; counted from 0."""
        node, line = self._node, 0
        for key in path:
            found = _child(node, key)
            if found is None:
                break
            line, node = found
        return line


def _child(node: yaml.Node | None, key: str | int) -> tuple[int, yaml.Node] | None:
    """The line and the value of an entry."""
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            if name.value == key:
                return name.start_mark.line, value
    if isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
        return node.value[key].start_mark.line, node.value[key]
    return None


class _Steps:
    """Reads the steps one by one: settings and load of each are those of before with what it changes."""

    def __init__(self, name: str, lines_before: int, settings: Settings, load: dict[str, object]) -> None:
        self._name, self._lines_before = name, lines_before
        self._settings, self._load = settings, load
        self._markdown = MarkdownIt("commonmark", {"html": False})

    def read(self, body: str, title: str) -> tuple[Step, ...]:
        """The steps; what stands before the first heading is the first."""
        tokens = self._markdown.parse(body)
        begins = [place for place, token in enumerate(tokens) if token.type == "heading_open" and token.tag == "h2"]
        if not begins:
            raise LessonError(self._name, self._lines_before + 1, "A lesson has steps: a line such as ## One by one.")
        if not begins[0]:
            what = "Say before the first step what the lesson is about."
            raise LessonError(self._name, self._lines_before + 1, what)
        ends = [*begins[1:], len(tokens)]
        titles: set[str] = set()
        for begin in begins:
            heading = tokens[begin + 1].content
            if heading in titles:
                raise LessonError(self._name, self._line(tokens[begin]), f"There is a step called {heading!r} already.")
            titles.add(heading)
        first = Step(title=title, before=self._rendered(tokens[: begins[0]]))
        steps = [self._step(tokens[begin:end]) for begin, end in zip(begins, ends, strict=True)]
        for place, step in enumerate(steps):
            if step.guess is not None and (place + 1 == len(steps) or steps[place + 1].run is None):
                raise LessonError(
                    self._name, self._line(tokens[begins[place]]), "A guess is followed by a step that runs."
                )
        return first, *steps

    def _step(self, tokens: Sequence[Token]) -> Step:
        title, rest = tokens[1].content, tokens[3:]
        run: Run | None = None
        guess: Guess | None = None
        questions: list[Question] = []
        shown: tuple[list[Token], list[Token]] = [], []  # before the run, and after it
        for token in rest:
            kind = token.info.strip() if token.type == "fence" else ""
            if kind not in ("run", "guess", "question"):
                self._check_places(token, is_after=run is not None or guess is not None)
                shown[run is not None].append(token)
                continue
            block = _Block(self._name, token.content, self._line(token) + 1)
            if (run or guess) and kind != "question":
                raise LessonError(self._name, self._line(token), "A step has one block that is run or guessed.")
            if kind == "run":
                run = self._run(block)
            elif kind == "guess":
                guess = block.read(Guess)
            else:
                questions.append(block.read(Question))
        before, after = (self._rendered(each) for each in shown)
        return Step(title=title, before=before, after=after, run=run, guess=guess, questions=tuple(questions))

    def _run(self, block: _Block) -> Run:
        said = block.read(_Run)
        self._settings = block.settings(self._settings, said.settings)
        self._load = block.load(self._load, said.load)
        return Run(settings=self._settings, load=block.lesson_load(self._load), for_s=said.for_s)

    def _check_places(self, token: Token, is_after: bool) -> None:
        for _before, name in _PLACE.findall(token.content) if token.type == "inline" else ():
            if name not in REGISTER and name != CAPACITY:
                known = ", ".join([*REGISTER, CAPACITY])
                raise LessonError(self._name, self._line(token), f"There is no figure {name}. There are {known}.")

    def _rendered(self, tokens: Sequence[Token]) -> str:
        return str(self._markdown.renderer.render(tokens, self._markdown.options, {}))

    def _line(self, token: Token) -> int:
        return self._lines_before + (token.map[0] if token.map else 0) + 1


def filled(html: str, now: Figures | None, before: Figures | None, capacity_per_s: float | None) -> str:
    """The text with figures in its places: of the last run, and after `before.` of the one before that.

    >>> filled("{before.requests_per_s}, then {requests_per_s} of {capacity}", Figures(requests_per_s=9.0), None, 14.5)
    '–, then 9.0 of 14.5'
    """
    known, earlier = (_written(each or UNKNOWN_FIGURES, capacity_per_s) for each in (now, before))
    return _PLACE.sub(lambda place: (earlier if place[1] else known)[place[2]], html)


def lesson_page(lesson: Lesson, recording: Recording) -> str:
    """The lesson as one HTML file, with a player for its recording."""
    stretches = {each.text: each for each in recording.bookmarks}
    history, steps = recording.history, []
    now, before = None, None
    capacity_per_s: float | None = None
    for step in lesson.steps:
        stretch = stretches.get(step.title)
        if step.run is not None and stretch is not None:
            before, now = now, figures(history, stretch.end_s)
            pattern = history.statuses.pattern_at(stretch.end_s)
            capacity_per_s = capacity_per_s or step.run.load.capacity_at(pattern)
        html = filled(step.before + step.after, now, before, capacity_per_s)
        html += "".join(_QUESTION.format(each.ask, _ANSWERS.join(each.answers), each.said) for each in step.questions)
        ends = (None, None) if stretch is None else (stretch.start_s, stretch.end_s)
        steps.append(PageStep(step.title, html, *ends))
    return player_page(recording, lesson.title, steps)


def _written(known: Figures, capacity_per_s: float | None) -> dict[str, str]:
    found = numbers(known)
    written = {key: number if number == UNKNOWN else f"{number} {REGISTER[key].unit}" for key, number in found.items()}
    return {
        **{key: each.rstrip() for key, each in written.items()},
        CAPACITY: REGISTER["requests_per_s"].number(capacity_per_s),
    }


def _times(rates: float | tuple[float, ...], factor: float) -> float | tuple[float, ...]:
    return (
        tuple(significant(each * factor) for each in rates) if isinstance(rates, tuple) else significant(rates * factor)
    )


def _listed(rates: float | tuple[float, ...]) -> Iterator[float]:
    yield from rates if isinstance(rates, tuple) else (rates,)


def _shares(value: object) -> object:
    """
    >>> _shares("60 %"), _shares(0.9), _shares(["30 %", "90%"])
    (0.6, 0.9, [0.3, 0.9])
    """
    if isinstance(value, list):
        return [_shares(each) for each in value]
    if isinstance(value, str) and value.endswith("%"):
        return parse_number(value.removesuffix("%").strip()) / 100
    return value
