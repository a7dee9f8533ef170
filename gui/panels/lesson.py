"""The right column while a lesson is taken: the page of a step, what is asked in it, and all steps below."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from PySide6.QtCore import QPointF, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QAbstractButton, QBoxLayout, QLabel, QLayout, QSizePolicy, QWidget

from gui.look import tokens
from gui.look.theme import colour, current, font, scaled
from gui.panels.section import section_head
from gui.series.scale import axis_for
from gui.widgets.buttons import Button
from gui.widgets.glyphs import Glyph, Shape
from gui.widgets.labels import ElidedLabel, draw_text, label, set_role
from gui.widgets.layouts import box, column, hairline, row, scrolled
from gui.widgets.number_field import NumberField
from service.analysis.lesson.lesson import Question
from service.analysis.observed.register import REGISTER
from service.analysis.predict.predict import Estimate
from service.messages.settings import Bounds

StepState: TypeAlias = Literal["done", "present", "ahead"]
SHAPES: Final[dict[str, tuple[Shape, str]]] = {
    "done": ("check", "t2"),
    "present": ("dot", "t1"),
    "ahead": ("circle", "border"),
}
BOUNDS: Final = Bounds(0, 100_000, integral=False)
ROOM: Final = 1.25  # times the largest value, that the axis shows
MOST_TICKS: Final = 4
LEAST_STEP: Final = 0.01


@dataclass(frozen=True)
class Reveal:
    """What was guessed, what was predicted and what came, of one figure."""

    figure: str
    guess: float
    predicted: Estimate | None
    measured: float | None

    def written(self, value: float | None) -> str:
        return REGISTER[self.figure].with_unit(value)

    @property
    def sentence(self) -> str:
        """How far the guess was off.

        >>> Reveal("p95_s", 4.0, None, 2.46).sentence
        'Your guess was 1.54 s too high.'
        >>> Reveal("mean_batch", 9.0, None, 9.04).sentence, Reveal("p95_s", 4.0, None, None).sentence
        ('Your guess was right.', 'Too little was answered to say how good your guess was.')
        """
        if self.measured is None:
            return "Too little was answered to say how good your guess was."
        off = self.guess - self.measured
        if self.written(abs(off)) == self.written(0.0) or abs(off) < 0.02 * self.measured:
            return "Your guess was right."
        return f"Your guess was {self.written(abs(off))} too {'high' if off > 0 else 'low'}."


@dataclass(frozen=True)
class Page:
    """What is shown of a lesson.

    Attributes:
        asks: the figure that is to be guessed, and the guess so far.
        answers: by the number of a question the answer that was given, from 1 on.
        remark: what runs.
        waits_s: until the run is over; ``None`` where nothing runs.
        next_hint: what Next does beside going on.
        why_not: why it cannot go on.
    """

    lesson: str
    steps: tuple[str, ...]
    place: int
    text: str
    remark: str = ""
    asks: tuple[str, float] | None = None
    reveal: Reveal | None = None
    questions: tuple[Question, ...] = ()
    answers: tuple[tuple[int, int], ...] = ()
    waits_s: float | None = None
    next_hint: str = ""
    why_not: str = ""


class LessonPanel(QWidget):
    next_wanted = Signal()
    back_wanted = Signal()
    end_wanted = Signal()
    guessed = Signal(float)
    answered = Signal(int, int)  # the number of a question, from 0 on, and of its answer, from 1 on

    def __init__(self) -> None:
        super().__init__()
        self._page: Page | None = None
        self._field: NumberField | None = None
        self.end_button = Button("End lesson", role="link", tip="End it, and put the settings back")
        self._bars = _Bars()
        self._count, self._lesson = label("", "caption"), ElidedLabel("", "caption")
        self._title, self._text = label("", "heading", wrap=True), _rich()
        self._remark = label("", "caption", wrap=True)
        self._asked = column(gap=tokens.GAP_3)  # what the present page asks and reveals
        self._steps = column(gap=tokens.GAP_2)
        self._why_not = label("", "caption", wrap=True)
        self.back_button = Button("Back", large=True, tip="The step before (Alt+Left)")
        self.next_button = Button("Next", "ph.play-fill", "primary", tip="The next step (Enter)")
        self._lay_out()
        self.end_button.clicked.connect(self.end_wanted)
        self.back_button.clicked.connect(self.back_wanted)
        self.next_button.clicked.connect(self.next_wanted)

    def show_page(self, page: Page) -> bool:
        """Show this; what the user types is left alone as long as the page asks the same.

        Returns whether anything of it was made anew.
        """
        before, self._page = self._page, page
        turns = before is None or (before.lesson, before.steps, before.place) != (page.lesson, page.steps, page.place)
        self._bars.show_place(page.place, len(page.steps))
        self._count.setText(f"{page.place + 1} of {len(page.steps)}")
        self._lesson.setText(page.lesson)
        self._title.setText(page.steps[page.place])
        self._text.setText(page.text)
        self._text.setVisible(bool(page.text))
        self._remark.setText(page.remark)
        self._remark.setVisible(bool(page.remark))
        is_other = turns or before is None or _parts(before) != _parts(page)
        if is_other:
            self._show_asked(page)
        if self._field is not None and page.asks is not None:
            self._field.set_number(page.asks[1])
        if turns:
            self._show_steps(page)
            self._scroll.verticalScrollBar().setValue(0)
        self.back_button.setEnabled(page.place > 0 and page.waits_s is None)
        self._show_next(page)
        if turns:
            (self._field or self.next_button).setFocus()
        return is_other

    def keyPressEvent(self, event: QKeyEvent) -> None:
        is_alt = bool(event.modifiers() & Qt.KeyboardModifier.AltModifier)
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.next_button.click()
        elif event.key() == Qt.Key.Key_Left and is_alt:
            self.back_button.click()
        else:
            super().keyPressEvent(event)

    def _lay_out(self) -> None:
        padding = tokens.PANEL_PADDING
        sides = (padding, 0, padding, 0)
        self._count.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self._lesson.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        top = column(
            section_head("Lesson", self.end_button),
            self._bars,
            row(self._count, self._lesson, stretch=self._lesson),
            gap=tokens.GAP_2,
            margins=(padding, tokens.SECTION_TOP, padding, tokens.GAP_3),
        )
        page = column(self._title, self._text, self._remark, self._asked, gap=tokens.GAP_3, margins=sides)
        below = column(
            label("Steps", "title"), self._steps, gap=tokens.GAP_2, margins=(padding, padding, padding, padding)
        )
        self._scroll = scrolled(box(column(page, tokens.GAP_4, hairline(), below, None, gap=0)))
        self.next_button.setFixedHeight(tokens.HEIGHT_PRIMARY)
        self.back_button.setFixedSize(tokens.WIDTH_BACK, tokens.HEIGHT_PRIMARY)
        buttons = row(self.back_button, self.next_button, gap=tokens.GAP_3, stretch=self.next_button)
        foot = column(self._why_not, buttons, gap=tokens.GAP_2, margins=(padding, tokens.GAP_2, padding, padding))
        self.setLayout(column(top, self._scroll, foot, gap=0, stretch=self._scroll))

    def _show_asked(self, page: Page) -> None:
        _clear(self._asked)
        self._field = None
        if page.asks is not None:
            figure, guess = page.asks
            entry = REGISTER[figure]
            field = NumberField(BOUNDS, entry.name, decimals=entry.decimals, unit=entry.unit, width=tokens.WIDTH_GUESS)
            field.set_number(guess)
            field.entered.connect(self.guessed)
            self._field = field
            _add(self._asked, box(row(label(f"{entry.name}, your guess", "name"), None, field)))
        if page.reveal is not None:
            _add(self._asked, label(page.reveal.sentence, "name", wrap=True))
            _add(self._asked, RevealAxis(page.reveal))
        given = dict(page.answers)
        for number, question in enumerate(page.questions):
            _add(self._asked, self._made_question(number, question, given.get(number)))

    def _made_question(self, number: int, question: Question, given: int | None) -> QWidget:
        lines: list[QWidget] = [label(question.ask, "name", wrap=True)]
        for answer, text in enumerate(question.answers, start=1):
            made = Answer(text)
            if given is not None:
                made.reveal(is_right=answer == question.right, is_given=answer == given)
            made.clicked.connect(lambda _checked=False, answer=answer: self.answered.emit(number, answer))
            lines.append(made)
        if given is not None:
            right = "Right." if given == question.right else "Not so."
            lines.append(label(f"{right} {question.why}".rstrip(), "text", wrap=True))
        return box(column(*lines, gap=tokens.GAP_2))

    def _show_steps(self, page: Page) -> None:
        _clear(self._steps)
        for number, title in enumerate(page.steps):
            state: StepState = "done" if number < page.place else "present" if number == page.place else "ahead"
            words = ElidedLabel(title, "text")
            set_role(words, {"done": "text", "present": "strong", "ahead": "dim"}[state])
            _add(self._steps, box(row(Glyph(*SHAPES[state]), words, gap=tokens.GAP_2, stretch=words)))

    def _show_next(self, page: Page) -> None:
        is_last = page.place == len(page.steps) - 1
        runs = page.waits_s is not None
        self.next_button.setText("End lesson" if is_last else "Next")
        self.next_button.set_hint(f"in {page.waits_s:.0f} s" if page.waits_s is not None else page.next_hint)
        self.next_button.set_icon(None if is_last or runs else "ph.play-fill")
        self.next_button.setEnabled(not runs and not page.why_not)
        self._why_not.setText(page.why_not)
        self._why_not.setVisible(bool(page.why_not))


def _rich() -> QLabel:
    """Words in HTML, of which nothing leads out of the window."""
    made = label("", "text", wrap=True)
    made.setTextFormat(Qt.TextFormat.RichText)
    return made


def _add(layout: QBoxLayout, widget: QWidget) -> None:
    """Add it, and show it at once: a layout would do so later."""
    layout.addWidget(widget)
    widget.show()


def _clear(layout: QLayout) -> None:
    while (item := layout.takeAt(0)) is not None:
        if (widget := item.widget()) is not None:
            widget.hide()
            widget.deleteLater()


def _parts(page: Page) -> tuple[object, ...]:
    """What is made anew when it changes."""
    return page.asks and page.asks[0], page.reveal, page.questions, page.answers


class Answer(QAbstractButton):
    """One of the answers of a question."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.setAccessibleName(text)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self._glyph = Glyph("circle", "t3")
        self._words = label(text, "text", wrap=True)
        for each in (self._glyph, self._words):
            each.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self._line = row(self._glyph, self._words, gap=tokens.GAP_2, stretch=self._words)
        self._line.setAlignment(self._glyph, Qt.AlignmentFlag.AlignTop)
        self.setLayout(self._line)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Minimum)

    def reveal(self, is_right: bool, is_given: bool) -> None:
        """Show what it was; it can be given no more."""
        self.setEnabled(False)
        if is_right:
            self._glyph.show_shape("check", "t1")
            set_role(self._words, "name")
        elif is_given:
            self._glyph.show_shape("cross", "t2")

    def sizeHint(self) -> QSize:
        return self._line.sizeHint()

    def hasHeightForWidth(self) -> bool:
        return True

    def heightForWidth(self, width: int) -> int:
        return self._line.heightForWidth(width)

    def paintEvent(self, _event: QPaintEvent) -> None:
        pass  # its parts paint themselves


