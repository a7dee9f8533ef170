"""The colour of each stage of a request, and a bar of them end to end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from PySide6.QtCore import QRectF
from PySide6.QtGui import QColor, QPainter

from gui.look.tokens import BAR_GAP, PREFILL_ALPHA, Palette
from gui.plots.paint import blended
from service.analysis.observed.stages import STAGES
from service.messages.settings import ReleaseReason

GREYS: Final = {"load_lag": "t2", "network_in": "t3", "admission": "t2", "delivery": "t3"}


def stage_inks(palette: Palette, reason: ReleaseReason | None = None) -> tuple[QColor, ...]:
    """In the order of `STAGES`; running in the colour of the release reason where it is that of one batch."""
    running = palette.running if reason is None else palette.release_reasons[reason]
    inks = {
        **{name: QColor(getattr(palette, role)) for name, role in GREYS.items()},
        "waiting": QColor(palette.waiting),
        "sealed": QColor(palette.formed),
        "prefill": blended(running, palette.plot, PREFILL_ALPHA),
        "decode": QColor(running),
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
            gap = BAR_GAP if right - left > 2 * BAR_GAP else 0
            painter.fillRect(QRectF(left, top, right - left - gap, height), ink)
