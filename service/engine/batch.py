"""The rows that are decoded together: one forward pass a step over those that are not done yet.

Rows are padded on the left, so that all of them end in the same column:

    column   0  1  2  3  4 | 5  6
    row 0    O  n  c  e  _ | u  p      pad 0, positions 0 … 6
    row 1    ·  ·  ·  H  i | !  _      pad 3, positions 0 … 3
             prompts       | one column a step

The longest row comes first. Prompts are read some columns at a time, and only by the rows that have begun, so that a
long prompt costs its short mates nothing, needs no memory for their padding, and can be cancelled half-way.

A batch whose prompts are read can take over the rows of another: these get the padding that lets all end together.
"""

from __future__ import annotations

import inspect
import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import torch
from torch import Tensor

from service.engine.cache import BatchCache
from service.engine.row import Row
from service.engine.sampling import next_tokens
from service.messages.telemetry import BatchWork

_PREFILL_TOKENS = {"cpu": 512}  # of prompts in one forward pass: about a quarter of a second on two cores
_PREFILL_TOKENS_ELSEWHERE = 8192
_JOINING_TOKENS = {"cpu": 64}  # the same while others are decoded, who wait meanwhile: about as long as for a step
_JOINING_TOKENS_ELSEWHERE = 1024


class Forward:
    """A model's forward pass, given those arguments that its architecture takes."""

    def __init__(self, model: Any, device: torch.device) -> None:
        self.device = device
        self.prefill_tokens = _PREFILL_TOKENS.get(device.type, _PREFILL_TOKENS_ELSEWHERE)
        self.joining_tokens = _JOINING_TOKENS.get(device.type, _JOINING_TOKENS_ELSEWHERE)
        self._model = model
        accepted = inspect.signature(model.forward).parameters
        self._takes_positions = "position_ids" in accepted
        # By index, not by the count 1: that would give a strided view, for which torch 2.13's CPU matmul first copies
        # the output layer's weights once for each row (0.9 s at 16 rows of SmolLM2-135M instead of 7 ms).
        last = torch.tensor([-1], device=device)
        self._last_only = {"logits_to_keep": last} if "logits_to_keep" in accepted else {}

    def __call__(self, ids: Tensor, mask: Tensor | None, positions: Tensor, cache: BatchCache) -> Tensor:
        """The logits that follow the last column of `ids`, [rows, vocabulary]."""
        arguments = {"position_ids": positions, **self._last_only} if self._takes_positions else self._last_only
        output = self._model(
            input_ids=ids, attention_mask=mask, past_key_values=cache, use_cache=True, return_dict=True, **arguments
        )
        logits: Tensor = output.logits[:, -1]
        if logits.shape[0] != ids.shape[0]:
            raise ValueError(f"the model answered {logits.shape[0]} of {ids.shape[0]} rows")
        return logits


@dataclass(frozen=True, slots=True)
class Step:
    """The next token of each row, and whether its logits were fit to choose from."""

    tokens: list[int]
    is_fit: list[bool]


