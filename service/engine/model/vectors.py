"""What Numba cannot say of Python, in LLVM's own terms: addresses, bits, and vectors of numbers that stay in registers.

Numba calls each of these as if it were a function. They take addresses as whole numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import llvmlite.binding as llvm
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic


def _features() -> dict[str, bool]:
    """What Numba compiles for; LLVM ends the process at an instruction that is not among it."""
    chosen: str | None = config.CPU_FEATURES
    if chosen is None:
        return dict(llvm.get_host_cpu_features())
    return {each[1:]: each.startswith("+") for each in chosen.split(",") if each}


FEATURES: Final = _features()
if not (FEATURES.get("avx2") and FEATURES.get("fma")):
    raise ImportError("this processor has no vectors of 8 numbers (AVX2)")  # others have not been measured
HAS_LONG_VECTORS: Final = bool(FEATURES.get("avx512f"))
HAS_PAIRS: Final = HAS_LONG_VECTORS and bool(FEATURES.get("avx512bf16"))  # products of bfloat16, added two at a time
HAS_BYTES: Final = bool(  # products of bytes, added four at a time (VNNI)
    FEATURES.get("avx512vnni") if HAS_LONG_VECTORS else FEATURES.get("avxvnni")
)
LANES: Final = 16 if HAS_LONG_VECTORS else 8  # numbers of a vector
BLOCKS: Final = 3  # vectors of outputs that are computed at once
GROUP: Final = LANES * BLOCKS
MOST_ROWS: Final = 8 if HAS_LONG_VECTORS else 4  # at once: their sums, three vectors each, stay in registers
BLOCK: Final = 32  # inputs whose weights share a scale, as in files of the formats Q4_0, Q4_1, Q4_K and Q8_0
NIBBLE_BLOCK_BYTES: Final = LANES * (BLOCK // 2 + 4)  # of `LANES` outputs: weights, then two of float16 for each
BYTE_BLOCK_BYTES: Final = LANES * (BLOCK + 4)


def input_block_bytes(bits: int) -> int:
    """Of a block of a row whose inputs are whole numbers of 8 or 16 bits: two of float32, then high and low bytes."""
    return 8 + BLOCK * bits // 8


def _pointer_to(number: Any) -> Any:
    @intrinsic
    def pointer(typing: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return builder.inttoptr(values[0], context.get_value_type(signature.return_type))

        return types.CPointer(number)(address), generate

    return pointer


floats, halves = _pointer_to(types.float32), _pointer_to(types.uint16)
numbers, flags = _pointer_to(types.int64), _pointer_to(types.uint8)


@intrinsic
def address_of(typing: Any, array: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        held = context.make_array(signature.args[0])(context, builder, values[0])
        return builder.ptrtoint(held.data, ir.IntType(64))

    return types.int64(array), generate


@intrinsic
def as_bits(typing: Any, number: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.bitcast(values[0], ir.IntType(32))

    return types.uint32(types.float32), generate


@intrinsic
def as_float(typing: Any, bits: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.bitcast(values[0], ir.FloatType())

    return types.float32(types.uint32), generate


class _Half(ir.Type):  # type: ignore[misc]  # llvmlite is untyped
    """bfloat16, which llvmlite has no type for."""

    def _to_string(self) -> str:
        return "bfloat"


class _Vectors:
    """Writes LLVM's instructions on `LANES` numbers at a time."""

    number, address = ir.FloatType(), ir.IntType(64)
    floats, words = ir.VectorType(ir.FloatType(), LANES), ir.VectorType(ir.IntType(32), LANES)
    shorts, halves = ir.VectorType(ir.IntType(16), LANES), ir.VectorType(_Half(), 2 * LANES)
    zeros = ir.Constant(floats, [0.0] * LANES)

    def __init__(self, builder: Any) -> None:
        self.builder = builder
        of_three = ir.FunctionType(self.floats, [self.floats] * 3)
        self._fma = cgutils.get_or_insert_function(builder.module, of_three, f"llvm.fma.v{LANES}f32")

    def integer(self, value: int) -> Any:
        return ir.Constant(self.address, value)

    def at(self, place: Any, *terms: tuple[Any, int]) -> Any:
        """An address: `place`, and each of the terms times its factor."""
        for value, factor in terms:
            place = self.builder.add(place, self.builder.mul(value, self.integer(factor)))
        return place

    def load(self, kind: Any, place: Any, align: int = 4) -> Any:
        return self.builder.load(self.builder.inttoptr(place, kind.as_pointer()), align=align)

    def store(self, value: Any, place: Any) -> None:
        self.builder.store(value, self.builder.inttoptr(place, value.type.as_pointer()), align=4)

    def store_all(self, values: list[Any], place: Any) -> None:
        """One vector behind the other."""
        for index, value in enumerate(values):
            self.store(value, self.builder.add(place, self.integer(4 * LANES * index)))

    def load_halves(self, place: Any) -> Any:
        """bfloat16, as float32."""
        words = self.builder.zext(self.load(self.shorts, place, align=2), self.words)
        return self.low(words)

    def load_float16(self, place: Any) -> Any:
        """As float32."""
        kind = ir.VectorType(ir.HalfType(), LANES)
        return self.builder.fpext(self.load(kind, place, align=2), self.floats)

    def quads(self, place: Any, bits: int) -> Iterator[Any]:
        """The weights of a block, without a sign, four inputs of each output at a time: as bytes."""
        for number in range(BLOCK * bits // 32):
            each = self.load(self.words, self.builder.add(place, self.integer(4 * LANES * number)))
            if bits == 8:
                yield each
                continue
            mask = ir.Constant(self.words, [0x0F0F0F0F] * LANES)
            yield self.builder.and_(each, mask)
            yield self.builder.and_(self.builder.lshr(each, ir.Constant(self.words, [4] * LANES)), mask)

    def add_byte_products(self, sums: Any, weights: Any, inputs: Any) -> Any:
        """Add four products each of bytes, of which the weights have no sign and the inputs have one (VNNI)."""
        kind = ir.FunctionType(self.words, [self.words] * 3)
        name = f"llvm.x86.avx512.vpdpbusd.{32 * LANES}"  # WORKAROUND numba 0.68: in LLVM 22 it takes vectors of bytes
        add = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(add, [sums, weights, inputs])

    def low(self, pairs: Any) -> Any:
        """The first bfloat16 of each pair."""
        return self.builder.bitcast(self.builder.shl(pairs, ir.Constant(self.words, [16] * LANES)), self.floats)

    def high(self, pairs: Any) -> Any:
        return self.builder.bitcast(
            self.builder.and_(pairs, ir.Constant(self.words, [0xFFFF0000] * LANES)), self.floats
        )

    def all_lanes(self, value: Any) -> Any:
        undefined = ir.Constant(ir.VectorType(value.type, LANES), ir.Undefined)
        first = self.builder.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
        return self.builder.shuffle_vector(first, undefined, ir.Constant(self.words, [0] * LANES))

    def multiply_add(self, one: Any, other: Any, total: Any) -> Any:
        return self.builder.call(self._fma, [one, other, total])

    def total(self, vector: Any) -> Any:
        kind = ir.FunctionType(self.number, [self.number, self.floats])
        add = cgutils.get_or_insert_function(self.builder.module, kind, f"llvm.vector.reduce.fadd.v{LANES}f32")
        return self.builder.call(add, [ir.Constant(self.number, -0.0), vector], fastmath=["reassoc"])

    @contextmanager
    def loop(self, count: Any, totals: list[Any]) -> Iterator[tuple[Any, list[Any]]]:
        """Over 0 to `count` - 1, once at least; the body replaces what it adds up in `totals`."""
        before, body = self.builder.block, self.builder.append_basic_block("body")
        self.builder.branch(body)
        self.builder.position_at_end(body)
        index = self.builder.phi(self.address)
        sums = [self.builder.phi(total.type) for total in totals]
        for each, total in zip(sums, totals, strict=True):
            each.add_incoming(total, before)
        totals[:] = sums
        yield index
        following = self.builder.add(index, self.integer(1))
        index.add_incoming(self.integer(0), before)
        index.add_incoming(following, self.builder.block)
        for each, total in zip(sums, totals, strict=True):
            each.add_incoming(total, self.builder.block)
        end = self.builder.append_basic_block("end")
        self.builder.cbranch(self.builder.icmp_signed("<", following, count), body, end)
        self.builder.position_at_end(end)


def _cases(builder: Any, value: Any, most: int) -> Iterator[int]:
    """Each of 1 to `most`: what is generated in its turn runs where `value` is that."""
    end = builder.append_basic_block("end")
    choice = builder.switch(value, end)
    for case in range(1, most + 1):
        block = builder.append_basic_block(f"case_{case}")
        choice.add_case(ir.Constant(value.type, case), block)
        builder.position_at_end(block)
        yield case
        builder.branch(end)
    builder.position_at_end(end)


@intrinsic
def sum_products(typing: Any, rows: Any, inputs: Any, length: Any, weights: Any, sums: Any) -> Any:
    """Put the products of 1 to `MOST_ROWS` rows with the weights of a group of outputs into `sums`, [rows, GROUP].

    `inputs`: address of the first row, float32, [rows, length]; `weights`: of the group's, bfloat16, [BLOCKS,
    length / 2, LANES, 2]; `sums`: of float32. In LLVM's own terms, since only so all sums stay in registers.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        rows, *places = values
        for count in _cases(builder, rows, MOST_ROWS):
            _sum_products_of(count, _Vectors(builder), *places)
        return context.get_dummy_value()

    return types.void(rows, inputs, length, weights, sums), generate


def _sum_products_of(rows: int, vectors: _Vectors, inputs: Any, length: Any, weights: Any, sums: Any) -> None:
    builder, totals = vectors.builder, [vectors.zeros] * (rows * BLOCKS)
    with vectors.loop(builder.sdiv(length, vectors.integer(2)), totals) as pair:
        places = [vectors.at(weights, (pair, 4 * LANES), (length, 2 * LANES * block)) for block in range(BLOCKS)]
        pairs = [vectors.load(vectors.words, place, align=4 * LANES) for place in places]
        halves = [(vectors.low(each), vectors.high(each)) for each in pairs]
        for row in range(rows):
            place = vectors.at(inputs, (pair, 8), (length, 4 * row))
            first = vectors.all_lanes(vectors.load(vectors.number, place))
            second = vectors.all_lanes(vectors.load(vectors.number, builder.add(place, vectors.integer(4))))
            for block, (low, high) in enumerate(halves, row * BLOCKS):
                totals[block] = vectors.multiply_add(high, second, vectors.multiply_add(low, first, totals[block]))
    vectors.store_all(totals, sums)


@intrinsic
def sum_pair_products(typing: Any, rows: Any, inputs: Any, length: Any, weights: Any, sums: Any) -> Any:
    """As `sum_products`, of inputs in bfloat16. It takes a processor that `HAS_PAIRS`; elsewhere it does nothing."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        rows, *places = values
        for count in _cases(builder, rows, MOST_ROWS if HAS_PAIRS else 0):
            _sum_pair_products_of(count, _Vectors(builder), *places)
        return context.get_dummy_value()

    return types.void(rows, inputs, length, weights, sums), generate


def _sum_pair_products_of(rows: int, vectors: _Vectors, inputs: Any, length: Any, weights: Any, sums: Any) -> None:
    builder, totals = vectors.builder, [vectors.zeros] * (rows * BLOCKS)
    kind = ir.FunctionType(vectors.floats, [vectors.floats, vectors.halves, vectors.halves])
    add_products = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512bf16.dpbf16ps.512")
    with vectors.loop(builder.sdiv(length, vectors.integer(2)), totals) as pair:
        places = [vectors.at(weights, (pair, 4 * LANES), (length, 2 * LANES * block)) for block in range(BLOCKS)]
        pairs = [vectors.load(vectors.words, place, align=4 * LANES) for place in places]
        for row in range(rows):
            word = vectors.load(ir.IntType(32), vectors.at(inputs, (pair, 4), (length, 2 * row)))
            others = builder.bitcast(vectors.all_lanes(word), vectors.halves)
            for block, each in enumerate(pairs, row * BLOCKS):
                arguments = [totals[block], others, builder.bitcast(each, vectors.halves)]
                totals[block] = builder.call(add_products, arguments)
    vectors.store_all(totals, sums)


def _of_blocks(bits: int, input_bits: int) -> Any:
    @intrinsic
    def sum_block_products(typing: Any, rows: Any, inputs: Any, blocks: Any, weights: Any, sums: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            rows, *places = values
            for count in _cases(builder, rows, MOST_ROWS if HAS_BYTES else 0):
                _sum_block_products_of(count, bits, input_bits, _Vectors(builder), *places)
            return context.get_dummy_value()

        return types.void(rows, inputs, blocks, weights, sums), generate

    return sum_block_products


sum_nibble_products, sum_byte_products = _of_blocks(4, 16), _of_blocks(8, 16)
sum_nibble_products_of_bytes, sum_byte_products_of_bytes = _of_blocks(4, 8), _of_blocks(8, 8)
"""Put the products of 1 to `MOST_ROWS` rows with the weights of `LANES` outputs into `sums`, float32, [rows, GROUP].

`inputs`: address of the first row, [rows, blocks, `input_block_bytes`], of 16 bits or 8, as `kernels.AS_BLOCKS` makes
it; `weights`: of these outputs', [blocks, NIBBLE_BLOCK_BYTES or BYTE_BLOCK_BYTES], as `tiled.BlockWeights` has them. It
takes a processor that `HAS_BYTES`; elsewhere it does nothing.
"""


def _sum_block_products_of(
    rows: int, bits: int, input_bits: int, vectors: _Vectors, inputs: Any, blocks: Any, weights: Any, sums: Any
) -> None:
    builder, totals = vectors.builder, [vectors.zeros] * rows
    block_bytes = NIBBLE_BLOCK_BYTES if bits == 4 else BYTE_BLOCK_BYTES
    row_bytes, quarter = input_block_bytes(input_bits), BLOCK // 4
    with vectors.loop(blocks, totals) as block:
        place = vectors.at(weights, (block, block_bytes))
        quads = list(vectors.quads(place, bits))
        scale_place = vectors.at(place, (vectors.integer(block_bytes - 4 * LANES), 1))
        scales = vectors.load_float16(scale_place)
        lowest = vectors.load_float16(builder.add(scale_place, vectors.integer(2 * LANES)))
        for row in range(rows):
            place = vectors.at(inputs, (block, row_bytes), (blocks, row_bytes * row))
            factor, total, *words = (
                vectors.all_lanes(vectors.load(kind, builder.add(place, vectors.integer(4 * number))))
                for number, kind in enumerate([vectors.number] * 2 + [ir.IntType(32)] * (quarter * input_bits // 8))
            )
            whole = ir.Constant(vectors.words, [0] * LANES)
            for quad, of_high in zip(quads, words[:quarter], strict=True):
                whole = vectors.add_byte_products(whole, quad, of_high)
            if input_bits == 16:
                whole = builder.shl(whole, ir.Constant(vectors.words, [8] * LANES))
                for quad, of_low in zip(quads, words[quarter:], strict=True):
                    whole = vectors.add_byte_products(whole, quad, of_low)
            exact = builder.fmul(builder.sitofp(whole, vectors.floats), factor)
            totals[row] = vectors.multiply_add(lowest, total, vectors.multiply_add(scales, exact, totals[row]))
    for row, total in enumerate(totals):
        vectors.store(total, vectors.at(sums, (vectors.integer(row), 4 * GROUP)))


@intrinsic
def dot(typing: Any, one: Any, other: Any, chunks: Any) -> Any:
    """The product of float32 with bfloat16, `chunks` times `LANES` of each, by their addresses."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        one, other, chunks = values
        vectors = _Vectors(builder)
        totals = [vectors.zeros]
        with vectors.loop(chunks, totals) as chunk:
            numbers = vectors.load(vectors.floats, vectors.at(one, (chunk, 4 * LANES)))
            totals[0] = vectors.multiply_add(
                numbers, vectors.load_halves(vectors.at(other, (chunk, 2 * LANES))), totals[0]
            )
        return vectors.total(totals[0])

    return types.float32(one, other, chunks), generate


@intrinsic
def add_times(typing: Any, sums: Any, weight: Any, numbers: Any, chunks: Any) -> Any:
    """Add `weight` times bfloat16 to float32, `chunks` times `LANES` of each, by their addresses."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        sums, weight, numbers, chunks = values
        vectors = _Vectors(builder)
        factor = vectors.all_lanes(weight)
        with vectors.loop(chunks, []) as chunk:
            place = vectors.at(sums, (chunk, 4 * LANES))
            others = vectors.load_halves(vectors.at(numbers, (chunk, 2 * LANES)))
            vectors.store(vectors.multiply_add(factor, others, vectors.load(vectors.floats, place)), place)
        return context.get_dummy_value()

    return types.void(sums, weight, numbers, chunks), generate
