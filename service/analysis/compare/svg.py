"""The plots of a report, as SVG: cumulative latency, ratios with their intervals, throughput over latency."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from xml.etree.ElementTree import Element, tostring

import numpy as np
from markupsafe import Markup

from service.analysis.compare.comparison import Comparison, Difference
from service.analysis.compare.run import FIGURE_BY_NAME, pooled
from service.analysis.compare.sweep import Sweep
from service.analysis.observed.columns import Floats

MOST_TICKS: Final = 6
NARROW: Final = 4.0  # below that, a logarithmic axis has too few powers of ten and their halves
LOG_FROM: Final = 30.0  # the largest value over one of the smallest
WIDTH: Final = 720
HEIGHT: Final = 320
ROW: Final = 34
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 16, 40
NAMES_WIDTH: Final = 150
COLUMNS: Final = 200


@dataclass(frozen=True)
class Axis:
    """A mapping from values to pixels."""

    low: float
    high: float
    begin: float
    end: float
    is_log: bool = False

    def at(self, value: float) -> float:
        if self.is_log:
            share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.begin + share * (self.end - self.begin)

    def values(self, count: int) -> list[float]:
        """`count` + 1 values at even distances on the axis."""
        spaced = np.geomspace if self.is_log else np.linspace
        values: list[float] = spaced(self.low, self.high, count + 1).tolist()
        return values

    def ticks(self) -> list[float]:
        if not self.is_log or self.high < NARROW * self.low:
            step = round_step(self.high - self.low)
            return [n * step for n in range(math.ceil(self.low / step), math.floor(self.high / step + 1e-9) + 1)]
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        rounds = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
        return [value for value in rounds if self.low * 0.999 <= value <= self.high * 1.001]


def round_step(span: float) -> float:
    """A round step that cuts `span` into at most six.

    >>> round_step(2.0), round_step(47)
    (0.5, 10.0)
    """
    power = 10.0 ** math.floor(math.log10(span / MOST_TICKS))
    return next(digit * power for digit in (1.0, 2.0, 5.0, 10.0) if span / (digit * power) <= MOST_TICKS)


def seconds_axis(values: Floats, begin: float, end: float) -> Axis:
    """An axis for these times: logarithmic where they spread over more than a factor of 30."""
    low, high = float(np.percentile(values, 2)), float(values.max()) * 1.02
    if high < LOG_FROM * low:
        return Axis(0.0, high, begin, end)
    return Axis(low, high, begin, end, is_log=True)


def cumulative_plot(comparison: Comparison) -> Markup:
    """The share of requests answered within each time, and the gap between A and B."""
    a, b = (np.sort(pooled(runs)) for runs in (comparison.a, comparison.b))
    x = seconds_axis(np.concatenate((a, b)), LEFT, WIDTH - RIGHT)
    y = Axis(0.0, 100.0, HEIGHT - BOTTOM, TOP)
    values = x.values(COLUMNS)
    xs = [x.at(value) for value in values]
    a_shares, b_shares = (np.searchsorted(each, values, side="right") / max(len(each), 1) for each in (a, b))
    a_ys, b_ys = ([y.at(100.0 * float(share)) for share in shares] for shares in (a_shares, b_shares))
    return _svg(
        HEIGHT,
        "Cumulative latency of A and B",
        *_grid(x, y, y_unit=" %"),
        _element("polygon", points=_points(xs + xs[::-1], a_ys + b_ys[::-1]), class_="gap"),
        _element("polyline", points=_points(xs, a_ys), class_="a"),
        _element("polyline", points=_points(xs, b_ys), class_="b"),
    )


def ratio_plot(differences: Sequence[Difference], decisive: str) -> Markup:
    """Each figure of B over A's, with its interval; the line in the middle is "the same"."""
    height = TOP + ROW * len(differences) + BOTTOM
    reach = 1.1 * max(max(each.high, 1 / each.low) for each in differences)
    x = Axis(1 / reach, reach, NAMES_WIDTH, WIDTH - RIGHT, is_log=True)
    marks: list[Element] = []
    for row, each in enumerate(differences):
        y = TOP + ROW * (row + 0.5)
        kind = "decisive" if each.figure == decisive else "interval"
        marks += [
            _element("text", FIGURE_BY_NAME[each.figure].title, x=NAMES_WIDTH - 12, y=y + 4, text_anchor="end"),
            _element("line", x1=x.at(each.low), x2=x.at(each.high), y1=y, y2=y, class_=kind),
            _element("circle", cx=x.at(each.ratio), cy=y, r=4, class_=kind),
        ]
    same = _element("line", x1=x.at(1.0), x2=x.at(1.0), y1=TOP, y2=height - BOTTOM, class_="same")
    ticks = [_x_tick(x.at(value), height, f"{value:g}") for value in x.ticks()]
    return _svg(height, "B over A, with 95 % confidence intervals", *ticks, same, *marks)


