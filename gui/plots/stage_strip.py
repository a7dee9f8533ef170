"""The stages of a request as a bar, end to end; with their seconds below it where it is one request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from PySide6.QtCore import QRectF, QSize
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from gui.look import tokens
from gui.look.theme import colour, current
from gui.look.tokens import Palette
from gui.plots.paint import blended, bold, draw_text, draw_text_before, font, swatch_rect
from service.analysis.observed.stages import STAGES, Stage
from service.messages.settings import ReleaseReason

GREYS: Final = {"load_lag": "t2", "network_in": "t3", "admission": "t2", "delivery": "t3"}


def stage_inks(palette: Palette, reason: ReleaseReason | None = None) -> tuple[QColor, ...]:
    """In the order of `STAGES`; running in the colour of the release reason where it is that of one batch."""
    running = palette.running if reason is None else palette.release_reasons[reason]
    inks = {
        **{name: colour(getattr(palette, role)) for name, role in GREYS.items()},
        "waiting": colour(palette.waiting),
        "sealed": colour(palette.formed),
        "prefill": blended(running, palette.plot, tokens.PREFILL_ALPHA),
        "decode": colour(running),
    }
    return tuple(inks[stage.name] for stage in STAGES)


def segments(spans_s: Sequence[float], left: float, pixels_per_s: float) -> list[tuple[int, int]]:
    """Where each stage begins and ends, in whole pixels; one too short to be seen has no width.

    >>> segments([0.0, 0.5, 1.5], left=10, pixels_per_s=20)
    [(10, 10), (10, 20), (20, 50)]
    """
    edges, at = [], 0.0
    for span_s in spans_s:
        begun, at = at, at + span_s
        edges.append((round(left + begun * pixels_per_s), round(left + at * pixels_per_s)))
    return edges


def paint_stages(
    painter: QPainter, placed: Sequence[tuple[int, int]], top: float, height: float, inks: Sequence[QColor]
) -> None:
    """The bar; neighbours are a pixel apart where both have room for it."""
    for (left, right), ink in zip(placed, inks, strict=True):
        if right > left:
            gap = tokens.BAR_GAP if right - left > 2 * tokens.BAR_GAP else 0
            painter.fillRect(QRectF(left, top, right - left - gap, height), ink)


SHOWN_S = 0.0005  # what is shorter reads as nothing


class StageStrip(QWidget):
    """Running is in the colour of why its batch was released, as in the timeline."""

    def __init__(self) -> None:
        super().__init__()
        self._stages: Sequence[Stage] = STAGES
        self._spans_s: Sequence[float] = ()
        self._reason: ReleaseReason | None = None
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setFixedHeight(
            tokens.STAGE_STRIP + tokens.GAP_2 + (len(STAGES) + 1) * tokens.STAGE_STRIP_LINE + tokens.HAIRLINE
        )

    @property
    def lines(self) -> tuple[tuple[str, str], ...]:
        """What it says, as pairs of left and right: the stages, then their sum."""
        spans = [(stage.title, f"{span:.3f} s") for stage, span in zip(self._stages, self._spans_s, strict=False)]
        return (*spans, ("Latency", f"{sum(self._spans_s):.3f} s")) if spans else ()

    def show_stages(self, stages: Sequence[Stage], spans_s: Sequence[float], reason: ReleaseReason | None) -> None:
        if (stages, spans_s, reason) != (self._stages, self._spans_s, self._reason):
            self._stages, self._spans_s, self._reason = stages, spans_s, reason
            self.setAccessibleName(", ".join(f"{name} {value}" for name, value in self.lines))
            self.update()

    def sizeHint(self) -> QSize:
        return QSize(0, self.height())

    def paintEvent(self, _event: QPaintEvent) -> None:
        total_s = sum(self._spans_s)
        if not total_s:
            return
        painter, palette = QPainter(self), current()
        inks = stage_inks(palette, self._reason)
        paint_stages(painter, segments(self._spans_s, 0.0, self.width() / total_s), 0.0, tokens.STAGE_STRIP, inks)
        middle = tokens.STAGE_STRIP + tokens.GAP_2 + tokens.STAGE_STRIP_LINE / 2
        for (name, value), span_s, ink in zip(self.lines, self._spans_s, inks, strict=False):
            painter.fillRect(swatch_rect(0, middle), ink)
            draw_text(painter, tokens.LEGEND_SWATCH + tokens.GAP_2, middle, name, font(tokens.FONT_TEXT), palette.t2)
            value_ink = palette.t1 if span_s >= SHOWN_S else palette.t3
            draw_text_before(painter, self.width(), middle, value, font(tokens.FONT_TEXT), value_ink)
            middle += tokens.STAGE_STRIP_LINE
        line_y = round(middle - tokens.STAGE_STRIP_LINE / 2)
        painter.fillRect(0, line_y, self.width(), tokens.HAIRLINE, colour(palette.line))
        name, value = self.lines[-1]
        draw_text(painter, 0, middle + tokens.HAIRLINE, name, bold(tokens.FONT_TEXT), palette.t1)
        draw_text_before(painter, self.width(), middle + tokens.HAIRLINE, value, bold(tokens.FONT_TEXT), palette.t1)
        painter.end()
