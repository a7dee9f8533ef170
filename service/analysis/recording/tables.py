"""A history as tables of requests, batches and figures, and those as CSV or Parquet files."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from datetime import datetime
from importlib.util import find_spec
from typing import Any, Final, Literal, TypeAlias

from service.analysis.observed.history import History
from service.analysis.observed.one_batch import BatchSummary, batch_summary
from service.analysis.observed.requests import RequestRow
from service.analysis.observed.statistics import Figures, figures
from service.messages.settings import Settings
from service.messages.text import UserError

Kind: TypeAlias = Literal["text", "whole", "number", "switch", "seconds", "moment"]
Value: TypeAlias = str | int | float | bool | None
WallTime: TypeAlias = Callable[[float], float]

FIGURES_STEP_S: Final = 1.0
STAGES: Final = ("intended", "sent", "received", "enqueued", "formed", "started", "first_token", "finished")
REQUEST_COLUMNS: Final[Mapping[str, Kind]] = {
    "id": "text",
    "client_id": "text",
    "source": "text",
    "state": "text",
    "arrived_at": "moment",
    "latency_s": "seconds",
    "tokens": "whole",
    "max_tokens": "whole",
    "replica": "text",
    "batch": "text",
    **{f"{stage}_s": "seconds" for stage in STAGES},
    "error": "text",
    "prompt": "text",
    "completion": "text",
}
BATCH_COLUMNS: Final[Mapping[str, Kind]] = {
    "id": "text",
    "number": "whole",
    "replica": "text",
    "formed_at": "moment",
    "size": "whole",
    "cap": "whole",
    "release_reason": "text",
    "formation": "text",
    "settings_version": "whole",
    "tokens": "whole",
    "formed_s": "seconds",
    "started_s": "seconds",
    "finished_s": "seconds",
    "ran_s": "seconds",
    "shortest_wait_s": "seconds",
    "longest_wait_s": "seconds",
}
SETTINGS_KINDS: Final[Mapping[str, Kind]] = {
    "formation": "text",
    "max_batch_size": "whole",
    "batch_wait_timeout_s": "number",
    "allow_small_batch": "switch",
    "stride_s": "number",
    "max_batch_tokens": "whole",
    "max_concurrent_batches": "whole",
    "max_queued_requests": "whole",
}
FIGURE_COLUMNS: Final[Mapping[str, Kind]] = {
    "at": "moment",
    "at_s": "seconds",
    "settings_version": "whole",
    **SETTINGS_KINDS,
    **{field.name: "number" for field in fields(Figures)},
}
SUFFIXES: Final = (".csv", ".parquet")


@dataclass(frozen=True)
class Table:
    """
    Attributes:
        columns: their names and kinds; seconds are on the service's clock, a moment is in seconds since 1970.
        rows: a value a column, ``None`` where it is unknown, never 0.
    """

    columns: Mapping[str, Kind]
    rows: Sequence[Sequence[Value]]


@dataclass(frozen=True)
class FiguresAt:
    """The figures as they stood at one moment, and the settings that batches then obeyed."""

    at_s: float
    version: int | None
    settings: Settings | None
    figures: Figures


@dataclass(frozen=True)
class Subject:
    """One thing to take away, in steps that may be taken piece by piece.

    Attributes:
        items: what there is to look up.
        look: those of them that are still kept.
        table: what was found, as a table.
    """

    items: Callable[[History], Sequence[Any]]
    look: Callable[[History, Sequence[Any]], list[Any]]
    table: Callable[[Iterable[Any], WallTime], Table]


def requests_table(rows: Iterable[RequestRow], wall_time: WallTime) -> Table:
    """A line a request; stages that were not reached are unknown."""
    return Table(REQUEST_COLUMNS, [_request_cells(row, wall_time) for row in rows])


def batches_table(batches: Iterable[BatchSummary], wall_time: WallTime) -> Table:
    """A line a batch."""
    return Table(BATCH_COLUMNS, [_batch_cells(batch, wall_time) for batch in batches])


def figures_table(figures_at: Iterable[FiguresAt], wall_time: WallTime) -> Table:
    """A line a moment."""
    return Table(FIGURE_COLUMNS, [_figure_cells(each, wall_time) for each in figures_at])


def moments(history: History) -> list[float]:
    """The moments that figures are told of: every second that is kept."""
    if history.first_s is None:
        return []
    end_s = history.now_s()
    first_s = max(history.first_s, end_s - history.kept_s)
    return [end_s - n * FIGURES_STEP_S for n in reversed(range(int((end_s - first_s) / FIGURES_STEP_S) + 1))]


def figures_at(history: History, at_s: float) -> FiguresAt:
    """The figures of one moment."""
    regime = history.batches.regime_at(at_s)
    return FiguresAt(at_s, regime.version if regime else None, settings_at(history, at_s), figures(history, at_s))


def settings_at(history: History, at_s: float) -> Settings | None:
    """Those that the batches of that moment obeyed, as far as it is known."""
    regime = history.batches.regime_at(at_s)
    return None if regime is None else _settings(history, regime.version, at_s)


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


def _request_cells(row: RequestRow, wall_time: WallTime) -> list[Value]:
    stages = [getattr(row, f"{stage}_s") for stage in STAGES]
    head = [row.id, row.client_id, row.source, row.state, wall_time(row.started_at_s), row.latency_s]
    return [*head, row.tokens, row.max_tokens, row.replica, row.batch, *stages, row.error, row.prompt, row.text]


def _batch_cells(batch: BatchSummary, wall_time: WallTime) -> list[Value]:
    head = [batch.id, batch.number, batch.replica, wall_time(batch.formed_s), batch.size, batch.cap, batch.reason]
    times = [batch.formed_s, batch.started_s, batch.finished_s, batch.ran_s]
    return [*head, batch.formation, batch.version, batch.tokens, *times, *(batch.waited_s or (None, None))]


def _figure_cells(each: FiguresAt, wall_time: WallTime) -> list[Value]:
    settings = [getattr(each.settings, name, None) for name in SETTINGS_KINDS]
    values = [None if value is None else round(value, 6) for value in astuple(each.figures)]
    return [wall_time(each.at_s), each.at_s, each.version, *settings, *values]


def _batches(history: History, numbers: Sequence[int]) -> list[BatchSummary]:
    return [batch for number in numbers if (batch := batch_summary(history, number)) is not None]


def _figures(history: History, moments: Sequence[float]) -> list[FiguresAt]:
    return [figures_at(history, at_s) for at_s in moments]


SUBJECTS: Final[Mapping[str, Subject]] = {
    "figures": Subject(moments, _figures, figures_table),
    "requests": Subject(
        lambda history: history.requests.numbers(), lambda history, rows: history.requests.rows(rows), requests_table
    ),
    "batches": Subject(
        lambda history: range(history.batches.columns.first, history.batches.columns.next), _batches, batches_table
    ),
}


class ExportError(UserError):
    """It cannot be exported like this; the text is a sentence that says what to do."""


def as_csv(table: Table) -> bytes:
    """A line a row below the names; what is unknown is blank."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(table.columns)
    spell = [_SPELLED[kind] for kind in table.columns.values()]
    writer.writerows([say(value) for say, value in zip(spell, row, strict=True)] for row in table.rows)
    return text.getvalue().encode("utf-8", "replace")


