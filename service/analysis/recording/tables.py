"""A history as tables of requests, batches and figures, and those as CSV or Parquet files."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from importlib.util import find_spec
from operator import attrgetter
from typing import Any, Final, Literal, TypeAlias

from service.analysis.observed.batches import Regime
from service.analysis.observed.history import History
from service.analysis.observed.one_batch import BatchSummary, batch_summary
from service.analysis.observed.register import REGISTER, Figures
from service.analysis.observed.statistics import figures
from service.messages.settings import Settings
from service.messages.text import UserError

Kind: TypeAlias = Literal["text", "whole", "number", "switch", "seconds", "moment"]
Value: TypeAlias = str | int | float | bool | None
WallTime: TypeAlias = Callable[[float], float]
Column: TypeAlias = tuple[Kind, Callable[[Any], Value]]  # and how its value is read from a row's object

FIGURES_STEP_S: Final = 1.0
STAGES: Final = ("intended", "sent", "received", "enqueued", "formed", "started", "first_token", "finished")
KIND_OF_TYPE: Final[Mapping[type, Kind]] = {str: "text", int: "whole", float: "number", bool: "switch"}


class ExportError(UserError):
    """A file that cannot be exported; the text is a sentence with a remedy."""


@dataclass(frozen=True)
class Table:
    """Rows under named columns.

    Attributes:
        columns: names and kinds; seconds are on the service's clock, a moment is in seconds since 1970.
        rows: a value a column, ``None`` where it is unknown, never 0.
    """

    columns: Mapping[str, Kind]
    rows: Sequence[Sequence[Value]]


@dataclass(frozen=True)
class FiguresAt:
    """The figures at one moment, and the regime that batches then obeyed."""

    at_s: float
    regime: Regime | None
    figures: Figures


@dataclass(frozen=True)
class Subject:
    """A kind of table, made in steps that may be taken piece by piece.

    Attributes:
        items: returns everything to look up.
        look: returns what is found of some of these items, as far as it is still kept.
    """

    columns: Mapping[str, Column]
    items: Callable[[History], Sequence[Any]]
    look: Callable[[History, Sequence[Any]], list[Any]]

    def table(self, found: Iterable[Any], wall_time: WallTime) -> Table:
        """What was found as a table, a line each."""
        rows = [[_value(each, *column, wall_time) for column in self.columns.values()] for each in found]
        return Table({name: kind for name, (kind, _) in self.columns.items()}, rows)


def as_csv(table: Table) -> bytes:
    """A line a row below the names; an unknown value is blank."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(table.columns)
    kinds = table.columns.values()
    writer.writerows([_cell(value, kind) for value, kind in zip(row, kinds, strict=True)] for row in table.rows)
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


FORMATS: Final = {".csv": as_csv, ".parquet": as_parquet}


def as_file(table: Table, suffix: str) -> bytes:
    """The table in the format of a suffix; raises `ExportError` for one that is not among `FORMATS`."""
    write = FORMATS.get(suffix.lower())
    if write is None:
        raise ExportError(f"The name of the file must end in {' or '.join(FORMATS)}, not in {suffix or 'nothing'}.")
    return write(table)


def has_parquet() -> bool:
    return find_spec("pyarrow") is not None


def _value(row: object, kind: Kind, read: Callable[[Any], Value], wall_time: WallTime) -> Value:
    value = read(row)
    return wall_time(value) if kind == "moment" and isinstance(value, float) else value


def _cell(value: Value, kind: Kind) -> Value:
    if kind == "seconds" and value is not None:
        return f"{value:.6f}"
    if kind == "moment" and isinstance(value, float):
        return datetime.fromtimestamp(value).astimezone().isoformat(timespec="milliseconds")
    return value


def _typed(value: Value, kind: Kind) -> Value:
    if kind == "moment" and isinstance(value, float):
        return round(value * 1e6)
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _attributes(**kinds: Kind) -> dict[str, Column]:
    """Columns named like the attributes that they hold."""
    return {name: (kind, attrgetter(name)) for name, kind in kinds.items()}


def _setting(each: FiguresAt, name: str) -> Value:
    return getattr(each.regime.settings, name, None) if each.regime else None


def _figure(each: FiguresAt, name: str) -> float | None:
    value: float | None = getattr(each.figures, name)
    return None if value is None else round(value, 6)


def _batches(history: History, numbers: Sequence[int]) -> list[BatchSummary]:
    return [batch for number in numbers if (batch := batch_summary(history, number)) is not None]


def _moments(history: History) -> list[float]:
    """Every second that is kept."""
    if history.first_s is None:
        return []
    end_s = history.now_s()
    first_s = max(history.first_s, end_s - history.kept_s)
    return [end_s - n * FIGURES_STEP_S for n in reversed(range(int((end_s - first_s) / FIGURES_STEP_S) + 1))]


def _figures(history: History, moments: Sequence[float]) -> list[FiguresAt]:
    return [FiguresAt(at_s, history.batches.regime_at(at_s), figures(history, at_s)) for at_s in moments]


REQUEST_COLUMNS: Final[Mapping[str, Column]] = {
    **_attributes(id="text", client_id="text", source="text", state="text"),
    "arrived_at": ("moment", attrgetter("started_at_s")),
    **_attributes(
        latency_s="seconds",
        ttft_s="seconds",
        tpot_s="seconds",
        longest_gap_s="seconds",
        tokens="whole",
        max_tokens="whole",
        replica="text",
        batch="text",
    ),
    **{f"{stage}_s": ("seconds", attrgetter(f"{stage}_s")) for stage in STAGES},
    **_attributes(error="text", prompt="text"),
    "completion": ("text", attrgetter("text")),
}
BATCH_COLUMNS: Final[Mapping[str, Column]] = {
    **_attributes(id="text", number="whole", replica="text"),
    "formed_at": ("moment", attrgetter("formed_s")),
    **_attributes(size="whole", cap="whole"),
    "release_reason": ("text", attrgetter("reason")),
    **_attributes(formation="text"),
    "settings_version": ("whole", attrgetter("version")),
    **_attributes(tokens="whole", formed_s="seconds", started_s="seconds", finished_s="seconds", ran_s="seconds"),
    "shortest_wait_s": ("seconds", lambda batch: batch.waited_s and batch.waited_s[0]),
    "longest_wait_s": ("seconds", lambda batch: batch.waited_s and batch.waited_s[1]),
}
FIGURE_COLUMNS: Final[Mapping[str, Column]] = {
    "at": ("moment", attrgetter("at_s")),
    **_attributes(at_s="seconds"),
    "settings_version": ("whole", lambda each: each.regime and each.regime.version),
    **{
        name: (KIND_OF_TYPE[type(getattr(Settings(), name))], partial(_setting, name=name))
        for name in Settings.__struct_fields__
    },
    **{key: ("number", partial(_figure, name=key)) for key in REGISTER},
}
SUBJECTS: Final[Mapping[str, Subject]] = {
    "figures": Subject(FIGURE_COLUMNS, _moments, _figures),
    "requests": Subject(
        REQUEST_COLUMNS,
        lambda history: history.requests.columns.numbers(),
        lambda history, numbers: history.requests.rows(numbers),
    ),
    "batches": Subject(BATCH_COLUMNS, lambda history: history.batches.columns.numbers(), _batches),
}
