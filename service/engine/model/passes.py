"""A forward pass: the next columns of some batches, each behind what its cache holds."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn


class Span(NamedTuple):
    """The rows from `first` to before `end`, which attend to the first `columns` columns."""

    first: int
    end: int
    columns: int


class Part(NamedTuple):
    """What a batch has computed in a pass.

    Attributes:
        ids: tokens, [rows, columns].
        positions: of these, [rows, columns].
        mask: which columns a row has, those in the cache included, [rows, all columns]; ``None`` if every one.
        cache: a transformers cache, which the pass adds the columns to.
        spans: where the rows of a step attend span by span, so that none depends on the others.
        is_graphed: a graph is captured of it, which holds for whatever the mask and the positions will be.
    """

    ids: Tensor
    positions: Tensor
    mask: Tensor | None
    cache: Any
    spans: Sequence[Span] = ()
    is_graphed: bool = False


ForwardPass: TypeAlias = Callable[[Sequence[Part]], Tensor]
"""Gives the logits that follow the last column of each part, [rows of all parts, vocabulary]."""


def added_mask(part: Part, dtype: torch.dtype, hidden: float = -math.inf) -> Tensor | None:
    """What is added to the scores of a part: 0, or `hidden`, [rows, 1, columns or 1, all columns].

    ``None`` if each column attends to itself and all that came before it.
    """
    columns, held = part.ids.shape[1], part.cache.get_seq_length()
    visible = None if part.mask is None else part.mask[:, None, None]
    if columns > 1 and (held or visible is not None):
        before = torch.ones(columns, held + columns, dtype=torch.bool, device=part.ids.device).tril_(held)
        visible = before[None, None] if visible is None else before & visible
    if visible is None:
        return None
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(~visible, hidden)


class OwnPass(nn.Module):
    """transformers' own forward pass of any architecture, which takes the parts one after the other."""

    def __init__(self, model: Any, device: torch.device) -> None:
        super().__init__()
        self._model = model
        accepted = inspect.signature(model.forward).parameters
        self._takes_positions = "position_ids" in accepted
        # By index, not by the count 1: that would give a strided view, for which torch 2.13's CPU matmul first copies
        # the output layer's weights once for each row (0.9 s at 16 rows of SmolLM2-135M instead of 7 ms).
        last = torch.tensor([-1], device=device)
        self._last_only = {"logits_to_keep": last} if "logits_to_keep" in accepted else {}

    def forward(self, parts: Sequence[Part]) -> Tensor:
        logits = [self._logits(part) for part in parts]
        return logits[0] if len(logits) == 1 else torch.cat(logits)

    def _logits(self, part: Part) -> Tensor:
        arguments = {"position_ids": part.positions, **self._last_only} if self._takes_positions else self._last_only
        output = self._model(
            input_ids=part.ids,
            attention_mask=self._mask(part),
            past_key_values=part.cache,
            use_cache=True,
            return_dict=True,
            **arguments,
        )
        logits: Tensor = output.logits[:, -1]
        if logits.shape[0] != part.ids.shape[0]:
            raise ValueError(f"the model answered {logits.shape[0]} of {part.ids.shape[0]} rows")
        return logits

    def _mask(self, part: Part) -> Tensor | None:
        """transformers makes a mask by looking at what it is given, for which it would wait for a GPU.

        Where it computes softmax by itself, −∞ would make NaN of a column of padding, which attends to nothing.
        """
        if not part.is_graphed:
            return part.mask
        dtype = next(self._model.parameters()).dtype
        return added_mask(part, dtype, torch.finfo(dtype).min)
