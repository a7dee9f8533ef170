"""Every batch of the last minutes, and the regimes: spans in which one version of the settings was obeyed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, get_args

import numpy as np

from service.analysis.observed.annotations import Drain, Predecessors, SettingsMark, continues
from service.analysis.observed.columns import Bools, Columns, Floats, Ints
from service.analysis.observed.descriptions import describe_change
from service.analysis.observed.rolling import Grid
from service.messages.settings import FORMATIONS, ReleaseReason, Settings, SettingsChange
from service.messages.telemetry import BatchRecord, BatchWork
from service.messages.text import format_ms

MAX_ROWS: Final = 60_000
LAST_REPORT_S: Final = 5.0  # how long after a change the service may still report batches formed before it
TYPICAL: Final = 10  # batches that ended last, whose median run time is expected of the next
REASONS: Final[tuple[ReleaseReason, ...]] = get_args(ReleaseReason)
REASON_CODES: Final = {reason: code for code, reason in enumerate(REASONS)}
FORMATION_CODES: Final = {formation: code for code, formation in enumerate(FORMATIONS)}
CONTINUOUS: Final = FORMATION_CODES["continuous"]
WORK: Final = BatchWork.__struct_fields__
FLOATS: Final = ("formed", "started", "finished", "seen", "prefill_s")
INTEGERS: Final = ("size", "cap", "tokens", "formation", "reason", "number", "version", "regime", "slot")


@dataclass(frozen=True)
class Regime:
    """A span from `start_s` on in which batches were formed under one version of the settings of one service.

    Attributes:
        settings: ``None`` if the service did not report them.
        in_force_s: when every replica had adopted them; ``None`` for a service's first.
        is_passing: whether the drag of a slider went on from here.
    """

    number: int
    start_s: float
    version: int
    mark: SettingsMark | None
    settings: Settings | None = None
    in_force_s: float | None = None
    is_passing: bool = False


class BatchTable:
    """The batches, and the regimes that follow from them.

    Attributes:
        columns: `seen` is the time up to which a batch's tokens are counted; its `BatchWork` is blank until it has
            finished.
        tokens: number that was generated in each step of time.
        regimes: in order of time; a service's first has no mark.
    """

    def __init__(self, span_s: float) -> None:
        self.columns = Columns(FLOATS, [*INTEGERS, *(name for name in WORK if name not in FLOATS)], MAX_ROWS)
        self.tokens = Grid(span_s, blank=0.0)
        self.regimes: list[Regime] = []
        self._drains: dict[int, Drain | None] = {}  # by regime, once they are over
        self._ids: deque[tuple[int, str]] = deque()
        self._row_of: dict[tuple[int, str], int] = {}
        self._regime_of_version: dict[tuple[int, int], int] = {}
        self._settings: dict[tuple[int, int], Settings] = {}
        self._changes: dict[tuple[int, int], SettingsChange] = {}

    def note_settings(self, service: int, version: int, settings: Settings) -> None:
        self._settings[service, version] = settings

    def note_change(self, service: int, change: SettingsChange) -> None:
        self._changes[service, change.version] = change
        self._settings.setdefault((service, change.version - 1), change.previous)
        self._settings[service, change.version] = change.settings

    def add(self, service: int, records: Sequence[BatchRecord], slot_of: Callable[[str], int], at_s: float) -> None:
        """Add the batches that the service reports at `at_s`."""
        for record in sorted(records, key=lambda record: record.formed_s):
            row = self._row_of.get((service, record.id))
            if row is None:
                row = self._append(service, record, slot_of(record.replica))
            self._count_tokens(row, record, at_s)
            for name, value in (("started", record.started_s), ("finished", record.finished_s)):
                if value is not None:
                    self.columns.set(row, name, value)
            self.columns.set(row, "size", record.size)
            if record.work is not None:
                for name in WORK:
                    self.columns.set(row, name, getattr(record.work, name))

    def row_of(self, service: int, batch_id: str | None) -> int:
        return -1 if batch_id is None else self._row_of.get((service, batch_id), -1)

    def id_of(self, row: int) -> str:
        return self._ids[row - self.columns.first][1]

    def regime_of(self, row: int) -> int:
        """The regime of a batch; the present one where it is unknown."""
        return int(self.columns.get(row, "regime")) if self.columns.has(row) else self.regime

    def settings_of(self, row: int) -> Settings | None:
        """The settings that a batch was formed under, where they are known."""
        number = self.regime_of(row)
        return next((regime.settings for regime in self.regimes if regime.number == number), None)

    @property
    def regime(self) -> int:
        return self.regimes[-1].number if self.regimes else 0

    def regime_at(self, at_s: float) -> Regime | None:
        return next((regime for regime in reversed(self.regimes) if regime.start_s <= at_s), None)

    def regime_before(self, regime: Regime) -> Regime | None:
        """The regime that a change of settings ended, which for a drag is the one before it; ``None`` for a first."""
        if not regime.mark:
            return None
        return next((r for r in reversed(self.regimes) if r.number < regime.number and not r.is_passing), None)

    def end_s(self, regime: Regime) -> float:
        """When the next regime began; infinity for the present one."""
        return next((r.start_s for r in self.regimes if r.number == regime.number + 1), np.inf)

    def drain(self, regime: Regime) -> Drain | None:
        """How long batches of the settings before ran on; ``None`` if none was left."""
        if regime.mark is None or regime.in_force_s is None:
            return None
        if regime.number in self._drains:
            return self._drains[regime.number]
        finished, formed = self.columns["finished"], self.columns["formed"]
        ends_s = finished[(self.columns["regime"] < regime.number) & (finished > regime.in_force_s)]
        last_s = float(ends_s.max(initial=-np.inf))
        found = Drain(regime.in_force_s, None if np.isinf(last_s) else last_s) if len(ends_s) else None
        is_reported = len(formed) > 0 and formed[-1] >= regime.in_force_s + LAST_REPORT_S
        if is_reported and last_s < np.inf:
            self._drains[regime.number] = found
        return found

    def formed_before(self, version: int, at_s: float) -> Predecessors | None:
        """The batches under way at `at_s` that were formed before this version; ``None`` where there are none.

        Batches take about as long as the last of their formation. That is not known in `continuous`, where others may
        join, and no longer of a batch that has taken longer.
        """
        columns = self.columns
        finished, started = columns["finished"], columns["started"]
        is_left = (columns["formed"] <= at_s) & (finished > at_s) & (columns["version"] < version)
        if not is_left.any():
            return None
        formation = columns["formation"][is_left][-1]
        ended = (finished <= at_s) & np.isfinite(started) & (columns["formation"] == formation)
        run_s = (finished[ended] - started[ended])[-TYPICAL:]
        left_s = None
        if len(run_s) and formation != CONTINUOUS:
            ran_s = np.maximum(at_s - started[is_left], 0.0)  # 0 of a batch that has not started
            each_s = np.median(run_s) - ran_s
            engines = len(set(columns["slot"][is_left].tolist()))
            left_s = float(each_s.sum()) / engines if (each_s >= 0).all() else None
        return Predecessors(int(columns["size"][is_left].sum()), left_s)

    def marks(self) -> list[SettingsMark]:
        """A mark a change; a drag of a slider is one, where its last version was first obeyed."""
        shown = [regime for regime in self.regimes if not regime.is_passing]
        found = [(regime.mark, self.drain(regime)) for regime in shown if regime.mark is not None]
        return [mark if drain is None else replace(mark, drained=drain.words) for mark, drain in found]

    def close(self, at_s: float, slot: int | None = None) -> None:
        """End the batches under way at `at_s`: all of them, or those of one replica."""
        columns = self.columns
        is_open = np.isinf(columns["finished"])
        if slot is not None:
            is_open &= columns["slot"] == slot
        columns["finished"][is_open] = np.maximum(at_s, columns["formed"][is_open])

    def drop_before(self, time_s: float) -> None:
        formed: Floats = self.columns["formed"]
        keep = np.flatnonzero(formed >= time_s)
        self._drop(self.columns.first + (int(keep[0]) if len(keep) else len(formed)))
        while len(self.regimes) > 1 and self.regimes[1].start_s < time_s:
            self._drains.pop(self.regimes.pop(0).number, None)

    def _append(self, service: int, record: BatchRecord, slot: int) -> int:
        if len(self.columns) == MAX_ROWS:
            self._drop(self.columns.first + 1)
        row = self.columns.append(
            {
                "formed": record.formed_s,
                "size": record.size,
                "cap": record.cap,
                "tokens": 0,
                "formation": FORMATION_CODES[record.formation],
                "reason": REASON_CODES[record.release_reason],
                "number": record.number,
                "version": record.settings_version,
                "regime": self._regime_for(service, record),
                "slot": slot,
            }
        )
        self._ids.append((service, record.id))
        self._row_of[service, record.id] = row
        return row

    def _drop(self, before: int) -> None:
        for _ in range(self.columns.first, before):
            self._row_of.pop(self._ids.popleft(), None)
        self.columns.drop_before(before)

    def _count_tokens(self, row: int, record: BatchRecord, at_s: float) -> None:
        columns = self.columns
        new = record.tokens - int(columns.get(row, "tokens"))
        until_s = at_s if record.finished_s is None else record.finished_s
        seen_s = columns.get(row, "seen")
        since_s = seen_s if np.isfinite(seen_s) else record.started_s
        if new > 0:
            self.tokens.add_over(min(until_s if since_s is None else since_s, until_s), until_s, new)
            columns.set(row, "tokens", record.tokens)
        if record.started_s is not None:
            columns.set(row, "seen", max(until_s, record.started_s))

    def _regime_for(self, service: int, record: BatchRecord) -> int:
        """The regime of the record's settings, which begins with this batch if it is the first to obey them."""
        key = service, record.settings_version
        number = self._regime_of_version.get(key)
        if number is not None:
            self._begin_earlier(number, record.formed_s)
            return number
        known = {version: number for (of, version), number in self._regime_of_version.items() if of == service}
        obeyed = max(known, default=None)
        if obeyed is not None and record.settings_version < obeyed:
            older = [number for version, number in known.items() if version < record.settings_version]
            return max(older, default=0)  # never the newest: it had no mark and needs none now
        number = self.regime + 1
        self._regime_of_version[key] = number
        begun = self._begin_of_drag(service, record.settings_version)
        if obeyed is not None and begun <= obeyed:
            of_drag = {number for version, number in known.items() if version >= begun}
            self.regimes = [replace(r, is_passing=True) if r.number in of_drag else r for r in self.regimes]
            obeyed = max((version for version in known if version < begun), default=begun - 1)
        mark = None if obeyed is None else self._mark(service, obeyed, record, number)
        change = self._changes.get(key)
        in_force_s = change.in_force_s if change is not None else None
        settings = self._settings.get(key)
        self.regimes.append(Regime(number, record.formed_s, record.settings_version, mark, settings, in_force_s))
        return number

    def _begin_earlier(self, number: int, formed_s: float) -> None:
        """Begin a regime with the batch of another replica that was reported later but formed before."""
        regime = self.regimes[-1]
        if regime.number == number and formed_s < regime.start_s:
            mark = regime.mark and replace(regime.mark, at_s=formed_s)
            self.regimes[-1] = replace(regime, start_s=formed_s, mark=mark)

    def _begin_of_drag(self, service: int, version: int) -> int:
        """The first version of the drag that led to this one."""
        while True:
            earlier, later = (self._changes.get((service, each)) for each in (version - 1, version))
            if earlier is None or later is None or not continues(earlier, later):
                return version
            version -= 1

    def _mark(self, service: int, obeyed: int, record: BatchRecord, regime: int) -> SettingsMark:
        version = record.settings_version
        previous, settings = self._settings.get((service, obeyed)), self._settings.get((service, version))
        text = describe_change(previous, settings) if previous and settings else "settings changed"
        change = self._changes.get((service, version))
        detail = "" if change is None else change.reason or f"in force after {format_ms(change.in_force_after_ms)}"
        return SettingsMark(record.formed_s, regime, version, text, detail)


def mean_size(size: Floats | Ints, run_s: Floats, is_open: Bools) -> float | None:
    """The mean number of requests in a batch; in `continuous`, of requests that run at a time.

    >>> size, run_s = np.array([1.0, 3.0]), np.array([0.5, 1.5])
    >>> [mean_size(size, run_s, np.array([are_open] * 2)) for are_open in (False, True)]
    [2.0, 2.5]
    """
    if not len(size):
        return None
    weights = run_s if is_open.mean() > 0.5 and run_s.any() else None
    return float(np.average(size, weights=weights))


def mean_size_of(batches: Sequence[BatchRecord]) -> float | None:
    """The same of the batches that a client has heard of, as far as they have started."""
    ran = [(batch, batch.started_s) for batch in batches if batch.started_s is not None]
    size = np.array([float(batch.size) for batch, _ in ran])
    run_s = np.array([(batch.finished_s or started_s) - started_s for batch, started_s in ran])
    return mean_size(size, run_s, np.array([batch.formation == "continuous" for batch, _ in ran], np.bool_))