def as_parquet(table: Table) -> bytes:
    """The same with typed columns; raises `ExportError` where pyarrow is missing."""
    if not has_parquet():
        raise ExportError("Parquet needs a library that is not installed: pip install pyarrow")
    import pyarrow
    from pyarrow import parquet

    kinds: Mapping[Kind, Any] = {
        "text": pyarrow.string(),
        "whole": pyarrow.int64(),
        "number": pyarrow.float64(),
        "switch": pyarrow.bool_(),
        "seconds": pyarrow.float64(),
        "moment": pyarrow.timestamp("us", tz="UTC"),
    }
    columns = [
        pyarrow.array([_typed(row[place], kind) for row in table.rows], type=kinds[kind])
        for place, kind in enumerate(table.columns.values())
    ]
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.table(columns, names=list(table.columns)), buffer)
    return buffer.getvalue()


def as_file(table: Table, suffix: str) -> bytes:
    """What the suffix asks for; raises `ExportError` for one that is not among `SUFFIXES`."""
    match suffix.lower():
        case ".csv":
            return as_csv(table)
        case ".parquet":
            return as_parquet(table)
    raise ExportError(f"The name of the file must end in {' or '.join(SUFFIXES)}, not in {suffix or 'nothing'}.")


def has_parquet() -> bool:
    return find_spec("pyarrow") is not None


def _typed(value: Value, kind: Kind) -> Value:
    if kind == "moment" and isinstance(value, float):
        return round(value * 1e6)
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _seconds(value: Value) -> Value:
    return None if value is None else f"{value:.6f}"


def _moment(value: Value) -> Value:
    if not isinstance(value, float):
        return None
    return datetime.fromtimestamp(value).astimezone().isoformat(timespec="milliseconds")


def _as_it_is(value: Value) -> Value:
    return value


_SPELLED: Final[Mapping[Kind, Callable[[Value], Value]]] = {
    "text": _as_it_is,
    "whole": _as_it_is,
    "number": _as_it_is,
    "switch": _as_it_is,
    "seconds": _seconds,
    "moment": _moment,
}
