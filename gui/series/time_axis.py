"""The x axis: how far back, or the time of day where the plots stand still."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from gui.series.time_range import TimeRange
from service.messages.text import clock_text

STEPS_S: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)
MOST_TICKS: Final = 6
MINUTE_S: Final = 60.0
STEP_AHEAD_S: Final = 10


@dataclass(frozen=True)
class Tick:
    """A text at a moment."""

    at_s: float
    text: str


def relative_ticks(view: TimeRange, most: int = MOST_TICKS) -> tuple[Tick, ...]:
    """How long ago, counted from the right edge, which is now.

    >>> [tick.text for tick in relative_ticks(TimeRange(0.0, 60.0, 600))]
    ['−50 s', '−40 s', '−30 s', '−20 s', '−10 s', 'now']
    """
    step_s = _step(view.span_s, most)
    count = math.ceil(view.span_s / step_s - 1e-9)
    return tuple(Tick(view.end_s - n * step_s, _ago(n * step_s, step_s)) for n in range(count - 1, -1, -1))


def ahead_ticks(view: TimeRange, ahead_s: float) -> tuple[Tick, ...]:
    """How long from now, in what is shown after the view.

    >>> [tick.text for tick in ahead_ticks(TimeRange(0.0, 60.0, 600), 30.0)]
    ['+10 s', '+20 s', '+30 s']
    """
    return tuple(Tick(view.end_s + s, f"+{s} s") for s in range(STEP_AHEAD_S, int(ahead_s) + 1, STEP_AHEAD_S))


def ticks_since(view: TimeRange, origin_s: float, most: int = MOST_TICKS) -> tuple[Tick, ...]:
    """How long after a moment, at round distances from it.

    >>> [tick.text for tick in ticks_since(TimeRange(5.0, 45.0, 400), 5.0)]
    ['0 s', '10 s', '20 s', '30 s', '40 s']
    """
    step_s = _step(view.span_s, most)
    first = math.ceil((view.start_s - origin_s) / step_s - 1e-9)
    last = math.floor((view.end_s - origin_s) / step_s + 1e-9)
    return tuple(Tick(origin_s + n * step_s, f"{n * step_s:.{_decimals(step_s)}f} s") for n in range(first, last + 1))


def clock_ticks(view: TimeRange, wall_offset_s: float, most: int = MOST_TICKS) -> tuple[Tick, ...]:
    """The time of day at round moments; `wall_offset_s` leads from the range's clock to seconds since 1970."""
    step_s = _step(view.span_s, most)
    first = math.ceil((view.start_s + wall_offset_s) / step_s)
    last = math.floor((view.end_s + wall_offset_s) / step_s)
    return tuple(
        Tick(n * step_s - wall_offset_s, clock_text(n * step_s, _decimals(step_s))) for n in range(first, last + 1)
    )


def chip_text(at_s: float, view: TimeRange) -> str:
    """The moment under the pointer, as far back from the right edge as it is.

    >>> chip_text(43.1, TimeRange(0.0, 60.0, 600))
    '−16.9 s'
    """
    ago_s = max(view.end_s - at_s, 0.0)
    if ago_s < 2 * MINUTE_S:
        return "now" if ago_s < view.pixel_s else f"−{ago_s:.1f} s"
    return f"−{int(ago_s // MINUTE_S)} min {int(ago_s % MINUTE_S):02d} s"


def _step(span_s: float, most: int) -> float:
    return next((step for step in STEPS_S if span_s / step <= most + 1e-9), STEPS_S[-1])


def _decimals(step_s: float) -> int:
    return 1 if step_s < 1 else 0


def _ago(ago_s: float, step_s: float) -> str:
    if ago_s == 0:
        return "now"
    return f"−{ago_s / MINUTE_S:.0f} min" if step_s >= MINUTE_S else f"−{ago_s:.{_decimals(step_s)}f} s"
