"""What a step cannot be faster than, from what the machine was measured to do."""

from __future__ import annotations

from typing import Any

import msgspec


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """What each step reads and multiplies by, whatever the rows: how many numbers, and their size in bytes."""

    parameters: int
    bytes: int

    @classmethod
    def of(cls, model: Any) -> Weights:
        """Of a transformers model: all but the table of the input tokens, of which a step reads a line for each row.

        Where that table is the output layer as well, a step does read it.
        """
        output = model.get_output_embeddings()
        table = model.get_input_embeddings().weight
        is_shared = output is not None and output.weight is table
        read = [each for each in model.parameters() if is_shared or each is not table]
        return cls(
            parameters=sum(each.numel() for each in read),
            bytes=sum(each.numel() * each.element_size() for each in read),
        )


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """What the machine does at best: bytes of memory and operations of matrix products, a second."""

    bytes_per_s: float
    operations_per_s: float

    def or_better(self, other: Rates) -> Rates:
        """The better of two measurements, each."""
        return Rates(
            bytes_per_s=max(self.bytes_per_s, other.bytes_per_s),
            operations_per_s=max(self.operations_per_s, other.operations_per_s),
        )


class Floor(msgspec.Struct, frozen=True, kw_only=True):
    """The shortest time of a step of `size` rows: for reading the weights once, and for multiplying by them."""

    size: int
    memory_s: float
    matrix_s: float

    @property
    def step_s(self) -> float:
        return max(self.memory_s, self.matrix_s)


def floor(weights: Weights, rates: Rates, size: int) -> Floor:
    """
    >>> floor(Weights(parameters=100, bytes=200), Rates(bytes_per_s=2e3, operations_per_s=2e4), size=4)
    Floor(size=4, memory_s=0.1, matrix_s=0.04)
    """
    return Floor(
        size=size,
        memory_s=weights.bytes / rates.bytes_per_s,
        matrix_s=2 * weights.parameters * size / rates.operations_per_s,
    )