class _Bars(QWidget):
    """A bar for each step, filled up to the present one."""

    def __init__(self) -> None:
        super().__init__()
        self._place, self._count = 0, 1
        self.setFixedHeight(tokens.PROGRESS_HEIGHT)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName("Steps taken")

    def show_place(self, place: int, count: int) -> None:
        if (place, count) != (self._place, self._count):
            self._place, self._count = place, count
            self.setAccessibleDescription(f"{place + 1} of {count}")
            self.update()

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter = QPainter(self)
        gap = tokens.GAP_2 if self._count <= tokens.PANEL_PADDING else tokens.GAP_HALF
        width = (self.width() - (self._count - 1) * gap) / self._count
        painter.setPen(Qt.PenStyle.NoPen)
        for number in range(self._count):
            painter.setBrush(colour(current().t1 if number <= self._place else current().track))
            painter.drawRect(QRectF(number * (width + gap), 0, width, self.height()))


class RevealAxis(QWidget):
    """Guess, prediction with its band, and what was measured, on one axis."""

    def __init__(self, reveal: Reveal) -> None:
        super().__init__()
        self._reveal = reveal
        rows = 3 if reveal.predicted is not None else 2
        self.setFixedHeight(rows * tokens.HEIGHT_REVEAL + tokens.HEIGHT_REVEAL)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(", ".join(f"{name} {written}" for name, written in self._rows()))

    def _rows(self) -> Sequence[tuple[str, str]]:
        reveal = self._reveal
        predicted = [] if reveal.predicted is None else [("Predicted", reveal.written(reveal.predicted.value))]
        return [("Your guess", reveal.written(reveal.guess)), *predicted, ("Measured", reveal.written(reveal.measured))]

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        reveal, palette, height = self._reveal, current(), tokens.HEIGHT_REVEAL
        band = reveal.predicted
        known = [reveal.guess, reveal.measured or 0.0, 0.0 if band is None else band.high]
        left, right = scaled(tokens.WIDTH_REVEAL_NAME), self.width() - scaled(tokens.WIDTH_REVEAL_VALUE)
        most_ticks = min(MOST_TICKS, max(1, (right - left) // scaled(tokens.WIDTH_REVEAL_TICK)))
        axis = axis_for(ROOM * max(known), most_ticks, LEAST_STEP)
        bottom = height * len(self._rows())

        def x_of(value: float) -> float:
            return left + min(value / axis.top, 1.0) * (right - left)

        for value in axis.ticks:
            x = round(x_of(value)) + 0.5
            painter.setPen(QPen(colour(palette.grid), tokens.HAIRLINE))
            painter.drawLine(QPointF(x, 0), QPointF(x, bottom))
            tick = QRect(round(x) - height, bottom, 2 * height, height)
            caption = font(tokens.FONT_CAPTION)
            draw_text(painter, tick, axis.label(value), caption, palette.t3, Qt.AlignmentFlag.AlignHCenter)
        for number, (name, written) in enumerate(self._rows()):
            line = QRect(0, number * height, self.width(), height)
            draw_text(painter, line, name, font(tokens.FONT_TEXT), palette.t2)
            bold = font(tokens.FONT_TEXT, tokens.WEIGHT_BOLD)
            draw_text(painter, line, written, bold, palette.t1, Qt.AlignmentFlag.AlignRight)
            self._paint_value(painter, name, line.center().y() + 0.5, x_of)

    def _paint_value(self, painter: QPainter, name: str, y: float, x_of: Callable[[float], float]) -> None:
        reveal, palette, half = self._reveal, current(), tokens.GLYPH / 2 - 1
        ink = getattr(palette, {"p50_s": "p50", "p95_s": "p95"}.get(reveal.figure, "t1"))
        if name == "Your guess":
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.setPen(QPen(colour(palette.t1), tokens.STROKE))
            painter.drawEllipse(QPointF(x_of(reveal.guess), y), half, half)
        elif name == "Predicted" and reveal.predicted is not None:
            band = reveal.predicted
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(colour(ink, tokens.GHOST_ALPHA))
            painter.drawRect(QRectF(x_of(band.low), y - half, x_of(band.high) - x_of(band.low), 2 * half))
            painter.fillRect(QRectF(x_of(band.value) - 1, y - half, tokens.LINE_GHOST, 2 * half), colour(ink))
        elif reveal.measured is not None:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(colour(ink))
            painter.drawEllipse(QPointF(x_of(reveal.measured), y), half, half)
