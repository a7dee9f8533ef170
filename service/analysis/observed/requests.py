"""Every request of the last minutes: the records of the service and of its sender, joined to one row."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias, get_args

import numpy as np

from service.analysis.observed.columns import Bools, Columns, Floats, Ints
from service.analysis.observed.request_row import RequestRow, Source
from service.analysis.observed.stages import MARKS
from service.messages.clock import ClockOffset
from service.messages.load import ClientOutcome, ClientRequest
from service.messages.telemetry import FINAL_STATES, RequestRecord, RequestState
from service.messages.workload import TEXT

MAX_ROWS: Final = 120_000
STATES: Final[tuple[RequestState, ...]] = get_args(RequestState)
STATE_CODES: Final = {state: code for code, state in enumerate(STATES)}
OUTCOME_CODES: Final[Mapping[ClientOutcome, int]] = {
    outcome: STATE_CODES["done" if outcome == "ok" else outcome] for outcome in get_args(ClientOutcome)
}
FIRST_FINAL_CODE: Final = min(STATE_CODES[state] for state in FINAL_STATES)
SENDER_TIMES: Final = ("intended", "sent", "client_first_token", "client_finished")
SERVICE_TIMES: Final = tuple(mark for mark in MARKS if mark not in SENDER_TIMES)
TIMES: Final = (*SERVICE_TIMES, *SENDER_TIMES)
STALLS: Final = ("longest_gap", "longest_gap_at")  # between two tokens: how long, and when it ended
INTEGERS: Final = (
    "state",
    "outcome",
    "arrival",
    "slot",
    "batch",
    "regime",
    "sample",
    "tokens",
    "max_tokens",
    "prompt_tokens",
)


class Sampled(NamedTuple):
    """A time of each answered request: what users call it, the unit that they read it in, how many make a second."""

    words: str
    unit: str = "s"
    per_s: float = 1.0


SAMPLED: Final[Mapping[str, Sampled]] = {
    "latency": Sampled("answer"),
    "ttft": Sampled("first token"),
    "tpot": Sampled("between tokens", "ms", 1e3),
}


def sampled_of(unit: str) -> Mapping[str, Sampled]:
    """Those of a workload that counts in this unit; a function answers at once, and has its latency alone."""
    return SAMPLED if unit == TEXT.unit else {"latency": SAMPLED["latency"]}


Key: TypeAlias = tuple[int, str]  # the service's number (ids are unique for its lifetime only) and the id it gave


@dataclass(slots=True)
class _Texts:
    """The values of a row that are not numbers."""

    service_key: Key | None = None
    client_id: str | None = None
    has_sender: bool = False
    source: Source = "other"
    prompt: str = ""
    text: str = ""
    replica: str | None = None
    batch: str | None = None
    error: str | None = None
    outcome: ClientOutcome | None = None


class RequestTable:
    """The service's records and the sender's, joined by the id that the sender gave; the later record of an id wins.

    Attributes:
        columns: `TIMES` and `STALLS` on the service's clock, `clock_offset` from the sender's to it, and `INTEGERS`.
            `queued` is blank for a refused request, `arrival` counts the requests of a replica, `batch` is a row of the
            batches. `state` is the service's code and `outcome` the sender's, of `STATES` both.
        samples: a row for each request that was answered, about in order of `finished`: `SAMPLED`, all in seconds, and
            `regime`. `ttft` (time to first token) counts from where `latency` does; `tpot` (time per output token) is
            (latency - ttft) / (tokens - 1), as in vLLM's `bench serve`. Both are blank where they are unknown.
    """

    def __init__(self) -> None:
        self.columns = Columns([*TIMES, *STALLS, "clock_offset"], INTEGERS, MAX_ROWS)
        self.samples = Columns(("finished", *SAMPLED), ("regime",), MAX_ROWS)
        self._texts: deque[_Texts] = deque()
        self._row_of_service: dict[Key, int] = {}
        self._row_of_client: dict[str, int] = {}
        self._arrivals: dict[int, int] = {}
        self._changed: dict[int, None] = {}

    # ------------------------------------------------------------------------------------------------------- feeding

    def add_records(
        self,
        service: int,
        records: Sequence[RequestRecord],
        slot_of: Callable[[str], int],
        batch_row_of: Callable[[str | None], int],
        regime_of: Callable[[int], int],
        clock: ClockOffset,
    ) -> None:
        """Add the service's records; `service` numbers the process whose ids these are."""
        if not records:
            return
        rows = [self._row_for_record(service, record, slot_of) for record in records]
        batches = [batch_row_of(record.batch) for record in records]
        regimes = [regime_of(batch) for batch in batches]
        put = self.columns.put
        for mark in SERVICE_TIMES:
            put(rows, mark, (_time_of(r, mark) for r in records))
        for name in STALLS:
            put(rows, name, (getattr(r, f"{name}_s") for r in records))
        put(rows, "state", (STATE_CODES[r.state] for r in records))
        known = [self.columns.get(row, "tokens") for row in rows]  # by its sender, which may hear of a token earlier
        put(rows, "tokens", (max(r.completion_tokens, so_far) for r, so_far in zip(records, known, strict=True)))
        put(rows, "max_tokens", (r.max_tokens for r in records))
        put(rows, "prompt_tokens", (r.prompt_tokens for r in records))
        put(rows, "batch", batches)
        put(rows, "regime", regimes)
        for row, record, regime in zip(rows, records, regimes, strict=True):
            texts = self._texts_of(row)
            texts.batch = record.batch
            texts.error = record.error or texts.error
            self._changed[row] = None
            if record.state == "done":
                self._sample_service(row, record, regime)
                self._reconcile(row, clock)

    def add_client_requests(self, requests: Iterable[ClientRequest], clock: ClockOffset, regime: int) -> None:
        """Add the sender's records; `regime` is assumed for requests whose batch is not known yet."""
        for request in requests:
            row = self._row_for_client(request)
            times = (request.intended_s, request.sent_s, request.first_token_s, request.finished_s)
            for name, at_s in zip(SENDER_TIMES, times, strict=True):
                if at_s is not None:
                    self.columns.set(row, name, at_s + clock.offset_s)
            self.columns.set(row, "clock_offset", clock.offset_s)
            texts = self._texts_of(row)
            texts.text += request.new_text
            texts.outcome = request.outcome
            if request.outcome is not None:
                self.columns.set(row, "outcome", OUTCOME_CODES[request.outcome])
            texts.error = request.error or texts.error
            self.columns.set(row, "tokens", max(request.tokens, self.columns.get(row, "tokens")))
            self._changed[row] = None
            if request.outcome == "ok":
                known = int(self.columns.get(row, "regime"))
                latency_s = request.latency_s
                assert latency_s is not None
                self._reconcile(row, clock)
                finished_s = self.columns.get(row, "client_finished")
                self._sample(row, finished_s, latency_s, known if known >= 0 else regime)

    def row_of(self, service: int, request_id: str) -> int:
        return self._row_of_service.get((service, request_id), -1)

    def open_rows(self, slot: int | None = None) -> Ints:
        """The rows of requests under way, of all replicas or of one."""
        is_open: Bools = np.isinf(self.columns["finished"]) & (self.columns["arrival"] >= 0)
        if slot is not None:
            is_open &= self.columns["slot"] == slot
        return np.flatnonzero(is_open) + self.columns.first

    def close(self, rows: Iterable[int], at_s: float, error: str, state: RequestState = "failed") -> None:
        """End requests of which the service reports no end: done if the sender was answered, else in this `state`."""
        for row in rows:
            if self.columns.has(row) and math.isinf(self.columns.get(row, "finished")):
                texts = self._texts_of(row)
                is_answered = texts.outcome == "ok"
                end_s = min(self.columns.get(row, "client_finished"), at_s) if is_answered else at_s
                self.columns.set(row, "finished", max(end_s, self.columns.get(row, "received")))
                self.columns.set(row, "state", STATE_CODES["done" if is_answered else state])
                if not is_answered:
                    texts.error = texts.error or error
                self._changed[row] = None

    def drop_before(self, time_s: float) -> None:
        """Forget the oldest rows, up to the first that came after `time_s`."""
        begun = np.minimum(self.columns["received"], self.columns["intended"])
        keep = np.flatnonzero(begun >= time_s)
        self._drop(self.columns.first + (int(keep[0]) if len(keep) else len(self.columns)))
        finished = self.samples["finished"]
        self.samples.drop_before(self.samples.first + int(np.searchsorted(finished, time_s)))

    # ------------------------------------------------------------------------------------------------------- reading

    def row(self, row: int) -> RequestRow:
        texts = self._texts_of(row)
        times = {name: None if math.isinf(at_s := self.columns.get(row, name)) else at_s for name in (*TIMES, *STALLS)}
        state = STATES[int(self.columns.get(row, "state"))] if texts.service_key else "waiting"
        if texts.outcome is not None:
            state = "done" if texts.outcome == "ok" else texts.outcome
        started_at_s = _first(times["intended"], times["received"], times["sent"]) or 0.0
        finished_s = times["client_finished" if texts.has_sender else "finished"]
        return RequestRow(
            key=row,
            id=texts.service_key[1] if texts.service_key else None,
            client_id=texts.client_id,
            source=texts.source,
            prompt=texts.prompt,
            text=texts.text,
            state=state,
            tokens=max(int(self.columns.get(row, "tokens")), 0),
            max_tokens=int(self.columns.get(row, "max_tokens")),
            replica=texts.replica,
            batch=texts.batch,
            error=texts.error,
            enqueued_s=times["queued"],
            first_token_s=_first(times["client_first_token"], times["first_token"]),
            finished_s=finished_s,
            started_at_s=started_at_s,
            latency_s=None if finished_s is None else finished_s - started_at_s,
            **{f"{name}_s": times[name] for name in ("intended", "sent", "received", "formed", "started", *STALLS)},
        )

    def spans(self) -> tuple[Floats, Floats]:
        """When each request began to wait, and when it ended: as the service says, or else as its sender does.

        A request that no replica has reported waits from its intended send on.
        """
        columns = self.columns
        begun = np.where(columns["arrival"] >= 0, columns["queued"], columns["intended"])
        finished = columns["finished"]
        return begun, np.where(np.isfinite(finished), finished, columns["client_finished"])

    def ends(self) -> tuple[Floats, Ints]:
        """When each request ended and the code of what became of it: as its sender says, or else as the service does.

        Requests under way have no time.
        """
        columns = self.columns
        is_heard = columns["outcome"] >= 0
        ended = np.where(is_heard, columns["client_finished"], columns["finished"])
        return ended, np.where(is_heard, columns["outcome"], columns["state"])

    def under_way(self) -> list[int]:
        """The rows of requests that have not ended, also those that only their sender has reported yet."""
        ended_s, _ = self.ends()
        rows: list[int] = (np.flatnonzero(np.isinf(ended_s)) + self.columns.first).tolist()
        return rows

    def passed_between(self, start_s: float, end_s: float) -> list[int]:
        """The rows of requests that came, went on to another stage or ended in (start, end]."""
        passed = np.zeros(len(self.columns), bool)
        for name in TIMES:
            times_s = self.columns[name]
            passed |= (times_s > start_s) & (times_s <= end_s) & np.isfinite(times_s)
        rows: list[int] = (np.flatnonzero(passed) + self.columns.first).tolist()
        return rows

    def take_changed(self, most: int | None = None) -> list[RequestRow]:
        """The rows that changed since they were last taken; rows beyond `most` are left for the next call."""
        taken = list(itertools.islice(self._changed, most))
        for row in taken:
            del self._changed[row]
        return self.rows(sorted(taken))

    def note_changed(self, rows: Iterable[int] | None = None) -> None:
        """Let `take_changed` return these rows, or all, once more."""
        self._changed.update(dict.fromkeys(self.columns.numbers() if rows is None else rows))

    def rows(self, numbers: Iterable[int] | None = None) -> list[RequestRow]:
        """The rows with these numbers, or all, as far as they are kept."""
        asked = self.columns.numbers() if numbers is None else numbers
        return [self.row(row) for row in asked if self.columns.has(row)]

    def _row_for_record(self, service: int, record: RequestRecord, slot_of: Callable[[str], int]) -> int:
        key = (service, record.id)
        known = self._row_of_service.get(key)
        if known is not None:
            return known
        row = self._row_of_client.get(record.client_id) if record.client_id is not None else None
        if row is None or self._texts_of(row).service_key is not None:  # an id used twice means two requests
            row = self._append(_Texts(client_id=record.client_id))
        texts = self._texts_of(row)
        texts.service_key, texts.replica = key, record.replica
        self._row_of_service[key] = row
        slot = slot_of(record.replica)
        arrival = self._arrivals.get(slot, 0)
        self._arrivals[slot] = arrival + 1
        self.columns.set(row, "slot", slot)
        self.columns.set(row, "arrival", arrival)
        return row

    def _row_for_client(self, request: ClientRequest) -> int:
        row = self._row_of_client.get(request.id)
        if row is None or (self._texts_of(row).outcome is not None and request.outcome is None):
            row = self._append(_Texts(client_id=request.id))
        texts = self._texts_of(row)
        if not texts.has_sender:
            texts.has_sender, texts.source, texts.prompt = True, request.source, request.prompt
            self.columns.set(row, "max_tokens", request.max_tokens)
        return row

    def _append(self, texts: _Texts) -> int:
        if len(self.columns) == MAX_ROWS:
            self._drop(self.columns.first + 1)
        self._texts.append(texts)
        row = self.columns.append({"tokens": 0})
        if texts.client_id is not None:
            self._row_of_client[texts.client_id] = row
        return row

    def _drop(self, before: int) -> None:
        for row in range(self.columns.first, before):
            texts = self._texts.popleft()
            if texts.service_key is not None:
                self._row_of_service.pop(texts.service_key, None)
            if texts.client_id is not None and self._row_of_client.get(texts.client_id) == row:
                del self._row_of_client[texts.client_id]
            self._changed.pop(row, None)
        self.columns.drop_before(before)

    def _texts_of(self, row: int) -> _Texts:
        return self._texts[row - self.columns.first]

    def _reconcile(self, row: int, clock: ClockOffset) -> None:
        """Learn the offset of the clocks from a request that ended on both sides, and correct the request's times."""
        if clock.is_shared or int(self.columns.get(row, "state")) != STATE_CODES["done"]:
            return
        names = ("sent", "received", "finished", "client_finished", "clock_offset")
        sent_s, received_s, finished_s, heard_s, offset_s = (self.columns.get(row, name) for name in names)
        if not (math.isfinite(sent_s) and math.isfinite(heard_s)):
            return
        clock.note_exchange(sent_s - offset_s, received_s, finished_s, heard_s - offset_s)
        for name in SENDER_TIMES:
            self.columns.set(row, name, self.columns.get(row, name) - offset_s + clock.offset_s)
        self.columns.set(row, "clock_offset", clock.offset_s)

    def _sample_service(self, row: int, record: RequestRecord, regime: int) -> None:
        """Sample a request whose sender is unknown; for the others, the sender's latency is the sample."""
        sample = int(self.columns.get(row, "sample"))
        if not self._texts_of(row).has_sender:
            if record.finished_s is not None:
                self._sample(row, record.finished_s, record.finished_s - record.received_s, regime)
        elif self.samples.has(sample):
            self.samples.set(sample, "regime", regime)

    def _sample(self, row: int, finished_s: float, latency_s: float, regime: int) -> None:
        ttft_s, tpot_s = self._token_times(row, finished_s, latency_s)
        values = {"finished": finished_s, "latency": latency_s, "ttft": ttft_s, "tpot": tpot_s, "regime": regime}
        sample = int(self.columns.get(row, "sample"))
        if self.samples.has(sample):
            for name, value in values.items():
                self.samples.set(sample, name, value)
        else:
            self.columns.set(row, "sample", self.samples.append(values))

    def _token_times(self, row: int, finished_s: float, latency_s: float) -> tuple[float, float]:
        """The time to the first token and the time per output token of an answered request; infinite if unknown."""
        names = ("client_first_token", "first_token")
        first_s = next((at_s for name in names if math.isfinite(at_s := self.columns.get(row, name))), math.inf)
        ttft_s = max(first_s - (finished_s - latency_s), 0.0)
        tokens = self.columns.get(row, "tokens")
        return ttft_s, max(finished_s - first_s, 0.0) / (tokens - 1) if tokens > 1 and ttft_s < math.inf else math.inf


def samples_between(
    samples: Columns, start_s: float, end_s: float, name: str = "latency"
) -> tuple[Floats, Floats, Ints]:
    """Finish times, latencies (or another of `SAMPLED`) and regimes of what finished in (start, end]."""
    finished, values = samples["finished"], samples[name]
    within = (finished > start_s) & (finished <= end_s) & np.isfinite(values)
    return finished[within], values[within], samples["regime"][within]


def _first(*times: float | None) -> float | None:
    return next((at_s for at_s in times if at_s is not None), None)


def _time_of(record: RequestRecord, mark: str) -> float | None:
    """When a record passed a mark; an old recording may lack two of them."""
    if mark == "queued":
        return None if record.state == "refused" else record.enqueued_s or record.received_s
    if mark == "formed" and record.formed_s is None:
        return record.started_s
    at_s: float | None = getattr(record, f"{mark}_s")
    return at_s
