"""The kernels for a GPU, which Triton interprets here, beside what torch makes of the same."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from service.engine.model.gpu_kernels import attended, attended_in, gated
from service.engine.model.lean import halves_rotated

ROOM = 200
CASES = [(3, 1, 64), (1, 4, 32), (4, 2, 128)]
DTYPES = {torch.float32: 1e-5, torch.float16: 4e-3}  # Triton interprets no bfloat16


class Step:
    """Of some rows, of which each sees some of the columns that are held."""

    def __init__(self, sharing: int, keys: int, size: int, held: int, dtype: torch.dtype = torch.float32) -> None:
        random = torch.Generator().manual_seed(held)
        rows = 3

        def drawn(*shape: int) -> Tensor:
            return torch.randn(shape, generator=random).to(dtype)

        self.keys_and_values = drawn(2, rows + 1, keys, ROOM, size)
        self.heads = drawn(rows, (sharing + 2) * keys, size)
        angles = torch.rand(rows, size // 2, generator=random).repeat(1, 2)
        self.rotation = angles.cos().to(dtype), angles.sin().to(dtype)
        self.mask = torch.rand(rows, ROOM, generator=random) < 0.8
        self.mask[0] = False
        self.sharing, self.held, self.scale = sharing, held, size**-0.5

    def attended(self) -> Tensor:
        keys, values = self.keys_and_values
        column = torch.tensor([self.held])
        return attended_in(self.heads, *self.rotation, keys, values, self.mask, column, self.scale)

    def expected(self) -> Tensor:
        """By torch; `attended` has to come first, since the new keys and values are read from where it keeps them."""
        rows, keys = len(self.heads), self.keys_and_values.shape[2]
        queries = halves_rotated(self.heads, *self.rotation)[:, : self.sharing * keys]
        seen = self.mask[:, : self.held + 1].clone()
        seen[:, -1] = True
        of_rows = self.keys_and_values[:, :rows, :, : self.held + 1]
        result = functional.scaled_dot_product_attention(
            queries.view(rows, keys, self.sharing, -1), *of_rows, seen[:, None, None], scale=self.scale
        )
        return result.reshape(rows, -1)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("held", [1, 63, 64, 150])
@pytest.mark.parametrize(("sharing", "keys", "size"), CASES)
def test_that_a_step_attends_as_torch_does(sharing: int, keys: int, size: int, held: int, dtype: torch.dtype) -> None:
    step = Step(sharing, keys, size, held, dtype)
    found = step.attended()
    torch.testing.assert_close(found, step.expected(), rtol=DTYPES[dtype], atol=DTYPES[dtype])


@pytest.mark.parametrize(("sharing", "keys", "size"), CASES)
def test_that_a_step_keeps_its_keys_and_values_and_touches_no_others(sharing: int, keys: int, size: int) -> None:
    step = Step(sharing, keys, size, 7)
    before = step.keys_and_values.clone()
    step.attended()
    before[0, :3, :, 7] = halves_rotated(step.heads, *step.rotation)[:, sharing * keys : -keys]
    before[1, :3, :, 7] = step.heads[:, -keys:]
    torch.testing.assert_close(step.keys_and_values, before)


def test_that_what_is_not_seen_does_not_count_whatever_it_is() -> None:
    step = Step(3, 2, 32, 70)
    step.mask[1, 5:40] = False
    step.mask[2, 60:] = False
    found = step.attended()
    step.keys_and_values[:, 1, :, 5:40] = float("nan")
    step.keys_and_values[:, 2, :, 60:70] = float("nan")
    step.keys_and_values[:, :, :, 71:] = float("inf")
    assert torch.equal(step.attended(), found)


def test_that_a_size_of_heads_for_which_there_is_no_kernel_is_refused() -> None:
    with pytest.raises(ValueError, match="heads of 80 numbers are left to torch"):
        attended(torch.zeros(1, 3, 80), (), None, SimpleNamespace(size=80))  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [5, 1024, 1536])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_that_the_halves_of_a_feed_forward_layer_are_joined_as_torch_does(width: int, dtype: torch.dtype) -> None:
    both = torch.randn(4, 2 * width).to(dtype)
    gates, others = both.chunk(2, dim=1)
    torch.testing.assert_close(gated(both), functional.silu(gates) * others, rtol=DTYPES[dtype], atol=DTYPES[dtype])
