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
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

from service.analysis.lesson.lesson import (
    CAPACITY,
    PLACE,
    SHARES,
    Asked,
    Guess,
    Lesson,
    LessonLoad,
    Question,
    Run,
    Step,
)
from service.analysis.observed.register import REGISTER
from service.messages.load import Pattern
from service.messages.settings import SettingError, Settings, setting_value
from service.messages.text import UserError, parse_number
from service.messages.workload import TEXT

SUFFIX: Final = ".md"
FOLDER: Final = Path(__file__).parents[3] / "assets" / "lessons"
MOST_BYTES: Final = 200_000

_FRONT: Final = re.compile(r"---\n(.*?\n)---\n", re.DOTALL)
_PATH: Final = re.compile(r"(?:\.(\w+))|(?:\[(\d+)\])")
_UNKNOWN: Final = re.compile(r"unknown field `(\w+)`")
T = TypeVar("T")


class LessonError(UserError):
    """A lesson that cannot be read; the text names the file, the line and what is to be there."""

    def __init__(self, name: str, line: int, what: str) -> None:
        super().__init__(f"{name}, line {line}: {what}")
        self.line = line


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


@cache
def shipped() -> Mapping[str, Path]:
    """The lessons that come with the program, by their titles, in order."""
    return {read(path).title: path for path in sorted(FOLDER.glob(f"*{SUFFIX}"))}


def begun(path: Path) -> Path:
    """A new lesson to go on from; raises `UserError` where there is a file already, or no lesson by that name."""
    if path.suffix != SUFFIX:
        raise UserError(f"The name of a lesson ends in {SUFFIX}: {path.with_suffix(SUFFIX)}, for example.")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(TEMPLATE)
    except OSError as error:
        raise UserError(f"{path} could not be written: {error.strerror or error}.") from error
    return path


def number_of(path: Path) -> str:
    """The number of a lesson that comes with the program, with which the name of its file begins."""
    return path.stem.partition("-")[0]


def path_of(word: str) -> Path:
    """The file that `word` names: a path, or the number or the name of one that comes with the program."""
    found = [path for path in FOLDER.glob(f"*{SUFFIX}") if word in (path.stem, number_of(path))]
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
                self._check_places(token)
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

    def _check_places(self, token: Token) -> None:
        for _before, name in PLACE.findall(token.content) if token.type == "inline" else ():
            if name not in REGISTER and name != CAPACITY:
                known = ", ".join([*REGISTER, CAPACITY])
                raise LessonError(self._name, self._line(token), f"There is no figure {name}. There are {known}.")

    def _rendered(self, tokens: Sequence[Token]) -> str:
        return str(self._markdown.renderer.render(tokens, self._markdown.options, {}))

    def _line(self, token: Token) -> int:
        return self._lines_before + (token.map[0] if token.map else 0) + 1


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
