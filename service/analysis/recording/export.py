"""Tables as the content of files: CSV, and Parquet where its library is installed."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from datetime import datetime
from importlib.util import find_spec
from typing import Any, Final

from service.analysis.recording.tables import Kind, Table, Value

SUFFIXES: Final = (".csv", ".parquet")


class ExportError(Exception):
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