class Batch:
    """Rows, their cache and the tokens that are not in it yet.

    Attributes:
        rows: those that are computed.
        has_read: whether all prompts are in the cache.
        work: what was computed so far.
        prefill_tokens: of prompts in one forward pass.
    """

    def __init__(self, forward: Forward, rows: Sequence[Row], *, is_open: bool = False) -> None:
        """Where it `is_open`, others may take the places of rows that have ended: none is vacant."""
        self.prefill_tokens = forward.prefill_tokens
        self.rows = sorted(rows, key=lambda row: row.length, reverse=True)
        self._forward = forward
        self._cache = BatchCache(len(self.rows))
        self._columns = 0  # in the cache
        self.has_read = False
        self._places = 0 if is_open else len(self.rows)
        self.work = BatchWork()
        width = self.rows[0].length
        self._set_pads([width - row.length for row in self.rows])
        padded = [[0] * pad + row.token_ids for pad, row in zip(self._pads, self.rows, strict=True)]
        self._unread = torch.tensor(padded, device=forward.device)

    @torch.inference_mode()
    def step(self) -> Step | None:
        """One forward pass over the rows that are not done. Returns ``None`` as long as prompts remain unread."""
        begun_s = time.perf_counter()
        self._drop_done()
        end = self._next_end()
        logits = self._read(end, self._active(end))
        if self._unread.shape[1]:
            self._count(prefill_s=time.perf_counter() - begun_s)
            return None
        tokens, fit = next_tokens(logits, [draw for i, row in enumerate(self.rows) if (draw := row.draw(i))])
        self._unread = tokens[:, None]
        chosen, is_fit = torch.stack((tokens, fit)).tolist()  # the one wait for the device in a step
        self._count(steps=1, vacant=max(self._places - len(self.rows), 0))
        if not self.has_read:
            self._count(prefill_s=time.perf_counter() - begun_s)
            self.has_read = True
        return Step(chosen, [bool(flag) for flag in is_fit])

    @torch.inference_mode()
    def absorb(self, other: Batch) -> None:
        """Go on with the rows of another batch as well; the prompts of both are read."""
        for batch in (self, other):
            batch._drop_done()
        columns = max(self._columns, other._columns)
        self._cache.append(other._cache)
        self._set_pads([pad + columns - batch._columns for batch in (self, other) for pad in batch._pads])
        self._columns = columns
        self._unread = torch.cat((self._unread, other._unread))
        self.rows = [*self.rows, *other.rows]
        self._count(**msgspec.structs.asdict(other.work))

    def _count(self, **counts: float) -> None:
        sums = {name: getattr(self.work, name) + count for name, count in counts.items()}
        self.work = msgspec.structs.replace(self.work, **sums)

    def _drop_done(self) -> None:
        """Take the rows that are done out of the computation; the last rows move to their places."""
        rows = self.rows
        kept = [i for i, row in enumerate(rows) if not row.is_done]
        if len(kept) == len(rows):
            return
        moving = [i for i in kept if i >= len(kept)]
        order = [moving.pop() if rows[i].is_done else i for i in range(len(kept))]
        self.rows = [rows[i] for i in order]
        self._unread = self._unread[order]
        self._cache.keep(order)
        self._set_pads([self._pads[i] for i in order])
        self._trim()

    def _read(self, end: int, active: int) -> Tensor:
        """Put the columns up to `end` of the first `active` rows through the model."""
        ids = self._unread[:active, : end - self._columns]
        columns = torch.arange(end, device=ids.device)
        pads = self._pad_column[:active]
        mask = columns >= pads if any(self._pads[:active]) else None
        positions = (columns[self._columns :] - pads).clamp_(min=0)
        logits = self._forward(ids, mask, positions, self._cache)
        padding = sum(min(max(pad - self._columns, 0), ids.shape[1]) for pad in self._pads[:active])
        self._count(computed=ids.numel(), padding=padding, prompts=0 if self.has_read else ids.numel())
        self._unread = self._unread[:, end - self._columns :]
        self._columns = end
        return logits

    def _next_end(self) -> int:
        """Up to which column to read next: at least one, and no more tokens at a time than are allowed."""
        start, stop = self._columns, self._columns + self._unread.shape[1]
        ends = range(start + 1, stop + 1)
        fitting = bisect_right(ends, self.prefill_tokens, key=lambda end: (end - start) * self._active(end))
        return ends[max(fitting, 1) - 1]

    def _active(self, end: int) -> int:
        """How many of the first rows hold all that have a token before column `end`."""
        return next(i for i in range(len(self._pads), 0, -1) if self._pads[i - 1] < end)

    def _set_pads(self, pads: list[int]) -> None:
        self._pads = pads
        self._pad_column = torch.tensor(pads, device=self._forward.device)[:, None]

    def _trim(self) -> None:
        """Drop leading columns that are padding in every row, once they are a quarter of all."""
        spare = min(self._pads, default=0)
        if 4 * spare <= self._columns:
            return
        self._cache.trim(min(spare, self._columns))
        self._unread = self._unread[:, max(spare - self._columns, 0) :]
        self._columns = max(self._columns - spare, 0)
        self._set_pads([pad - spare for pad in self._pads])
