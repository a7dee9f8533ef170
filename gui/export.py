"""What the window holds, as CSV: a line a request, and the row of figures a line a second."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from datetime import datetime
from typing import Final

from service.messages import Settings
from service.observed.history import History
from service.observed.requests import RequestRow
from service.observed.statistics import Figures, figures

FIGURES_STEP_S: Final = 1.0
KEPT_S: Final = 600.0

STAGES: Final = ("intended", "sent", "received", "enqueued", "formed", "started", "first_token", "finished")
REQUEST_COLUMNS: Final = (
    *("id", "client_id", "source", "state", "arrived_at", "latency_s", "tokens", "max_tokens", "replica", "batch"),
    *(f"{stage}_s" for stage in STAGES),
    *("error", "prompt", "completion"),
)
FIGURE_COLUMNS: Final = (
    *("at", "at_s", "settings_version"),
    *Settings.__struct_fields__,
    *(field.name for field in fields(Figures)),
)


@dataclass(frozen=True)
class FiguresAt:
    """The figures as they stood at one moment, and the settings that batches then obeyed."""

    at_s: float
    version: int | None
    settings: Settings | None
    figures: Figures


def requests_csv(rows: Sequence[RequestRow], wall_time: Callable[[float], float]) -> bytes:
    """A line a request; stages are on the service's clock, in seconds, blank where they were not reached."""
    return _csv(REQUEST_COLUMNS, (_request_cells(row, wall_time) for row in rows))


def figures_csv(figures_at: Iterable[FiguresAt], wall_time: Callable[[float], float]) -> bytes:
    """A line a moment; a figure that is unknown is blank, never 0."""
    return _csv(FIGURE_COLUMNS, (_figure_cells(each, wall_time) for each in figures_at))


def moments(history: History) -> list[float]:
    """The moments that `figures_csv` tells of: every second that is kept."""
    if history.first_s is None:
        return []
    end_s = history.now_s()
    first_s = max(history.first_s, end_s - KEPT_S)
    return [end_s - n * FIGURES_STEP_S for n in reversed(range(int((end_s - first_s) / FIGURES_STEP_S) + 1))]


def figures_at(history: History, at_s: float) -> FiguresAt:
    """The figures of one moment."""
    regime = history.regime_at(at_s)
    version = None if regime is None else regime.version
    settings = None if version is None else _settings(history, version, at_s)
    return FiguresAt(at_s, version, settings, figures(history, at_s))


def _settings(history: History, version: int, at_s: float) -> Settings | None:
    """What that version says; versions begin anew with each service, so the one nearest before `at_s` counts."""
    for change in reversed(history.changes()):
        if change.version == version and change.requested_s <= at_s:
            return change.settings
    for change in history.changes():
        if change.version == version + 1:
            return change.previous
    in_force = history.in_force
    return in_force.settings if in_force is not None and in_force.version == version else None


def _request_cells(row: RequestRow, wall_time: Callable[[float], float]) -> list[object]:
    stages = [_seconds(getattr(row, f"{stage}_s")) for stage in STAGES]
    head = [row.id, row.client_id, row.source, row.state, _iso(wall_time(row.started_at_s)), _seconds(row.latency_s)]
    return [*head, row.tokens, row.max_tokens, row.replica, row.batch, *stages, row.error, row.prompt, row.text]


def _figure_cells(each: FiguresAt, wall_time: Callable[[float], float]) -> list[object]:
    settings = [getattr(each.settings, name) for name in Settings.__struct_fields__] if each.settings else []
    blanks = [None] * (len(Settings.__struct_fields__) - len(settings))
    values = [None if value is None else round(value, 6) for value in astuple(each.figures)]
    return [_iso(wall_time(each.at_s)), _seconds(each.at_s), each.version, *settings, *blanks, *values]


def _csv(columns: Sequence[str], lines: Iterable[Sequence[object]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows(lines)
    return text.getvalue().encode("utf-8", "replace")


def _seconds(value: float | None) -> str | None:
    return None if value is None else f"{value:.6f}"


def _iso(wall_s: float) -> str:
    return datetime.fromtimestamp(wall_s).astimezone().isoformat(timespec="milliseconds")
