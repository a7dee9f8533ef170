"""The next token of every row of a batch at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

_NUCLEUS_TOKENS = 1024  # the likeliest, which are sorted; the whole vocabulary only if they fall short
IMPOSSIBLE: Final = -9999.0
"""The logarithm of no probability, as OpenAI's clients know it: JSON cannot write −∞."""


@dataclass(frozen=True, slots=True)
class Draw:
    """What one row needs besides its logits to be sampled; `uniform` is from [0, 1)."""

    row: int
    temperature: float
    top_p: float
    uniform: float


def next_tokens(logits: Tensor, draws: Sequence[Draw]) -> tuple[Tensor, Tensor]:
    """For logits of shape [rows, vocabulary] the tokens and whether each row's logits were fit to choose from.

    Rows without a draw get the likeliest token. A row is unfit if a logit is NaN or +∞ or all are −∞.
    """
    highest, tokens = logits.max(dim=-1)
    fit = highest.isfinite()
    if draws:
        rows = on_device([draw.row for draw in draws], logits.device)
        relative = logits[rows].float() - highest[rows, None].float()
        tokens[rows] = _sample(relative.nan_to_num(nan=0.0, posinf=0.0, neginf=float("-inf")), draws)
    return tokens, fit


def log_probabilities(logits: Tensor, tokens: Tensor, rows: Sequence[int], most: int) -> Tensor:
    """The logarithms of the probabilities of these rows' `tokens` and of their `most` likeliest tokens.

    [rows, 1 + 2 * most]: the first is of the token itself, and the ids of the likeliest stand behind theirs.
    """
    at = on_device(rows, logits.device)
    logarithms = torch.log_softmax(logits[at].float(), dim=-1).clamp_(min=IMPOSSIBLE)
    highest, ids = logarithms.topk(min(most, logits.shape[-1]), dim=-1)
    return torch.cat((logarithms.gather(1, tokens[at, None]), highest, ids.float()), dim=1)


def _sample(logits: Tensor, draws: Sequence[Draw]) -> Tensor:
    """Invert the cumulative distribution of each row at its own uniform number; the highest logit of a row is 0."""
    settings = on_device([(d.temperature, d.top_p, d.uniform) for d in draws], logits.device)
    temperature, top_p, uniform = settings.T[:, :, None].unbind()
    probabilities = torch.softmax(logits / temperature, dim=-1)
    tokens = _invert(probabilities, uniform)
    cut = [i for i, draw in enumerate(draws) if draw.top_p < 1]
    if cut:
        rows = on_device(cut, logits.device)
        tokens[rows] = _sample_nucleus(probabilities[rows], top_p[rows], uniform[rows])
    return tokens


def _sample_nucleus(probabilities: Tensor, top_p: Tensor, uniform: Tensor) -> Tensor:
    """Like `_invert`, over the fewest tokens of each row whose probabilities reach `top_p`."""
    highest, tokens = _likeliest(probabilities, top_p)
    before = highest.cumsum(dim=-1) - highest
    nucleus = torch.where(before < top_p, highest, 0.0)
    return tokens.gather(1, _invert(nucleus, uniform)[:, None])[:, 0]


def _likeliest(probabilities: Tensor, top_p: Tensor) -> tuple[Tensor, Tensor]:
    """The likeliest tokens of each row, at least those that reach `top_p`, the likeliest first."""
    if not probabilities.is_cuda:  # where asking whether they are enough would be a wait
        highest, tokens = probabilities.topk(min(_NUCLEUS_TOKENS, probabilities.shape[-1]))
        if not bool((highest.sum(dim=-1, keepdim=True) < top_p).any()):
            return highest, tokens
    highest, tokens = probabilities.sort(descending=True)
    return highest, tokens


def _invert(weights: Tensor, uniform: Tensor) -> Tensor:
    """The first index at which the running sum of each row's weights exceeds its share `uniform` of their total."""
    cumulative = weights.cumsum(dim=-1)
    total = cumulative[:, -1:]
    below_total = torch.nextafter(total, torch.zeros_like(total))  # rounding must not lead past the last weight
    threshold = torch.minimum(uniform * total, below_total)
    return torch.searchsorted(cumulative, threshold, right=True)[:, 0]


def on_device(values: Any, device: torch.device) -> Tensor:
    """`values` (nested sequences of numbers) as a tensor there; a GPU copies them without a wait."""
    tensor = torch.tensor(values)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
