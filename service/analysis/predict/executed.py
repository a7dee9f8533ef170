"""The batches that the engine executed lately, and the work in each of them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from service.analysis.observed.batches import CONTINUOUS
from service.analysis.observed.columns import Bools, Floats, Ints
from service.analysis.observed.history import History

MOST_BATCHES: Final = 300
LONGEST_AGO_S: Final = 300.0
SLICE_S: Final = 0.5  # segments of a continuous batch are joined to slices of this run time


@dataclass(frozen=True)
class Executed:
    """Executed batches, one entry each, in order of `finished_s`; segments of `continuous` are joined to half seconds.

    Attributes:
        size: rows, on average over the steps.
        steps: decode steps, as many as a batch's longest completion has tokens.
        tokens: generated for all members. A function's call is one step, with one token for each member.
        pieces: pieces of the members' answers; of text, as many as tokens.
        prompt_tokens: read before the first step, for all members, padding included.
        begun: requests that began to run in it.
        is_open: whether others could join.
    """

    size: Floats
    steps: Floats
    tokens: Floats
    pieces: Floats
    prompt_tokens: Floats
    run_s: Floats
    finished_s: Floats
    begun: Floats
    is_open: Bools

    def __len__(self) -> int:
        return len(self.size)

    @classmethod
    def of_history(cls, history: History, at_s: float | None = None) -> Executed:
        """The last batches that had ended at `at_s` (now)."""
        latest_s = history.now_s() if at_s is None else at_s
        table = history.batches.columns
        chosen = (table["finished"] <= latest_s) & (table["finished"] > latest_s - LONGEST_AGO_S)
        chosen &= np.isfinite(table["started"]) & (table["tokens"] > 0) & (table["finished"] > table["started"])
        chosen &= table["started"] >= history.service_begun_s(latest_s)  # an earlier service may have had another model
        chosen &= table["started"] >= _places_since_s(history, latest_s)
        rows = np.flatnonzero(chosen)
        rows = rows[np.argsort(table["finished"][rows], kind="stable")]
        return cls._of_rows(history, rows)._in_slices(table["slot"][rows])._latest()

    @classmethod
    def _of_rows(cls, history: History, rows: Ints) -> Executed:
        table = history.batches.columns
        names = ("size", "steps", "tokens", "computed", "prompts")
        column = {name: table[name][rows].astype(float) for name in names}
        pieces = column["tokens"]
        is_open: Bools = table["formation"][rows] == CONTINUOUS
        is_known = column["steps"] > 0  # an engine that reports no work gave each member as many tokens
        steps = np.where(is_known, column["steps"], pieces / column["size"])
        is_call = pieces > (steps + 1) * column["size"]  # more than a step's rows and the prompts can give
        tokens = np.where(is_call, steps * column["size"], pieces)
        prompt_tokens = np.where(is_known, column["computed"] - (tokens - column["size"]), 0.0)
        prompt_tokens = np.where(is_open | (column["prompts"] > 0), column["prompts"], prompt_tokens)
        finished_s = table["finished"][rows]
        return cls(
            size=column["size"],
            steps=steps,
            tokens=tokens,
            pieces=pieces,
            prompt_tokens=np.maximum(prompt_tokens, 0.0),
            run_s=finished_s - table["started"][rows],
            finished_s=finished_s,
            begun=np.where(is_open, _joined(history)[rows], column["size"]),
            is_open=is_open,
        )

    @property
    def pieces_per_token(self) -> float:
        """Pieces of answers for each token of work: 1, unless a function streams."""
        return float(self.pieces.sum() / self.tokens.sum())

    def _latest(self) -> Executed:
        order = np.argsort(self.finished_s, kind="stable")[-MOST_BATCHES:]
        return Executed(*(getattr(self, field.name)[order] for field in fields(self)))

    def _in_slices(self, slot: Ints) -> Executed:
        """Join segments of one engine in a row, since a segment can be as short as a step and is then mostly noise."""
        if not self.is_open.any():
            return self
        _, slice_of = np.unique(self._slices(slot), axis=0, return_inverse=True)

        def summed(values: Floats | Bools) -> Floats:
            return np.bincount(slice_of, values).astype(float)

        steps, tokens = summed(self.steps), summed(self.tokens)
        finished_s = np.full(len(steps), -np.inf)
        np.maximum.at(finished_s, slice_of, self.finished_s)
        is_open = summed(self.is_open) > 0
        return Executed(
            size=np.where(is_open, np.maximum(tokens / steps, 1.0), summed(self.size)),
            steps=steps,
            tokens=tokens,
            pieces=summed(self.pieces),
            prompt_tokens=summed(self.prompt_tokens),
            run_s=summed(self.run_s),
            finished_s=finished_s,
            begun=summed(self.begun),
            is_open=is_open,
        )

    def _slices(self, slot: Ints) -> Ints:
        """Two numbers an entry that identify its slice; a batch that others could not join is one by itself."""
        slice_of = np.arange(len(self))
        for each in np.unique(slot[self.is_open]):
            mine = self.is_open & (slot == each)
            slice_of[mine] = (np.cumsum(self.run_s[mine]) - self.run_s[mine] / 2) // SLICE_S
        return np.stack([np.where(self.is_open, slot, -1), slice_of], axis=1)


def _joined(history: History) -> Ints:
    """The number of requests that began to run in each batch that is kept."""
    batches, requests = history.batches.columns, history.requests.columns
    batch = requests["batch"] - batches.first
    return np.bincount(batch[batch >= 0], minlength=len(batches))


def _places_since_s(history: History, at_s: float) -> float:
    """Since when as many batches run at a time as at `at_s`; batches that share an engine have other costs."""
    changes = [each for each in history.changes() if each.in_force_s <= at_s]
    others = (each.in_force_s for each in reversed(changes) if each.previous.places != each.settings.places)
    return next(others, -np.inf)