def sweep_plot(sweep: Sweep) -> Markup:
    """A dot a setting: throughput over latency, the Pareto front as a line, the objective, the best."""
    dots = sweep.measured()
    limit_s = sweep.limit_s
    latencies = [dot.latency_s for dot in dots] + ([] if limit_s is None else [limit_s])
    x = seconds_axis(np.array(latencies), LEFT, WIDTH - RIGHT)
    y = Axis(0.0, 1.15 * max(dot.requests_per_s for dot in dots), HEIGHT - BOTTOM, TOP)
    front, best = sweep.front(), sweep.best()
    at = {dot.place: (x.at(dot.latency_s), y.at(dot.requests_per_s)) for dot in dots}
    marks = [
        _element("polyline", points=_points(*zip(*(at[place] for place in front), strict=True)), class_="front"),
        *[_dot(sweep, place, *at[place], place in front, place == best) for place in sorted(at)],
    ]
    if limit_s is not None:
        line = x.at(limit_s)
        marks.insert(0, _element("line", x1=line, x2=line, y1=TOP, y2=HEIGHT - BOTTOM, class_="objective"))
        marks.insert(
            1,
            _element(
                "text",
                f"{FIGURE_BY_NAME[sweep.latency].title} ≤ {limit_s:g} s",
                x=line - 6,
                y=TOP + 10,
                text_anchor="end",
                class_="note",
            ),
        )
    titles = (FIGURE_BY_NAME[sweep.latency].title, FIGURE_BY_NAME["requests_per_s"].title)
    return _svg(
        HEIGHT,
        f"{titles[1]} over {titles[0]}",
        *_grid(x, y, y_unit=""),
        *marks,
    )


def _dot(sweep: Sweep, place: int, x: float, y: float, is_front: bool, is_best: bool) -> Element:
    kind = "best" if is_best else "on-front" if is_front else "beaten"
    return _element("circle", _element("title", sweep.label(place)), cx=x, cy=y, r=7 if is_best else 4, class_=kind)


def _grid(x: Axis, y: Axis, y_unit: str) -> list[Element]:
    lines = [_x_tick(x.at(value), HEIGHT, f"{value:g} s") for value in x.ticks()]
    for value in y.ticks():
        lines.append(_element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y.at(value), y2=y.at(value), class_="grid"))
        lines.append(_element("text", f"{value:g}{y_unit}", x=LEFT - 8, y=y.at(value) + 4, text_anchor="end"))
    return lines


def _x_tick(x: float, height: int, label: str) -> Element:
    return _element(
        "g",
        _element("line", x1=x, x2=x, y1=TOP, y2=height - BOTTOM, class_="grid"),
        _element("text", label, x=x, y=height - BOTTOM + 18, text_anchor="middle"),
    )


def _svg(height: int, title: str, *children: Element) -> Markup:
    attributes = {"viewBox": f"0 0 {WIDTH} {height}", "role": "img", "xmlns": "http://www.w3.org/2000/svg"}
    svg = _element("svg", _element("title", title), *children, **attributes)
    return Markup(tostring(svg, encoding="unicode", method="html"))


def _element(tag: str, *children: Element | str, **attributes: object) -> Element:
    """`tag` with its children; `class_` and `text_anchor` become `class` and `text-anchor`."""
    made = Element(tag)
    for name, value in attributes.items():
        text = f"{value:.1f}" if isinstance(value, float) else str(value)
        made.set(name.rstrip("_").replace("_", "-"), text)
    for child in children:
        if isinstance(child, str):
            made.text = child
        else:
            made.append(child)
    return made


def _points(xs: Iterable[float], ys: Iterable[float]) -> str:
    """Coordinates of a polyline or polygon."""
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys, strict=True))
