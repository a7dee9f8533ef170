"""The processor's kernels compute what torch does, a row alike beside any others."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from service.engine.model.linear import has_kernels
from service.engine.model.load import takes_int8

if not has_kernels():
    pytest.skip("there are no kernels for this processor", allow_module_level=True)

from service.engine.model import tiled
from service.engine.model.batch_cache import BatchCache, OwnColumns
from service.engine.model.by_kernels import BY_KERNELS
from service.engine.model.lean import halves_rotated
from service.engine.model.passes import Part
from service.engine.model.vectors import BLOCK, HAS_PAIRS
from tests.unit.tiny_models import published

needs_bytes = pytest.mark.skipif(not takes_int8(), reason="this processor has no products of bytes")
needs_pairs = pytest.mark.skipif(not HAS_PAIRS, reason="this processor has no products of bfloat16")
LAYERS = [
    tiled.TiledLinear,
    pytest.param(tiled.PublishedLinear, marks=needs_bytes),
    pytest.param(tiled.TwofoldLinear, marks=needs_bytes),
    pytest.param(tiled.EightBitLinear, marks=needs_bytes),
]
SIZES = [(1, 8), (47, 90), (48, 64), (49, 4), (200, 130)]  # outputs, inputs
ROWS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 33]


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(params=[1, 2], ids=["one thread", "two threads"])
def threads(request: pytest.FixtureRequest) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


def matrix(outputs: int, inputs: int) -> Tensor:
    return torch.randn(outputs, inputs).bfloat16()


def in_8_bits(inputs: Tensor) -> Tensor:
    """Rounded as bytes, of which 127 is the largest of each 32 of a row."""
    blocks = functional.pad(inputs, (0, -inputs.shape[1] % BLOCK)).unflatten(1, (-1, BLOCK))
    largest = blocks.abs().amax(-1, keepdim=True).clamp(min=1e-30)
    return ((blocks * (127 / largest)).round() * (largest / 127)).flatten(1)[:, : inputs.shape[1]]


class Kind(NamedTuple):
    """How weights are kept, such as they are, and what becomes of the inputs."""

    weigh: Callable[..., tiled.Weights]
    matrix: Callable[[int, int], Tensor] = matrix
    rounded: Callable[[Tensor], Tensor] = Tensor.float


KINDS = [
    pytest.param(Kind(tiled.HalfWeights.of), id="bfloat16"),
    pytest.param(Kind(tiled.PairWeights.of, rounded=lambda of: of.bfloat16().float()), id="pairs", marks=needs_pairs),
    *(
        pytest.param(Kind(tiled.as_published, partial(published, bits)), id=f"{bits} bits", marks=needs_bytes)
        for bits in (4, 8)
    ),
    pytest.param(Kind(tiled.in_bytes, partial(published, 4), in_8_bits), id="4 bits, bytes", marks=needs_bytes),
    pytest.param(Kind(tiled.in_bytes, partial(published, 8), in_8_bits), id="8 bits, bytes", marks=needs_bytes),
]


def expected_of(kind: Kind, inputs: Tensor, weights: Tensor) -> Tensor:
    return kind.rounded(inputs) @ weights.float().T


def assert_close(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found, wanted, rtol=0, atol=5e-4 * wanted.abs().max().item())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("outputs", "inputs"), SIZES)
def test_that_products_are_those_of_any_number_of_rows(kind: Kind, outputs: int, inputs: int, threads: None) -> None:
    weights = kind.matrix(outputs, inputs)
    packed = kind.weigh(weights)
    for rows in ROWS:
        of = torch.randn(rows, inputs)
        assert_close(tiled.product(packed, of), expected_of(kind, of, weights))


@pytest.mark.parametrize("kind", KINDS)
def test_that_what_was_before_is_added(kind: Kind, threads: None) -> None:
    weights, of, before = kind.matrix(100, 32), torch.randn(9, 32), torch.randn(9, 100)
    assert_close(tiled.product(kind.weigh(weights), of, before), before + expected_of(kind, of, weights))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("outputs", [5, 48, 130])
def test_that_the_first_of_two_matrices_gates_the_second(kind: Kind, outputs: int, threads: None) -> None:
    gates, others = kind.matrix(outputs, 64), kind.matrix(outputs, 64)
    of = torch.cat([torch.randn(10, 64), 100 * torch.randn(3, 64)])  # the latter far beyond what exp can hold
    wanted = functional.silu(expected_of(kind, of, gates)) * expected_of(kind, of, others)
    found = tiled.product(kind.weigh(gates, others), of)
    for row, other in zip(found, wanted, strict=True):
        assert_close(row, other)


@pytest.mark.parametrize("kind", KINDS)
def test_that_a_row_has_the_same_bits_beside_any_others(kind: Kind, threads: None) -> None:
    packed, of = kind.weigh(kind.matrix(200, 96)), torch.randn(40, 96)
    together = tiled.product(packed, of)
    for count in range(1, 40):
        assert torch.equal(tiled.product(packed, of[:count]), together[:count])
        assert torch.equal(tiled.product(packed, of[-count:]), together[-count:])


@pytest.mark.parametrize("kind", KINDS)
def test_that_rows_that_are_no_numbers_spoil_no_others(kind: Kind) -> None:
    packed, of = kind.weigh(kind.matrix(80, 96)), torch.randn(9, 96)
    expected = tiled.product(packed, of)
    of[0, 5], of[1], of[2, 7] = torch.nan, 0, torch.inf
    found = tiled.product(packed, of)
    assert not found[0].isfinite().any()
    assert not found[1].any()
    assert not found[2].isfinite().any()
    assert torch.equal(found[3:], expected[3:])


@needs_bytes
@pytest.mark.parametrize("bits", [4, 8])
def test_that_weights_are_kept_in_as_few_bits_as_they_were_published_in(bits: int) -> None:
    """Rounded to bfloat16, as a folder has them, they are recognised, and known better than by what is there."""
    exact = published(bits, 100, 96).double() * torch.linspace(0.7, 1.3, 100)[:, None]
    kept = tiled.as_published(exact.bfloat16())
    assert isinstance(kept, tiled.BlockWeights)
    assert kept.bits == bits
    of = torch.randn(5, 96)
    by_halves = of.double() @ exact.bfloat16().double().T
    wanted = of.double() @ exact.T
    assert (tiled.product(kept, of) - wanted).abs().mean() < (by_halves - wanted).abs().mean()


@needs_bytes
@needs_pairs
@pytest.mark.parametrize("bits", [4, 8])
def test_that_many_rows_are_multiplied_in_bfloat16_and_few_in_few_bits(
    bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiled, "pairs_are_quicker", lambda: True)
    gates, others, of = published(bits, 100, 96), published(bits, 100, 96), torch.randn(33, 96)
    both = tiled.as_published_and_in_halves(gates, others)
    few, many = tiled.BlockWeights.of(gates, others), tiled.PairWeights.of(gates, others)
    for rows in ROWS:
        expected = many if rows >= tiled.MANY_ROWS else few
        assert torch.equal(tiled.product(both, of[:rows]), tiled.product(expected, of[:rows]))


@needs_bytes
def test_that_other_weights_are_kept_in_bfloat16_or_where_that_is_wanted_rounded_to_8_bits() -> None:
    weights, of = matrix(100, 96), torch.eye(96)
    assert isinstance(tiled.as_published(weights), tiled.HalfWeights)
    rounded = tiled.BlockWeights.of(weights)
    assert rounded.bits == 8
    blocks = weights.float().view(100, 3, BLOCK)
    apart = tiled.product(rounded, of).T.view(100, 3, BLOCK) - blocks
    assert (apart.abs() <= 1.1 * blocks.abs().amax(-1, keepdim=True) / 254).all()


@needs_bytes
def test_that_inputs_count_in_proportion_to_the_largest_beside_them() -> None:
    """One that is a thousand times as large as others spoils none that stand apart from it."""
    weights, of = published(4, 50, 64), torch.randn(3, 64)
    apart = torch.cat([of[:, :32], torch.zeros(3, 32)], dim=1)
    beside = apart.clone()
    beside[:, 40] = 1e3
    weights[:, 40] = 0
    found = tiled.product(tiled.BlockWeights.of(weights), beside)
    assert_close(found, apart @ weights.float().T)


def test_that_weights_that_no_kernel_takes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"no kernel takes weights in torch.float32 with 8 inputs"):
        tiled.HalfWeights.of(torch.ones(4, 8))
    with pytest.raises(ValueError, match="with 7 inputs"):
        tiled.HalfWeights.of(matrix(4, 7))


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_that_a_layer_stands_for_several_in_any_shape(
    layer: type[tiled.TiledLinear], bias: bool, dtype: torch.dtype
) -> None:
    layers = [nn.Linear(64, size, bias=bias).to(torch.bfloat16).requires_grad_(False) for size in (32, 16)]
    of = torch.randn(3, 4, 64).to(dtype)
    wanted = torch.cat([each(of.bfloat16()) for each in layers], dim=-1)
    found = layer(*layers)(of)
    assert found.dtype == dtype
    torch.testing.assert_close(found, wanted, rtol=0, atol=0.05, check_dtype=False)
    gates, others = (nn.Linear(64, 32, bias=bias).to(torch.bfloat16).requires_grad_(False) for _ in range(2))
    rows = of[0].float()
    wanted = functional.silu(gates(rows.bfloat16())) * others(rows.bfloat16())
    torch.testing.assert_close(layer.gated(gates, others)(rows), wanted, rtol=0, atol=0.05, check_dtype=False)


@pytest.mark.parametrize(("rows", "length"), [(1, 3), (5, 576), (40, 600)])
def test_that_rows_are_normalized(rows: int, length: int, threads: None) -> None:
    norm = nn.Module()
    norm.weight, norm.variance_epsilon = torch.randn(length).bfloat16(), 1e-5
    of = torch.randn(rows, length)
    found = BY_KERNELS.normalized(of, norm)
    assert_close(found, functional.rms_norm(of, (length,), norm.weight.float(), 1e-5))


class Attention(nn.Module):
    """What of a layer an attention kernel has to know."""

    def __init__(self, keys: int, sharing: int, size: int, scale: float) -> None:
        super().__init__()
        self.index, self.keys, self.queries, self.size, self.scale = 0, keys, keys * sharing, size, scale
        self.kept = torch.bfloat16


def part_of(cache: Tensor, width: int, visible: Tensor | None, ends: Tensor | None = None) -> Part:
    """`width` tokens of each row behind what `cache` holds, [keys and values, rows, heads, columns, size]."""
    rows, columns = cache.shape[1], cache.shape[3]
    held = BatchCache(rows)
    held.update(*cache[:, :, :, : columns - width], 0)
    if ends is not None:
        held.own_columns = OwnColumns(torch.arange(rows), ends, columns)
    return Part(torch.zeros(rows, width, dtype=torch.long), torch.zeros(0), visible, held)


@pytest.mark.parametrize("size", [8, 20, 64])
@pytest.mark.parametrize(("heads", "sharing"), [(1, 1), (2, 3)])
@pytest.mark.parametrize("width", [1, 6, None], ids=["next", "part", "left aligned"])
@pytest.mark.parametrize("columns", [16, 90])
def test_that_tokens_attend_to_what_their_row_may_see(
    size: int, heads: int, sharing: int, columns: int, width: int | None, threads: None
) -> None:
    rows, tokens, is_left_aligned = 5, width or 1, width is None
    held = torch.tensor([1, columns // 3, columns // 2, columns - 9, columns - tokens])  # before the next tokens
    cache = torch.randn(2, rows, heads, columns, size).bfloat16()
    of = torch.randn(rows * tokens, heads * (sharing + 2), size)
    angles = torch.rand(rows * tokens, size // 2).repeat(1, 2)
    rotation = (angles.cos(), angles.sin())
    numbers = torch.arange(columns)
    visible = numbers <= held[:, None] if is_left_aligned else numbers >= columns - tokens - held[:, None]
    part = part_of(cache, tokens, visible, held if is_left_aligned else None)

    found = BY_KERNELS.attended(of, rotation, part, Attention(heads, sharing, size, 0.3))  # type: ignore[misc]

    rotated = halves_rotated(of[:, : heads * (sharing + 1)], *rotation)
    new = rotated[:, heads * sharing :].bfloat16(), of[:, heads * (sharing + 1) :].bfloat16()
    layer = part.cache.layers[0]
    kept = torch.stack([layer.keys, layer.values])[:, :, :, :columns]
    expected = cache.clone()
    for earlier, each in zip(expected, new, strict=True):
        own = each.view(rows, tokens, heads, size)
        ends = held[:, None] if is_left_aligned else torch.arange(columns - tokens, columns).expand(rows, tokens)
        earlier[torch.arange(rows)[:, None], :, ends] = own
    for row in range(rows):
        places = visible[row]
        assert torch.equal(kept[:, row][:, :, places], expected[:, row][:, :, places])
    queries = rotated[:, : heads * sharing].view(rows, tokens, heads, sharing, size).permute(0, 2, 3, 1, 4)
    before = numbers <= torch.arange(columns - tokens, columns)[:, None]
    mask = torch.zeros(rows, tokens, columns).masked_fill_(~(visible[:, None] & before), -torch.inf)
    keys, values = (each.float()[:, :, None].expand(-1, -1, sharing, -1, -1) for each in expected)
    wanted = functional.scaled_dot_product_attention(queries, keys, values, mask[:, None, None], scale=0.3)
    assert_close(found, wanted.permute(0, 3, 1, 2, 4).reshape(rows * tokens, -1))


def test_that_what_is_attended_to_is_not_hidden_by_a_mask_that_is_missing() -> None:
    of, rotation = torch.randn(2, 3, 16), (torch.ones(2, 16), torch.zeros(2, 16))
    cache, layer = torch.randn(2, 2, 1, 5, 16).bfloat16(), Attention(1, 1, 16, 1.0)
    attended = BY_KERNELS.attended
    assert attended is not None
    all_of = attended(of, rotation, part_of(cache, 1, torch.ones(2, 5, dtype=torch.bool)), layer)
    assert torch.equal(attended(of, rotation, part_of(cache, 1, None), layer), all_of)


def test_that_every_number_of_threads_gives_the_same_bits() -> None:
    before, found = torch.get_num_threads(), []
    packed, of = tiled.HalfWeights.of(matrix(500, 64)), torch.randn(20, 64)
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        found.append(tiled.product(packed, of))
    torch.set_num_threads(before)
    assert all(torch.equal(one, other) for one, other in itertools.pairwise(found))


@pytest.mark.parametrize(("of_pairs_s", "is_worth_it"), [(0.5, True), (1.0, False), (2.0, False)])
def test_that_inputs_are_rounded_only_where_that_is_much_quicker(
    of_pairs_s: float, is_worth_it: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    times_s = iter([1.0] * tiled.TRIALS + [of_pairs_s] * tiled.TRIALS)
    monkeypatch.setattr(tiled, "HAS_PAIRS", True)
    monkeypatch.setattr(tiled, "timed_s", lambda program: next(times_s))
    tiled.pairs_are_quicker.cache_clear()
    try:
        assert tiled.pairs_are_quicker() is is_worth_it
        monkeypatch.setattr(tiled, "HAS_PAIRS", False)
        tiled.pairs_are_quicker.cache_clear()
        assert not tiled.pairs_are_quicker(), "a processor without such products is not asked"
    finally:
        tiled.pairs_are_quicker.cache_clear()
