"""The table of requests: newest on top, filtered, updated in place however fast they stream."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias, get_args

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, Qt

from service.analysis.observed.register import Figures
from service.messages.telemetry import FINAL_STATES, RequestState

Filter: TypeAlias = Literal["all", "waiting", "running", "unanswered", "done"]
FILTERS: Final[tuple[Filter, ...]] = get_args(Filter)
UNANSWERED: Final[tuple[RequestState, ...]] = ("refused", "failed", "cancelled")

_FILTER_OF: Final[dict[RequestState, Filter]] = {
    "waiting": "waiting",
    "formed": "waiting",
    "running": "running",
    "done": "done",
    **dict.fromkeys(UNANSWERED, "unanswered"),
}


@dataclass(frozen=True, slots=True)
class TableRow:
    """A request as the table shows it: what client and service report of it.

    Attributes:
        intended_s, formed_s, finished_s: on the service's clock; its age counts from `intended_s`.
        text: the output so far.
        key: its row in the history.
        is_late: whether its replica has reported nothing for some time, so that the state is the one last heard.
    """

    id: str
    prompt: str
    text: str
    state: RequestState
    intended_s: float
    tokens: int
    max_tokens: int
    formed_s: float | None = None
    finished_s: float | None = None
    error: str | None = None
    key: int | None = None
    is_late: bool = False

    @property
    def is_live(self) -> bool:
        return self.state not in FINAL_STATES

    @property
    def is_error(self) -> bool:
        """Whether it ended without an answer that the user did not give up."""
        return self.state in ("failed", "refused")

    @property
    def filter(self) -> Filter:
        """The filter, other than `all`, that shows the request."""
        return _FILTER_OF[self.state]

    def seconds(self, now_s: float) -> float:
        """From the intended send time to the end, or to now."""
        end = self.finished_s if self.finished_s is not None else now_s
        return max(0.0, end - self.intended_s)

    def second_line(self, now_s: float) -> str:
        """The text below the prompt."""
        if self.is_late and self.is_live:
            return f"was {self.state} when last heard"
        match self.state:
            case "waiting":
                return "waiting"
            case "formed":
                return f"formed {max(0.0, now_s - (self.formed_s or now_s)):.1f} s ago"
            case "failed" | "refused":
                return self.error or self.state
            case "cancelled":
                return f"cancelled · {self.text}" if self.text else "cancelled"
            case _:
                return " ".join(self.text.split())

    @property
    def token_count(self) -> str:
        if self.max_tokens == 1 or self.state in ("waiting", "formed"):  # its first token may be known before
            return ""
        if self.state == "done":
            return f"{self.tokens} tok"
        return f"{self.tokens}/{self.max_tokens}" if self.tokens else ""


Index = QModelIndex | QPersistentModelIndex
MOST_ROWS: Final = 10_000
ROW_ROLE: Final = Qt.ItemDataRole.UserRole


@dataclass(frozen=True)
class Counts:
    """Requests of the table: those that a filter shows, and of the unanswered ones those of each state."""

    all: int = 0
    waiting: int = 0
    running: int = 0
    done: int = 0
    refused: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def unanswered(self) -> int:
        return self.refused + self.failed + self.cancelled

    def beside(self, figures: Figures) -> Counts:
        """With the numbers of waiting and running requests that stand elsewhere, as far as these are known."""
        if figures.queue is None or figures.running is None:
            return self
        waiting, running = round(figures.queue), figures.running
        return replace(self, all=waiting + running + self.done + self.unanswered, waiting=waiting, running=running)


class RequestsModel(QAbstractTableModel):
    """One column; the delegate paints the whole row from the `TableRow` under `ROW_ROLE`.

    Requests are numbered as they arrive. `_shown` holds the numbers that pass the filter, ascending; the table shows
    them from the end, so that the newest stands on top and an insertion there moves no number.
    """

    def __init__(self, most_rows: int = MOST_ROWS) -> None:
        super().__init__()
        self._most_rows = most_rows
        self._filter: Filter = "all"
        self._numbers: dict[str, int] = {}
        self._rows: dict[int, TableRow] = {}
        self._live: set[int] = set()
        self._tally: Counter[RequestState] = Counter()
        self._shown: list[int] = []
        self._next = 0
        self._has_forgotten = False
        self.now_s = 0.0

    @property
    def lacks_older(self) -> bool:
        """Whether older requests were forgotten for which there would be room again."""
        return self._has_forgotten and len(self._rows) < self._most_rows / 2

    def counts(self) -> Counts:
        tally = self._tally
        ended = {state: tally[state] for state in ("done", *UNANSWERED)}
        return Counts(len(self._rows), tally["waiting"] + tally["formed"], tally["running"], **ended)

    def rows(self) -> tuple[TableRow, ...]:
        """All rows, oldest first."""
        return tuple(self._rows.values())

    def row(self, at: int) -> TableRow:
        """The request in line `at` of the table."""
        return self._rows[self._shown[len(self._shown) - 1 - at]]

    def key_of(self, request_id: str) -> int | None:
        """The history's row of a request; ``None`` for an unknown request."""
        number = self._numbers.get(request_id)
        return None if number is None else self._rows[number].key

    def line_of(self, request_id: str) -> int | None:
        """The line of a request in the table, or ``None`` if the filter hides it."""
        number = self._numbers.get(request_id)
        return None if number is None else self._line_of(number)

    @property
    def filter(self) -> Filter:
        return self._filter

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008  Qt's signature
        return 0 if parent.isValid() else len(self._shown)

    def columnCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008  Qt's signature
        return 0 if parent.isValid() else 1

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid():
            return None
        row = self.row(index.row())
        if role == ROW_ROLE:
            return row
        if role == Qt.ItemDataRole.DisplayRole:
            return row.prompt
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return self._spoken(row)
        if role == Qt.ItemDataRole.ToolTipRole:
            return "\n".join(part for part in (row.prompt, row.text.strip(), row.error) if part)
        return None

    def update(self, rows: Iterable[TableRow], now_s: float) -> None:
        """Insert new requests and replace known ones, with one signal for all that change in place."""
        self.now_s = now_s
        latest = {row.id: row for row in rows}
        self._replace({self._numbers[id]: row for id, row in latest.items() if id in self._numbers})
        self._insert([row for id, row in latest.items() if id not in self._numbers])
        self._forget_oldest()

    def remove(self, ids: Iterable[str]) -> None:
        """Take these requests from the table, as far as it has them."""
        self._remove([self._numbers[id] for id in ids if id in self._numbers])

    def tick(self, now_s: float) -> None:
        """Set the time that the ages of live requests count to."""
        self.now_s = now_s
        shown = [at for number in self._live if (at := self._line_of(number)) is not None]
        self._announce(shown)

    def set_filter(self, name: Filter) -> None:
        if name != self._filter:
            self.beginResetModel()
            self._filter = name
            self._shown = [number for number, row in self._rows.items() if self._passes(row)]
            self.endResetModel()

    def clear(self) -> None:
        self.beginResetModel()
        for held in (self._numbers, self._rows, self._live, self._tally, self._shown):
            held.clear()
        self._has_forgotten = False
        self.endResetModel()

    def _replace(self, rows: dict[int, TableRow]) -> None:
        leaving, entering, staying = [], [], []
        for number, row in rows.items():
            was, now = self._passes(self._rows[number]), self._passes(row)
            self._keep(number, row)
            if was and now:
                staying.append(number)
            elif was:
                leaving.append(number)
            elif now:
                entering.append(number)
        self._remove_lines(leaving)
        self._insert_lines(entering)
        self._announce([at for number in staying if (at := self._line_of(number)) is not None])

    def _insert(self, rows: Sequence[TableRow]) -> None:
        numbers = range(self._next, self._next + len(rows))
        self._next += len(rows)
        for number, row in zip(numbers, rows, strict=True):
            self._numbers[row.id] = number
            self._keep(number, row)
        self._insert_lines([number for number in numbers if self._passes(self._rows[number])])

    def _forget_oldest(self) -> None:
        surplus = len(self._rows) - self._most_rows
        if surplus <= 0:
            return
        self._has_forgotten = True
        self._remove([number for number in list(self._rows)[: 2 * surplus] if number not in self._live][:surplus])

    def _remove(self, numbers: Sequence[int]) -> None:
        self._remove_lines([number for number in numbers if self._passes(self._rows[number])])
        for number in numbers:
            row = self._rows.pop(number)
            del self._numbers[row.id]
            self._live.discard(number)
            self._tally[row.state] -= 1

    def _keep(self, number: int, row: TableRow) -> None:
        before = self._rows.get(number)
        if before is not None:
            self._tally[before.state] -= 1
        self._tally[row.state] += 1
        self._rows[number] = row
        (self._live.add if row.is_live else self._live.discard)(number)

    def _insert_lines(self, numbers: Sequence[int]) -> None:
        for run in _runs(sorted(numbers)):
            at = bisect_left(self._shown, run[0])
            line = len(self._shown) - at
            self.beginInsertRows(QModelIndex(), line, line + len(run) - 1)
            self._shown[at:at] = run
            self.endInsertRows()

    def _remove_lines(self, numbers: Sequence[int]) -> None:
        places = sorted(bisect_left(self._shown, number) for number in numbers)
        for run in reversed(list(_runs(places))):
            last = len(self._shown) - 1 - run[0]
            self.beginRemoveRows(QModelIndex(), last - len(run) + 1, last)
            del self._shown[run[0] : run[-1] + 1]
            self.endRemoveRows()

    def _announce(self, lines: Sequence[int]) -> None:
        if lines:
            self.dataChanged.emit(self.index(min(lines), 0), self.index(max(lines), 0))

    def _line_of(self, number: int) -> int | None:
        at = bisect_left(self._shown, number)
        if at == len(self._shown) or self._shown[at] != number:
            return None
        return len(self._shown) - 1 - at

    def _passes(self, row: TableRow) -> bool:
        return self._filter in ("all", row.filter)

    def _spoken(self, row: TableRow) -> str:
        parts = (row.state, row.prompt, f"{row.seconds(self.now_s):.2f} s", row.token_count, row.error or row.text)
        return ", ".join(part for part in parts if part)


def _runs(numbers: Sequence[int]) -> Iterable[list[int]]:
    """Ascending numbers as stretches without gaps.

    >>> list(_runs([1, 2, 3, 7, 9, 10]))
    [[1, 2, 3], [7], [9, 10]]
    """
    run: list[int] = []
    for number in numbers:
        if run and number != run[-1] + 1:
            yield run
            run = []
        run.append(number)
    if run:
        yield run
