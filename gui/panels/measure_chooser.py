"""Which time of a request the plots of latency show; it stands in their header."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gui.look import tokens
from gui.look.glossary import MEASURES as MEANINGS
from gui.series.latency import MEASURES
from gui.widgets.segmented import Segmented
from service.messages.workload import TEXT

FORMS: Final = tuple(
    {name: getattr(each, form) for name, each in MEASURES.items()} for form in ("words", "brief", "briefest")
)


class MeasureChooser(Segmented):
    """Hidden where there is nothing to choose: a function answers at once."""

    def __init__(self) -> None:
        super().__init__(list(FORMS[0].items()), "Latency to show", small=True)
        for name, each in MEASURES.items():
            self.set_tip(name, MEANINGS[each.words])

    def offer(self, unit: str) -> None:
        """Show the chooser only for a workload whose unit is tokens."""
        self.setVisible(unit == TEXT.unit)

    def take(self, left: int, rooms: Sequence[int], height: int) -> None:
        """Stand at `left` in a header of this height.

        As many words stand there as fit into the first of these rooms that is wide enough for the fewest.
        """
        padding = len(MEASURES) * tokens.SEGMENT_PADDING_SMALL + 2
        metrics = self.button(self.key).fontMetrics()
        widths = [sum(map(metrics.horizontalAdvance, form.values())) + padding for form in FORMS]
        room = next((each for each in rooms if widths[-1] <= each), rooms[-1])
        chosen = next((n for n, width in enumerate(widths) if width <= room), len(FORMS) - 1)
        self.setGeometry(left, (height - self.height()) // 2, widths[chosen], self.height())
        for name, text in FORMS[chosen].items():
            self.button(name).setText(text)
