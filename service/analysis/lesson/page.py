"""A lesson with its recording as one HTML file."""

from __future__ import annotations

from typing import Final

from markupsafe import Markup

from service.analysis.lesson.lesson import Lesson, Step, filled
from service.analysis.observed.statistics import figures
from service.analysis.recording.page import PageStep, player_page
from service.analysis.recording.reader import Recording
from service.messages.load import Pattern

_QUESTION: Final = Markup(
    "<p><strong>{}</strong></p><ul><li>{}</li></ul><details><summary>Answer</summary>{}</details>"
)
_ANSWERS: Final = Markup("</li><li>")


def lesson_page(lesson: Lesson, recording: Recording) -> str:
    """The lesson as one HTML file, with a player for its recording."""
    stretches = {each.text: each for each in recording.bookmarks}
    history, steps = recording.history, []
    now, before = None, None

    def pattern_of(step: Step) -> Pattern | None:
        stretch = stretches.get(step.title)
        return None if stretch is None else history.statuses.pattern_at(stretch.end_s)

    capacity_per_s = lesson.capacity_by(pattern_of)
    for step in lesson.steps:
        stretch = stretches.get(step.title)
        if step.run is not None and stretch is not None:
            before, now = now, figures(history, stretch.end_s)
        html = filled(step.before + step.after, now, before, capacity_per_s)
        html += "".join(_QUESTION.format(each.ask, _ANSWERS.join(each.answers), each.said) for each in step.questions)
        ends = (None, None) if stretch is None else (stretch.start_s, stretch.end_s)
        steps.append(PageStep(step.title, html, *ends))
    return player_page(recording, lesson.title, steps)
