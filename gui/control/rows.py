"""The rows of the table of requests: those of the present, or of the moment that is looked at once nothing runs."""

from __future__ import annotations

import math
from typing import Final

from gui.panels.requests_model import RequestsModel, TableRow
from gui.plots.plot_stack import PlotStack
from gui.session.session import Session
from service.analysis.observed.request_row import RequestRow
from service.messages.telemetry import COMPARISON, COMPARISON_WARM_UP, FIRST_REQUEST

MOST_ROWS: Final = 500  # between two frames; what is left comes next time
FIRST: Final = "The start's first request"  # telemetry carries no texts
OF_A_WARM_UP: Final = "A comparison's warm-up"
OF_A_COMPARISON: Final = "A comparison's request"
NOT_OURS: Final = "Another client's request"


class Rows:
    """Brings what changed in the history into the table, a few hundred rows at a time."""

    def __init__(self, model: RequestsModel, plots: PlotStack, session: Session) -> None:
        self._model, self._plots, self._session = model, plots, session
        self._late: frozenset[str] = frozenset()
        self._moment_s = math.inf  # the moment that the table shows; infinite for the present

    @property
    def past_s(self) -> float | None:
        """The moment before the end that is looked at in a recording, or in what ran; ``None`` while a service runs."""
        at_s = self._plots.view_end_s()
        is_past = self._session.is_at_rest and not self._plots.is_live and at_s < self._session.history.now_s()
        return at_s if is_past else None

    def show(self) -> None:
        past_s, history, model = self.past_s, self._session.history, self._model
        self._note_late(frozenset() if past_s is not None else self._late_replicas())
        self._note_moved(math.inf if past_s is None else past_s)
        changed = history.requests.take_changed(MOST_ROWS)
        if not changed:
            return
        present = [row if past_s is None else row.at(past_s) for row in changed]
        now_s = history.now_s() if past_s is None else past_s
        model.update((shown(row, row.replica in self._late) for row in present if row is not None), now_s)
        model.remove(id_of(row) for row, then in zip(changed, present, strict=True) if then is None)
        if model.lacks_older:
            model.clear()
            history.requests.note_changed()

    def _late_replicas(self) -> frozenset[str]:
        history = self._session.history
        return frozenset(status.replica for status in history.late_replicas(history.now_s()))

    def _note_late(self, late: frozenset[str]) -> None:
        """Show the open requests of replicas anew that are late since, or are late no more."""
        requests, held = self._session.history.requests, self._session.history.slots.held
        for replica in late ^ self._late:
            requests.note_changed(requests.open_rows(held[replica]).tolist() if replica in held else ())
        self._late = late

    def _note_moved(self, moment_s: float) -> None:
        """Show the requests anew that were something else at the moment that was looked at before."""
        if moment_s != self._moment_s:
            requests, (start_s, end_s) = self._session.history.requests, sorted((moment_s, self._moment_s))
            requests.note_changed(requests.passed_between(start_s, end_s))
            self._moment_s = moment_s


def shown(row: RequestRow, is_late: bool = False) -> TableRow:
    """A row of the table; a request of this window has the id that cancels it."""
    return TableRow(
        id=id_of(row),
        prompt=row.prompt or whose(row.client_id or ""),
        text=row.text,
        state=row.state,
        intended_s=row.started_at_s,
        tokens=row.tokens,
        max_tokens=row.max_tokens,
        formed_s=row.formed_s,
        finished_s=row.finished_s,
        error=row.error,
        key=row.key,
        is_late=is_late,
    )


def id_of(row: RequestRow) -> str:
    return row.client_id or f"#{row.key}"


def whose(client_id: str) -> str:
    """What stands in the place of a prompt that the window does not know.

    >>> whose("start"), whose("compare-warm-up-1a2b-7"), whose("compare-1a2b3c4d-7"), whose("")
    ("The start's first request", "A comparison's warm-up", "A comparison's request", "Another client's request")
    """
    if client_id.startswith(COMPARISON_WARM_UP):
        return OF_A_WARM_UP
    if client_id.startswith(COMPARISON):
        return OF_A_COMPARISON
    return FIRST if client_id == FIRST_REQUEST else NOT_OURS
