"""What is known of one request: its stages, its batch, the other members, and what it waited for, in a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from gui.series.latency import MEASURES
from service.analysis.observed import stages
from service.analysis.observed.batches import REASONS
from service.analysis.observed.budget import budget_now
from service.analysis.observed.columns import Floats
from service.analysis.observed.history import History
from service.analysis.observed.one_batch import BatchSummary, batch_summary, companions_of
from service.analysis.observed.request_row import RequestRow
from service.analysis.observed.stages import Stage
from service.messages.settings import FORMATIONS, Formation, ReleaseReason, Settings
from service.messages.workload import TEXT

NOTICEABLE_S: Final = 0.005
STRAGGLES: Final = 2.0  # times the tokens of half of its batch, from which on a member holds it
LATE_S: Final = 0.020  # a load generator that sends later than this is named

WAITED_FOR: Final[Mapping[ReleaseReason, str]] = {  # after "Waited 0.05 s"
    "full": "until its batch was full",
    "timeout": "of batch_wait_timeout_s",
    "drained": "until nothing more waited",
    "joined": "until it could join",
    "left": "until it could join",
}
PENDING: Final = "Waits until its batch is formed."


@dataclass(frozen=True)
class Ahead:
    """Batches that held the engine while a request waited, and for how long of that time.

    Attributes:
        straggler: tokens of the member that held the last of them, where one did.
    """

    count: int
    last: str
    last_size: int
    held_s: float
    straggler: int | None = None

    @property
    def is_felt(self) -> bool:
        return self.count > 0 and self.held_s >= NOTICEABLE_S


def wait_sentence(history: History, row: int) -> str:
    """What a request of the table waited for, one thing after the other.

    >>> formatted_wait(["0.42 s for batch r1-17 of 4 to end", "0.05 s of batch_wait_timeout_s"])
    'Waited 0.42 s for batch r1-17 of 4 to end, then 0.05 s of batch_wait_timeout_s.'
    """
    columns = history.requests.columns
    if np.isinf(columns.get(row, "received")):
        return "It is not known to the service."
    if np.isinf(columns.get(row, "queued")):
        return "It was refused and never stood in the queue."
    late_s = columns.get(row, "sent") - columns.get(row, "intended")
    late = f"The load generator sent it {late_s:.2f} s late. " if LATE_S < late_s < np.inf else ""
    return late + formatted_wait(list(_waits(history, row)), is_over=np.isfinite(columns.get(row, "started")))


def formatted_wait(waits: list[str], is_over: bool = True) -> str:
    """
    >>> formatted_wait([]), formatted_wait(["0.30 s for batch r1-3 of 2"], is_over=False)
    ('Did not wait: the engine was free.', 'Has waited 0.30 s for batch r1-3 of 2.')
    """
    if not waits:
        return "Did not wait: the engine was free." if is_over else PENDING
    return f"{'Waited' if is_over else 'Has waited'} {', then '.join(waits)}."


def _waits(history: History, row: int) -> Iterator[str]:
    """First until its batch was formed, then until it ran."""
    columns = history.requests.columns
    queued, formed, started, finished = (columns.get(row, name) for name in ("queued", "formed", "started", "finished"))
    until_s = min(finished, history.last_s or queued)
    slot = int(columns.get(row, "slot"))
    yield from _until_formed(history, row, slot, queued, min(formed, until_s))
    sealed_s = min(started, until_s) - formed
    if sealed_s >= NOTICEABLE_S:
        ahead = _ahead(history, slot, formed, min(started, until_s))
        ticks = " until the next tick of stride_s" if _settings(history, row).stride_s else ""
        behind = f" behind {_batches(ahead)}" if ahead.is_felt else ticks
        yield f"{'' if np.isfinite(started) else 'stands '}sealed {sealed_s:.2f} s{behind}"


def _until_formed(history: History, row: int, slot: int, queued: float, formed: float) -> Iterator[str]:
    """Under `early` the engine has no part in it; otherwise what it was busy with, then what it waited for itself."""
    batch = int(history.requests.columns.get(row, "batch"))
    formation = _formation(history, batch)
    ahead = Ahead(0, "", 0, 0.0) if formation == "early" else _ahead(history, slot, queued, formed)
    if ahead.is_felt and formation == "continuous":
        yield from _until_joined(history, slot, queued, formed)
    elif ahead.is_felt:
        is_held = ahead.count == 1 and ahead.straggler
        held = f", held by a member with {ahead.straggler} {history.unit}" if is_held else ""
        yield f"{ahead.held_s:.2f} s for {_batches(ahead)} to end{held}"
    rest_s = formed - queued - ahead.held_s
    if rest_s >= NOTICEABLE_S:
        yield f"{rest_s:.2f} s {_for_company(history, batch)}"


def _until_joined(history: History, slot: int, queued: float, formed: float) -> Iterator[str]:
    """First for a running request to leave, then for the steps under way."""
    columns = history.batches.columns
    held = np.minimum(columns["finished"], formed) - np.maximum(columns["started"], queued)
    ran = (held > 0) & (columns["slot"] == slot)
    is_full = ran & (columns["size"] >= columns["cap"])
    has_room = np.flatnonzero(ran & ~is_full)
    begun, budget = columns["started"][has_room], budget_now(history)
    short = [budget is not None and _is_short_of_tokens(history, slot, at_s, budget.tokens) for at_s in begun]
    is_short = np.array(short, dtype=bool)
    full_s, short_s, step_s = (float(held[each].sum()) for each in (is_full, has_room[is_short], has_room[~is_short]))
    if full_s >= NOTICEABLE_S:
        yield f"{full_s:.2f} s for one of the {columns['cap'][is_full][-1]} places"
    if short_s >= NOTICEABLE_S and budget is not None:
        yield f"{short_s:.2f} s for room in {budget.source}, which holds {budget.tokens} {history.unit}"
    if step_s >= NOTICEABLE_S:
        yield f"{step_s:.2f} s for the steps under way"


def _is_short_of_tokens(history: History, slot: int, at_s: float, tokens: int) -> bool:
    """Whether the first request in the queue needs more of `tokens` than those that run leave."""
    columns = history.requests.columns
    needed, is_here = columns["prompt_tokens"] + columns["max_tokens"], columns["slot"] == slot
    runs = is_here & (columns["started"] <= at_s) & (columns["finished"] > at_s)
    waits = np.flatnonzero(is_here & (columns["queued"] <= at_s) & (columns["started"] > at_s))
    if not len(waits):
        return False
    first = waits[np.argmin(columns["queued"][waits])]
    return bool(runs.any() and needed[runs].sum() + needed[first] > tokens)


def _ahead(history: History, slot: int, start_s: float, end_s: float) -> Ahead:
    columns = history.batches.columns
    begun, ended = np.maximum(columns["started"], start_s), np.minimum(columns["finished"], end_s)
    rows = np.flatnonzero((ended > begun) & (columns["slot"] == slot))
    if not len(rows):
        return Ahead(0, "", 0, 0.0)
    last = int(rows[np.argmax(columns["started"][rows])]) + columns.first
    size = int(history.batches.columns.get(last, "size"))
    held_s = _covered_s(begun[rows], ended[rows])
    return Ahead(len(rows), history.batches.id_of(last), size, held_s, _straggler(history, last))


def _covered_s(begun: Floats, ended: Floats) -> float:
    """How long any of these ran; where several run at a time, they overlap."""
    order = np.argsort(begun, kind="stable")
    reached = np.maximum.accumulate(ended[order])
    before = np.concatenate(([-np.inf], reached[:-1]))
    return float(np.maximum(reached - np.maximum(begun[order], before), 0.0).sum())


def _straggler(history: History, batch: int) -> int | None:
    columns = history.requests.columns
    tokens = columns["tokens"][columns["batch"] == batch]
    if len(tokens) < 2 or tokens.max() < STRAGGLES * max(float(np.median(tokens)), 1.0):
        return None
    return int(tokens.max())


def _batches(ahead: Ahead) -> str:
    return f"batch {ahead.last} of {ahead.last_size}" if ahead.count == 1 else f"{ahead.count} batches"


def _for_company(history: History, batch: int) -> str:
    if not history.batches.columns.has(batch):
        return "for its batch to be formed"
    settings = history.batches.settings_of(batch) or Settings()
    is_early = settings.formation == "early"  # in which the ticks come later
    reason = REASONS[int(history.batches.columns.get(batch, "reason"))]
    held = reason == "timeout" and not settings.allow_small_batch
    text = "for its batch to fill" if held else WAITED_FOR[reason]
    return f"{text} and for the next tick of stride_s" if settings.stride_s and not is_early else text


def _settings(history: History, row: int) -> Settings:
    """Those that the batch of a request was formed under."""
    return history.batches.settings_of(int(history.requests.columns.get(row, "batch"))) or Settings()


def _formation(history: History, batch: int) -> Formation | None:
    """That of a batch, or the present one as long as there is none."""
    columns = history.batches.columns
    if columns.has(batch):
        return FORMATIONS[int(columns.get(batch, "formation"))]
    return history.in_force.settings.formation if history.in_force is not None else None


@dataclass(frozen=True)
class RequestDetails:
    """
    Attributes:
        spans_s: seconds in each of its `stages`, so far where it is under way.
        batch: ``None`` as long as it has none.
        mates: the other members of its batch, or all that ran while it did where others could join, in their order in
            the queue.
        waited: the sentence on what it waited for.
        paced: the sentence on its first token and the others; empty before that, and for a function.
    """

    request: RequestRow
    stages: tuple[Stage, ...]
    spans_s: tuple[float, ...]
    batch: BatchSummary | None
    mates: tuple[RequestRow, ...]
    waited: str
    paced: str

    @property
    def latency_s(self) -> float:
        return sum(self.spans_s)


def request_details(history: History, row: int) -> RequestDetails | None:
    """Of a row of the request table; ``None`` if it is no longer kept."""
    table = history.requests
    if not table.columns.has(row):
        return None
    spans = stages.durations(stages.marks(table.columns, np.array([row])), history.now_s())[0]
    batch = int(table.columns.get(row, "batch"))
    return RequestDetails(
        request=table.row(row),
        stages=stages.stages_of(history.unit, history.server),
        spans_s=tuple(np.nan_to_num(spans).tolist()),
        batch=batch_summary(history, batch),
        mates=tuple(table.rows(each for each in companions_of(history, row) if each != row)),
        waited=wait_sentence(history, row),
        paced=pace_sentence(table.row(row)) if history.unit == TEXT.unit else "",
    )


def pace_sentence(request: RequestRow) -> str:
    """When a request had its first token, and how long each further one took."""
    if request.ttft_s is None:
        return ""
    ttft, tpot = MEASURES["ttft"], MEASURES["tpot"]
    first = f"First token after {ttft.number(request.ttft_s * ttft.per_s)} {ttft.unit}"
    if request.tpot_s is None:
        return f"{first}."
    return f"{first}, then {tpot.number(request.tpot_s * tpot.per_s)} {tpot.unit} per token."
