"""A Llama's forward pass in as few operations as it takes, over several batches at once.

A decode step of a small model is hundreds of operations of a few microseconds each, and what calls them costs as much
as they do. Here queries, keys and values come from one product, as do the two halves of the feed-forward layer, and
queries and keys are rotated together. The tokens of all parts go through one layer after the other side by side, and
only attention is computed for each part by itself: so the prompts of newcomers cost little more than their rows do,
where a pass of their own would read all weights once more.

With the operators `AS_TRANSFORMERS` every number is rounded where transformers rounds it. Results differ only by the
order in which a device's matrix kernels add, which in bfloat16 on the CPU is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from service.engine.model.linear import OnlyInferring
from service.engine.model.passes import Part, Span, added_mask
from service.engine.model.report import LoadReport, keep_quiet, reported

MOST_COLUMNS: Final = 512  # of prompts, up to which a kernel of our own attends
MOST_TOKENS: Final = 1024  # of a pass that is computed at once, which keeps its memory

MakeLinear: TypeAlias = type[OnlyInferring]
"""Makes one layer of several linear ones that get the same input; their outputs stand one behind the other."""


class Operators(NamedTuple):
    """How is computed what is no product with weights.

    Attributes:
        normalized: inputs, by the root of their mean square, and the weights of a norm layer.
        rotation: from cosines and sines, both [tokens, size], what rotates the heads of these tokens.
        rotated: heads, [tokens, heads, size].
        number: between products; ``None``: that of the weights.
        attended: what the tokens of a part that it `attends` to attend to, from their heads that are not rotated yet,
            which keeps their keys and values; ``None``: as all others.
        attends: whether it does a part.
        whole: from the layers, the last norm and the output, what computes a whole pass at once, or ``None``.
    """

    normalized: Callable[[Tensor, Any], Tensor]
    rotation: Callable[[Tensor, Tensor], tuple[Tensor, ...]]
    rotated: Callable[..., Tensor]
    number: torch.dtype | None = None
    attended: Callable[..., Tensor] | None = None
    attends: Callable[[Part], bool] = lambda part: False
    whole: Callable[..., Any] | None = None


class LeanLlama(nn.Module):
    """Uses the weights of a `LlamaForCausalLM`, or of a model whose layers compute as its do."""

    def __init__(
        self, model: Any, linear: MakeLinear, report: LoadReport = keep_quiet, operators: Operators | None = None
    ) -> None:
        """`operators`: by default those that round as transformers does."""
        super().__init__()
        self._operators = operators or AS_TRANSFORMERS
        self._tokens = model.model.embed_tokens
        self._rotation = model.model.rotary_emb
        layers = reported(model.model.layers, "layers", report)
        self._layers = nn.ModuleList(LeanLayer(layer, linear, self._operators) for layer in layers)
        self._norm = model.model.norm
        self._output = linear(model.lm_head)
        whole = self._operators.whole
        self._whole = None if whole is None else whole(list(self._layers), self._norm, self._output)

    def forward(self, parts: Sequence[Part]) -> Tensor:
        """The logits that follow the last column of each part, [rows of all parts, vocabulary]."""
        sizes = [part.ids.numel() for part in parts]
        tokens = self._tokens(_flat(part.ids for part in parts))
        hidden = tokens.to(self.number)
        is_short = [self._operators.attends(part) for part in parts]
        rotation = self._rotate_by(hidden, _flat(part.positions for part in parts), is_given=all(is_short))
        if self._whole is not None and all(is_short) and len(hidden) <= MOST_TOKENS:
            return self._whole.logits(hidden, rotation, parts)  # type: ignore[no-any-return]
        scopes = [
            Scope.of_short(part) if short else Scope.of(part, tokens.dtype)
            for part, short in zip(parts, is_short, strict=True)
        ]
        for layer in self._layers:
            hidden = layer(hidden, rotation, scopes)
        lasts = [
            each.view(*part.ids.shape, -1)[:, -1] for part, each in zip(parts, torch.split(hidden, sizes), strict=True)
        ]
        logits: Tensor = self._output(self._operators.normalized(torch.cat(lasts), self._norm))
        return logits

    @property
    def number(self) -> torch.dtype:
        """What is kept between products."""
        dtype: torch.dtype = self._tokens.weight.dtype
        return self._operators.number or dtype

    def linears(self) -> Iterator[tuple[nn.Module, int]]:
        """One linear layer of each kind, and how many inputs it has."""
        for layer in self._layers[:1]:
            assert isinstance(layer, LeanLayer)
            yield from layer.linears()
        yield self._output, self._tokens.embedding_dim

    def _rotate_by(self, hidden: Tensor, positions: Tensor, *, is_given: bool) -> tuple[Tensor, ...]:
        """What the operators rotate by; for kernels of our own, cosines and sines as the model gives them."""
        cosines, sines = self._rotation(hidden, position_ids=positions[None])
        if is_given:
            return cosines[0].contiguous(), sines[0].contiguous()
        return self._operators.rotation(cosines[0], sines[0])


class Scope(NamedTuple):
    """What the tokens of a part attend to."""

    rows: int
    columns: int
    mask: Tensor | None  # as `added_mask` gives it
    cache: Any
    spans: Sequence[tuple[Span, Tensor]] = ()  # with their masks
    short: Part | None = None  # for a kernel of our own, which needs no other mask

    @classmethod
    def of_short(cls, part: Part) -> Scope:
        rows, columns = part.ids.shape
        return cls(rows, columns, None, part.cache, short=part)

    @classmethod
    def of(cls, part: Part, dtype: torch.dtype) -> Scope:
        rows, columns = part.ids.shape
        mask = added_mask(part, dtype)
        if mask is None:
            return cls(rows, columns, None, part.cache)
        spans = [(span, mask[span.first : span.end, ..., : span.columns]) for span in part.spans]
        return cls(rows, columns, mask, part.cache, spans)


def has_few_columns(part: Part) -> bool:
    """Whether a part is computed by our own kernel, which is slower than torch's where many attend to many."""
    columns = part.ids.shape[1]
    return columns == 1 or columns + part.cache.get_seq_length() <= MOST_COLUMNS


