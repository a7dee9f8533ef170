"""A recording as one HTML file with a player: plots and timeline move as in the window, without server or network.

The page's form, look and player are in `player.html`, a Jinja2 template; this module gives it the data. Figures are
those that the window shows for the same moments.
"""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePath
from typing import Any, Final

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from service.analysis.observed.batches import REASONS
from service.analysis.observed.columns import Floats
from service.analysis.observed.history import History
from service.analysis.observed.register import REGISTER, STAGES
from service.analysis.observed.requests import SAMPLED, sampled_of, samples_between
from service.analysis.observed.rolling import LEVELS, step_of
from service.analysis.observed.statistics import figures
from service.analysis.recording.reader import Recording
from service.messages.text import UserError

SUFFIX: Final = ".html"
STEP_S: Final = 0.25  # between two moments of which the figures are in the page
MOST_S: Final = 1200.0
SHOWN: Final = (
    *("requests_per_s", "tokens_per_s", "p50_s", "p95_s", "p99_s", "mean_batch", "queue", "failed_share"),
    *STAGES,
)
DIGITS: Final = 4


@dataclass(frozen=True)
class PageStep:
    """A part of what the page tells beside the plots.

    Attributes:
        html: trusted, as it is made of Markdown here.
        start_s, end_s: of the stretch that is played for it, on the service's clock; ``None``: nothing is.
    """

    title: str
    html: str
    start_s: float | None = None
    end_s: float | None = None


def player_page(recording: Recording, title: str, steps: Sequence[PageStep] = ()) -> str:
    """The page; raises `UserError` for a recording that is longer than a page holds."""
    if recording.duration_s > MOST_S:
        raise UserError(
            f"{recording.path} is {recording.duration_s / 60:.0f} min long; a page holds {MOST_S / 60:.0f} min."
        )
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    data = json.dumps(_data(recording.history, recording.duration_s, steps), separators=(",", ":"))
    inert = Markup(data.replace("<", "\\u003c"))  # within it nothing ends the element
    header = recording.header
    recorded = f"recorded {datetime.fromtimestamp(header.recorded_at):%d %b %Y, %H:%M}"
    about = " · ".join(filter(None, (recording.model and PurePath(recording.model).name, header.device, recorded)))
    return environment.get_template("player.html").render(title=title, about=about, has_steps=bool(steps), data=inert)


def _data(history: History, duration_s: float, steps: Sequence[PageStep]) -> dict[str, Any]:
    """All that is drawn, with seconds counted from the recording's beginning."""
    end_s = history.now_s()
    start_s = max(end_s - duration_s, end_s if history.first_s is None else history.first_s)

    def since(at_s: float) -> float | None:
        return None if math.isinf(at_s) or math.isnan(at_s) else round(at_s - start_s, 3)

    moments = np.arange(start_s, end_s + STEP_S, STEP_S)
    found = [figures(history, float(at_s)) for at_s in moments]
    columns = {name: [_rounded(getattr(each, name)) for each in found] for name in SHOWN}
    batches, reasons = history.batches.columns, history.batches.columns["reason"]
    of_settings, others = history.batches.marks(), history.marks_beside_settings()
    marks = sorted([(mark.at_s, mark.text) for mark in of_settings] + [(mark.at_s, mark.text) for mark in others])
    return {
        "end": round(end_s - start_s, 3),
        "step": STEP_S,
        "figures": columns,
        "names": {name: [REGISTER[name].name, REGISTER[name].unit, REGISTER[name].decimals] for name in SHOWN},
        "batches": [
            [since(formed), since(started), since(finished), int(size), int(cap), REASONS[reason]]
            for formed, started, finished, size, cap, reason in zip(
                batches["formed"].tolist(),
                batches["started"].tolist(),
                batches["finished"].tolist(),
                batches["size"].tolist(),
                batches["cap"].tolist(),
                reasons.tolist(),
                strict=True,
            )
        ],
        "bars": _bars(history, since),
        "measures": [_measure(history, name, moments, since) for name in sampled_of(history.unit)],
        "marks": [[since(at_s), text] for at_s, text in marks],
        "steps": [
            [step.title, step.html, *(None if at_s is None else since(at_s) for at_s in (step.start_s, step.end_s))]
            for step in steps
        ],
    }


def _measure(history: History, name: str, moments: Floats, since: Callable[[float], float | None]) -> dict[str, Any]:
    """A time of each answered request, one of `SAMPLED`, and its percentiles at these moments."""
    words, unit, per_s = SAMPLED[name]
    finished_s, seconds, _ = samples_between(history.requests.samples, -math.inf, math.inf, name)
    first, steps = step_of(float(moments[0])), [step_of(at_s) for at_s in moments.tolist()]
    lines = [
        grid.read(first, steps[-1])[np.array(steps) - first] * per_s for grid in history.percentiles_of(name).grids
    ]
    return {
        "name": words,
        "unit": unit,
        "points": [[since(at_s), _rounded(s * per_s)] for at_s, s in zip(finished_s.tolist(), seconds, strict=True)],
        "lines": {f"p{level:.0f}": list(map(_rounded, values)) for level, values in zip(LEVELS, lines, strict=True)},
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else float(f"{value:.{DIGITS}g}")


def _bars(history: History, since: Callable[[float], float | None]) -> list[list[Any]]:
    """Each request as [came, started, ended, lane, release reason of its batch].

    A lane is used again once its request has ended.
    """
    columns = history.requests.columns
    order = np.argsort(columns["queued"], kind="stable")
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    lanes, bars = 0, []
    for row in order.tolist():
        came_s, started_s, ended_s = (float(columns[name][row]) for name in ("queued", "started", "finished"))
        if not math.isfinite(came_s):
            continue
        while busy and busy[0][0] <= came_s:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if not free:
            heapq.heappush(free, lanes)
            lanes += 1
        lane = heapq.heappop(free)
        heapq.heappush(busy, (ended_s if math.isfinite(ended_s) else math.inf, lane))
        batch = int(columns["batch"][row])
        reason = (
            REASONS[int(history.batches.columns.get(batch, "reason"))] if history.batches.columns.has(batch) else ""
        )
        bars.append([since(came_s), since(started_s), since(ended_s), lane, reason])
    return bars
