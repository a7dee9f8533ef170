"""Which batches the engine executed lately, and what each of them had to compute."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from service.observed.batches import BatchTable
from service.observed.columns import Floats
from service.observed.history import History

MOST_BATCHES: Final = 300
LONGEST_AGO_S: Final = 300.0


@dataclass(frozen=True)
class Executed:
    """One entry a batch, in order of `finished_s`.

    Attributes:
        steps: decode steps, as many as its longest completion has tokens.
        tokens: generated for all members.
        prompt_tokens: read before the first step, for all members, padding included.
        run_s: from its start to its end.
        finished_s: when it ended.
    """

    size: Floats
    steps: Floats
    tokens: Floats
    prompt_tokens: Floats
    run_s: Floats
    finished_s: Floats

    def __len__(self) -> int:
        return len(self.size)

    @classmethod
    def of_history(cls, history: History, at_s: float | None = None) -> Executed:
        """The last batches that had run to their end at `at_s` (now)."""
        latest_s = history.now_s() if at_s is None else at_s
        table = history.batches.columns
        chosen = (table["finished"] <= latest_s) & (table["finished"] > latest_s - LONGEST_AGO_S)
        chosen &= np.isfinite(table["started"]) & (table["tokens"] > 0) & (table["finished"] > table["started"])
        rows = np.flatnonzero(chosen)
        rows = rows[np.argsort(table["finished"][rows], kind="stable")][-MOST_BATCHES:]
        return cls._of_rows(history.batches, rows)

    @classmethod
    def _of_rows(cls, batches: BatchTable, rows: np.ndarray[tuple[int, ...], np.dtype[np.int_]]) -> Executed:
        table = batches.columns
        column = {name: table[name][rows].astype(float) for name in ("size", "steps", "tokens", "computed")}
        is_told = column["steps"] > 0  # an engine that tells nothing of its work gave each member as many tokens
        steps = np.where(is_told, column["steps"], column["tokens"] / column["size"])
        prompt_tokens = np.where(is_told, column["computed"] - (column["tokens"] - column["size"]), 0.0)
        finished_s = table["finished"][rows]
        return cls(
            size=column["size"],
            steps=steps,
            tokens=column["tokens"],
            prompt_tokens=np.maximum(prompt_tokens, 0.0),
            run_s=finished_s - table["started"][rows],
            finished_s=finished_s,
        )

    def shifted(self, by_s: float) -> Executed:
        """The same with all ends moved in time."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return Executed(**{**values, "finished_s": self.finished_s + by_s})