class LeanLayer(nn.Module):
    """A decoder layer."""

    def __init__(self, layer: Any, linear: MakeLinear, operators: Operators) -> None:
        super().__init__()
        self._operators = operators
        attention, mlp = layer.self_attn, layer.mlp
        self.index: int = attention.layer_idx
        self.scale: float = attention.scaling
        self.size: int = attention.head_dim
        self.queries = attention.q_proj.out_features // self.size
        self.keys = attention.k_proj.out_features // self.size
        self.qkv = linear(attention.q_proj, attention.k_proj, attention.v_proj)
        self.out = linear(attention.o_proj)
        self.gated = linear.gated(mlp.gate_proj, mlp.up_proj)
        self.down = linear(mlp.down_proj)
        self.intermediate: int = mlp.down_proj.in_features
        self.kept: torch.dtype = attention.k_proj.weight.dtype
        self.before_attention, self.before_mlp = layer.input_layernorm, layer.post_attention_layernorm

    def forward(self, hidden: Tensor, rotation: tuple[Tensor, ...], scopes: Sequence[Scope]) -> Tensor:
        attended = self._attend(self._operators.normalized(hidden, self.before_attention), rotation, scopes)
        hidden = self.out.added(attended, hidden)
        return self.down.added(self.gated(self._operators.normalized(hidden, self.before_mlp)), hidden)

    def linears(self) -> Iterator[tuple[nn.Module, int]]:
        """The linear layers, and how many inputs each has."""
        hidden = self.before_mlp.weight.numel()
        of = (hidden, self.queries * self.size, hidden, self.intermediate)
        yield from zip((self.qkv, self.out, self.gated, self.down), of, strict=True)

    def _attend(self, inputs: Tensor, rotation: tuple[Tensor, ...], scopes: Sequence[Scope]) -> Tensor:
        heads = self.qkv(inputs).view(len(inputs), -1, self.size)
        sizes = [scope.rows * scope.columns for scope in scopes]
        if self._operators.number is None and all(scope.short is None for scope in scopes):
            rotated = torch.split(self._operators.rotated(heads[:, : self.queries + self.keys], *rotation), sizes)
            values = torch.split(heads[:, self.queries + self.keys :], sizes)
            attended = [self._attend_within(*each) for each in zip(scopes, rotated, values, strict=True)]
        elif len(scopes) == 1:
            return self._attend_by_itself(scopes[0], heads, rotation)
        else:
            own = zip(scopes, torch.split(heads, sizes), *(torch.split(each, sizes) for each in rotation), strict=True)
            attended = [self._attend_by_itself(scope, part, by) for scope, part, *by in own]
        return attended[0] if len(attended) == 1 else torch.cat(attended)

    def _attend_by_itself(self, scope: Scope, heads: Tensor, rotation: Sequence[Tensor]) -> Tensor:
        """A part in numbers other than those of keys and values that are kept."""
        operators = self._operators
        if scope.short is not None and operators.attended is not None:
            return operators.attended(heads, rotation, scope.short, self)
        rotated = operators.rotated(heads[:, : self.queries + self.keys], *rotation)
        values = heads[:, self.queries + self.keys :]
        return self._attend_within(scope, rotated.to(self.kept), values.to(self.kept)).to(heads.dtype)

    def _attend_within(self, scope: Scope, rotated: Tensor, values: Tensor) -> Tensor:
        rows, columns = scope.rows, scope.columns
        both = rotated.view(rows, columns, -1, self.size).transpose(1, 2)
        queries, keys = both[:, : self.queries], both[:, self.queries :]
        values = values.view(rows, columns, -1, self.size).transpose(1, 2)
        keys, values = scope.cache.update(keys, values, self.index)
        if columns == 1:  # all queries that share a key are rows of one product
            queries = queries.reshape(rows, self.keys, -1, self.size)
        if scope.spans:
            return torch.cat([self._attend_in(*each, queries, keys, values) for each in scope.spans])
        is_causal, is_grouped = scope.mask is None and columns > 1, columns > 1
        if is_grouped and scope.mask is not None and keys.is_cuda:
            # Its only kernel for both at once holds the weights of all columns for all: 4 GiB at 4,000 tokens.
            keys, values, is_grouped = self._for_each_query(keys), self._for_each_query(values), False
        attended = functional.scaled_dot_product_attention(
            queries, keys, values, scope.mask, is_causal=is_causal, scale=self.scale, enable_gqa=is_grouped
        )
        if columns > 1:
            attended = attended.transpose(1, 2)
        return attended.reshape(rows * columns, -1)

    def _attend_in(self, span: Span, mask: Tensor, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        of_rows = slice(span.first, span.end)
        keys, values = keys[of_rows, :, : span.columns], values[of_rows, :, : span.columns]
        attended = functional.scaled_dot_product_attention(queries[of_rows], keys, values, mask, scale=self.scale)
        return attended.reshape(span.end - span.first, -1)

    def _for_each_query(self, keys: Tensor) -> Tensor:
        """Keys or values as often as queries share them."""
        return keys.repeat_interleave(self.queries // self.keys, dim=1)


def _normalized(inputs: Tensor, norm: Any) -> Tensor:
    """Rounded before the weights count."""
    result: Tensor = norm.weight * functional.rms_norm(inputs, inputs.shape[-1:], None, norm.variance_epsilon)
    return result


def _rotation(cosines: Tensor, sines: Tensor) -> tuple[Tensor, Tensor]:
    """With the signs of the halves that change places."""
    low, high = sines.chunk(2, dim=-1)
    return cosines[:, None], torch.cat((-low, high), dim=-1)[:, None]


def _rotated(heads: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    low, high = heads.chunk(2, dim=-1)
    return heads * cosines + torch.cat((high, low), dim=-1) * sines


def halves_rotated(heads: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """By cosines and sines as a model gives them, [tokens, size]."""
    return _rotated(heads, *_rotation(cosines, sines))


AS_TRANSFORMERS: Final = Operators(_normalized, _rotation, _rotated)


def _normalized_at_once(inputs: Tensor, norm: Any) -> Tensor:
    return functional.rms_norm(inputs, inputs.shape[-1:], norm.weight, norm.variance_epsilon)


def _rotation_matrices(cosines: Tensor, sines: Tensor) -> tuple[Tensor]:
    """[tokens, size, size]: the cosines on the diagonal, and where the halves change places the sines."""
    _, signed = _rotation(cosines, sines)
    half = cosines.shape[-1] // 2
    return (torch.diag_embed(cosines) + torch.diag_embed(signed[:, 0]).roll(half, dims=-2),)


AT_ONCE: Final = Operators(_normalized_at_once, _rotation_matrices, torch.bmm)
"""One operator for each, which rounds once: on a GPU an operator of a small model takes its launch and no more."""


def _flat(tensors: Iterable[Tensor]) -> Tensor:
    flat = [tensor.reshape(-1) for tensor in tensors]
    return flat[0] if len(flat) == 1 else torch.cat(flat)
