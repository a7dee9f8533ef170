"""What a processor computes a step of, compiled for it by Numba: products with weights, norms, and attention.

oneDNN takes half as long again for the products of a step: for few rows since each of its calls costs some 30 µs, for
many since its instruction for bfloat16 was no quicker than those for float32 on the first processor that was measured.
Here keys and values are bfloat16, and so are weights that were not published in 4 or 8 bits. All else is float32, but
for the inputs of products: with weights in few bits they are whole numbers, and with others bfloat16 where
`tiled.pairs_are_quicker`. A row's results have the same bits beside any others, but where `tiled.TwofoldLinear` keeps
weights both ways.

A kernel runs on torch's own threads: those of another team would wait for the cores on which these still spin. The
kernels of a whole pass are one program, for which Python is left once: each return to it would cost ten microseconds,
and as long as other threads hold its lock.

`python -m tests.benchmarks.optimized` measures what it gains.
"""

from __future__ import annotations

import ctypes
import math
from pathlib import Path
from typing import Any, Final, TypeAlias

import llvmlite.binding as llvm
import numpy as np
import torch
from numba import carray, cfunc, njit, types
from numpy.typing import NDArray

from service.engine.model.vectors import (
    BLOCK,
    BLOCKS,
    BYTE_BLOCK_BYTES,
    GROUP,
    LANES,
    MOST_ROWS,
    NIBBLE_BLOCK_BYTES,
    add_times,
    address_of,
    as_bits,
    as_float,
    dot,
    flags,
    floats,
    halves,
    input_block_bytes,
    numbers,
    sum_byte_products,
    sum_byte_products_of_bytes,
    sum_nibble_products,
    sum_nibble_products_of_bytes,
    sum_pair_products,
    sum_products,
)

PRODUCT, AS_HALVES, AS_BLOCKS, NORMALIZED, KEPT, ATTENDED = range(6)  # kernels
FLOATS, PAIRS, NIBBLES, BYTES = range(4)  # what a product is of: see the functions of `vectors` of these names
PLAIN, ADDED, GATED = range(3)  # what becomes of a product
TASK: Final = 1 + 17  # whole numbers: the kernel, then sizes, addresses and the bits of a float32

Task: TypeAlias = tuple[int, ...]
"""A kernel, and the numbers that it is given."""

LARGEST_INPUT, LARGEST_BYTE = 127 * 256, 127  # of a block
INPUT_BYTES, BYTE_INPUT_BYTES = input_block_bytes(16), input_block_bytes(8)
ROUNDING: Final = np.float32(3 << 22)  # added to a float32 it leaves the nearest whole number in its lowest bits

_OPTIONS: Final[dict[str, Any]] = {
    "cache": True,
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract", "nsz", "arcp"},
}


def _share_threads() -> None:
    """Let kernels call the OpenMP library that torch has loaded. Raises `ImportError` where it is not GNU's."""
    found = sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*"))
    if not found:
        raise ImportError("this torch has no OpenMP library of GNU's")
    library = ctypes.CDLL(str(found[0]))
    for name in ("GOMP_parallel", "GOMP_barrier", "omp_get_thread_num", "omp_get_num_threads"):
        llvm.add_symbol(f"torch_{name}", ctypes.cast(getattr(library, name), ctypes.c_void_p).value)


_share_threads()
_in_parallel = types.ExternalFunction(
    "torch_GOMP_parallel", types.void(types.int64, types.int64, types.uint32, types.uint32)
)
_barrier = types.ExternalFunction("torch_GOMP_barrier", types.void())
_own_number = types.ExternalFunction("torch_omp_get_thread_num", types.int32())
_team_size = types.ExternalFunction("torch_omp_get_num_threads", types.int32())


_kernel = njit(types.void(types.Array(types.int64, 1, "C"), types.int64, types.int64), **_OPTIONS)
"""What one of several threads does of a task; its document begins with the numbers that it is given."""


@njit(inline="always")
def _exp(value):
    """Of a float32, to its last bit or two (polynomial of Cephes, `expf`): a vector's worth of it at once."""
    value = min(max(value, np.float32(-87)), np.float32(88))
    power = np.float32(math.floor(value * np.float32(1.44269504) + np.float32(0.5)))
    rest = value - power * np.float32(0.693359375) + power * np.float32(2.12194440e-4)
    result = np.float32(1.9875691500e-4)
    result = result * rest + np.float32(1.3981999507e-3)
    result = result * rest + np.float32(8.3334519073e-3)
    result = result * rest + np.float32(4.1665795894e-2)
    result = result * rest + np.float32(1.6666665459e-1)
    result = result * rest + np.float32(5.0000001201e-1)
    result = result * rest * rest + rest + np.float32(1)
    return result * as_float(np.uint32((np.int32(power) + np.int32(127)) << np.int32(23)))


@njit(inline="always")
def _finish(kind, sums, outputs, earlier):
    """Make outputs, [rows, at most GROUP], of sums, [matrices, rows, GROUP]."""
    for row in range(len(outputs)):
        output, own = outputs[row], sums[0, row]
        if kind == GATED:
            other = sums[1, row]
            for lane in range(len(output)):
                output[lane] = own[lane] / (np.float32(1) + _exp(-own[lane])) * other[lane]
        elif kind == ADDED:
            before = earlier[row]
            for lane in range(len(output)):
                output[lane] = before[lane] + own[lane]
        else:
            for lane in range(len(output)):
                output[lane] = own[lane]


@_kernel
def _product(given, thread, threads):
    """Given: kind, rows, length, width; inputs, weights, before, outputs; what the product is of; 8 for byte inputs.

    Each thread computes groups of outputs.
    """
    kind, rows, length, width = given[0], given[1], given[2], given[3]
    inputs, weights, of, are_bytes = given[4], given[5], given[8], given[9] == 8
    earlier, outputs = carray(floats(given[6]), (rows, width)), carray(floats(given[7]), (rows, width))
    groups = (width + GROUP - 1) // GROUP
    sheets = 2 if kind == GATED else 1
    blocks = (length + BLOCK - 1) // BLOCK
    row_bytes, part_bytes = 4 * length, 2 * LANES * length
    if of == PAIRS:
        row_bytes = 2 * length
    elif of == NIBBLES:
        row_bytes, part_bytes = (BYTE_INPUT_BYTES if are_bytes else INPUT_BYTES) * blocks, NIBBLE_BLOCK_BYTES * blocks
    elif of == BYTES:
        row_bytes, part_bytes = (BYTE_INPUT_BYTES if are_bytes else INPUT_BYTES) * blocks, BYTE_BLOCK_BYTES * blocks
    sums = np.empty((sheets, MOST_ROWS, GROUP), np.float32)
    tiles = (rows + MOST_ROWS - 1) // MOST_ROWS
    for group in range(groups * thread // threads, groups * (thread + 1) // threads):
        column = group * GROUP
        wide = min(GROUP, width - column)
        row = 0
        for tile in range(tiles):
            count = (rows - row + tiles - tile - 1) // (tiles - tile)
            own = inputs + row_bytes * row
            for sheet in range(sheets):
                place, target = weights + (sheets * group + sheet) * BLOCKS * part_bytes, address_of(sums[sheet])
                if of == FLOATS:
                    sum_products(count, own, length, place, target)
                elif of == PAIRS:
                    sum_pair_products(count, own, length, place, target)
                else:
                    for _ in range(BLOCKS):
                        if of == NIBBLES and are_bytes:
                            sum_nibble_products_of_bytes(count, own, blocks, place, target)
                        elif of == NIBBLES:
                            sum_nibble_products(count, own, blocks, place, target)
                        elif are_bytes:
                            sum_byte_products_of_bytes(count, own, blocks, place, target)
                        else:
                            sum_byte_products(count, own, blocks, place, target)
                        place, target = place + part_bytes, target + 4 * LANES
            end = row + count
            _finish(kind, sums, outputs[row:end, column : column + wide], earlier[row:end, column : column + wide])
            row = end


@njit(inline="always")
def _half(number):
    """A float32 as bfloat16, rounded to the nearest."""
    bits = as_bits(number)
    return np.uint16((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16))


@_kernel
def _as_halves(given, thread, threads):
    """Given: how many numbers; the address of float32, and of bfloat16 that they become."""
    count = given[0]
    begin, end = count * thread // threads, count * (thread + 1) // threads
    source, target = carray(floats(given[1]), (count,))[begin:end], carray(halves(given[2]), (count,))[begin:end]
    for each in range(len(source)):
        target[each] = _half(source[each])


@_kernel
def _as_blocks(given, thread, threads):
    """Given: rows, length; inputs; what they become, [rows, blocks, `input_block_bytes`]; the bits of each, 8 or 16.

    The largest input of a block becomes 127 or 32,512, and the others whole numbers in proportion. What one of them is
    worth and what all are worth together stand before their high bytes, and these before the low ones, all with a sign.
    """
    rows, length, are_bytes = given[0], given[1], given[4] == 8
    inputs = carray(floats(given[2]), (rows, length))
    largest = np.float32(LARGEST_BYTE if are_bytes else LARGEST_INPUT)
    blocks = (length + BLOCK - 1) // BLOCK
    units = rows * blocks
    for unit in range(units * thread // threads, units * (thread + 1) // threads):
        row, block = unit // blocks, unit % blocks
        source = inputs[row, BLOCK * block : min(length, BLOCK * (block + 1))]
        place = given[3] + (BYTE_INPUT_BYTES if are_bytes else INPUT_BYTES) * unit
        worth = carray(floats(place), (2,))
        high, low = carray(flags(place + 8), (BLOCK,)), carray(flags(place + 8 + BLOCK), (BLOCK,))
        bits = np.uint32(0)
        for each in range(len(source)):
            bits = max(bits, as_bits(source[each]) & np.uint32(0x7FFFFFFF))  # in the order of what they stand for
        most = as_float(bits)
        factor = largest / most if most > 0 else np.float32(0)
        total = np.int32(0)
        for each in range(BLOCK):
            high[each] = 0
        if are_bytes:
            for each in range(len(source)):
                whole = np.int32(as_bits(source[each] * factor + ROUNDING) - as_bits(ROUNDING))
                total += whole
                high[each] = np.uint8(whole & 255)
        else:
            for each in range(len(source), BLOCK):
                low[each] = 0
            for each in range(len(source)):
                whole = np.int32(as_bits(source[each] * factor + ROUNDING) - as_bits(ROUNDING))
                total += whole
                low[each] = np.uint8(whole & 255)
                high[each] = np.uint8(((whole + 128) >> 8) & 255)
        worth[0] = most / largest if most < np.inf else np.float32(np.nan)  # as the results are then
        worth[1] = worth[0] * np.float32(total)


@_kernel
def _normalized(given, thread, threads):
    """Given: rows, length; inputs, weights, outputs; the bits of what is added to the mean square."""
    rows, length = given[0], given[1]
    inputs, outputs = carray(floats(given[2]), (rows, length)), carray(floats(given[4]), (rows, length))
    weight = carray(halves(given[3]), (length,))
    epsilon = as_float(np.uint32(given[5]))
    for row in range(rows * thread // threads, rows * (thread + 1) // threads):
        squares = np.float32(0)
        for each in range(length):
            squares += inputs[row, each] * inputs[row, each]
        factor = np.float32(1) / np.float32(math.sqrt(squares / np.float32(length) + epsilon))
        for each in range(length):
            outputs[row, each] = inputs[row, each] * factor * as_float(np.uint32(weight[each]) << np.uint32(16))


@njit(inline="always")
def _rotate(source, cosines, sines, factor, target):
    half = len(source) // 2
    low, high = source[:half], source[half:]
    for each in range(half):
        target[each] = (low[each] * cosines[each] - high[each] * sines[each]) * factor
    upper, upper_cosines, upper_sines = target[half:], cosines[half:], sines[half:]
    for each in range(half):
        upper[each] = (high[each] * upper_cosines[each] + low[each] * upper_sines[each]) * factor


@_kernel
def _kept(given, thread, threads):
    """Given: as `_attended`. Each thread writes keys and values of heads of tokens, which must be there before that."""
    tokens, heads, sharing, size, width = given[0], given[1], given[2], given[3], given[7]
    inputs = carray(floats(given[4]), (tokens, heads * (sharing + 2), size))
    columns, row_stride, head_stride = given[8], given[9], given[10]
    cosines, sines = carray(floats(given[11]), (tokens, size)), carray(floats(given[12]), (tokens, size))
    ends, is_one_end = carray(numbers(given[15]), (tokens // width,)), given[15] == 0
    key = np.empty(size, np.float32)
    for unit in range(thread, tokens * heads, threads):
        token, head = unit // heads, unit % heads
        row = token // width
        end = columns - width + token % width if is_one_end else ends[row]
        offset = 2 * (row * row_stride + head * head_stride + size * end)
        _rotate(inputs[token, heads * sharing + head], cosines[token], sines[token], np.float32(1), key)
        new_key, new_value = carray(halves(given[13] + offset), (size,)), carray(halves(given[14] + offset), (size,))
        value = inputs[token, heads * (sharing + 1) + head]
        for lane in range(size):
            new_key[lane] = _half(key[lane])
            new_value[lane] = _half(value[lane])


@_kernel
def _attended(given, thread, threads):
    """Given: tokens, heads that queries share, queries of each, size; addresses of inputs and outputs; the bits of the
    scale; tokens of a row; columns of a row, these included, strides of rows and of heads; addresses of cosines, sines,
    keys, values, ends and visible, of which the last two may be 0. Each thread computes heads of tokens.
    """
    tokens, heads, sharing, size, width = given[0], given[1], given[2], given[3], given[7]
    inputs = carray(floats(given[4]), (tokens, heads * (sharing + 2), size))
    outputs = carray(floats(given[5]), (tokens, heads * sharing, size))
    columns, row_stride, head_stride = given[8], given[9], given[10]
    cosines, sines = carray(floats(given[11]), (tokens, size)), carray(floats(given[12]), (tokens, size))
    visible, is_masked = carray(flags(given[16]), (tokens // width, columns)), given[16] != 0
    scale = as_float(np.uint32(given[6]))
    query = np.empty(size, np.float32)
    scores, places = np.empty(columns, np.float32), np.empty(columns, np.int64)
    chunks = size // LANES
    for unit in range(thread, tokens * heads, threads):
        token, head = unit // heads, unit % heads
        row = token // width
        offset = 2 * (row * row_stride + head * head_stride)
        keys, values = given[13] + offset, given[14] + offset
        seen = 0
        for place in range(columns - width + token % width + 1):
            if not is_masked or visible[row, place]:
                places[seen] = 2 * size * place
                seen += 1
        for each in range(head * sharing, (head + 1) * sharing):
            _rotate(inputs[token, each], cosines[token], sines[token], scale, query)
            highest = np.float32(-math.inf)
            for place in range(seen):
                score = np.float32(0)
                if chunks:
                    score = dot(address_of(query), keys + places[place], chunks)
                key_rest = carray(halves(keys + places[place]), (size,))
                for lane in range(LANES * chunks, size):
                    score += query[lane] * as_float(np.uint32(key_rest[lane]) << np.uint32(16))
                scores[place] = score
                highest = max(highest, score)
            total = np.float32(0)
            for place in range(seen):
                weight = _exp(scores[place] - highest)
                scores[place] = weight
                total += weight
            result = outputs[token, each]
            for lane in range(size):
                result[lane] = 0
            for place in range(seen):
                weight = scores[place] / total
                if chunks:
                    add_times(address_of(result), weight, values + places[place], chunks)
                value_rest = carray(halves(values + places[place]), (size,))
                for lane in range(LANES * chunks, size):
                    result[lane] += weight * as_float(np.uint32(value_rest[lane]) << np.uint32(16))


@cfunc(types.void(types.int64), **_OPTIONS)
def _compute(program):
    """Given: the number of tasks; their address. Each begins when all threads are done with the one before."""
    header = carray(numbers(program), (2,))
    tasks = carray(numbers(header[1]), (header[0], TASK))
    thread, threads = np.int64(_own_number()), np.int64(_team_size())
    for number in range(header[0]):
        if number:
            _barrier()
        kernel, given = tasks[number, 0], tasks[number, 1:]
        if kernel == PRODUCT:
            _product(given, thread, threads)
        elif kernel == AS_HALVES:
            _as_halves(given, thread, threads)
        elif kernel == AS_BLOCKS:
            _as_blocks(given, thread, threads)
        elif kernel == NORMALIZED:
            _normalized(given, thread, threads)
        elif kernel == KEPT:
            _kept(given, thread, threads)
        elif kernel == ATTENDED:
            _attended(given, thread, threads)


@njit(types.int64(types.int64, types.int64, types.Array(types.int64, 2, "C")), nogil=True, **_OPTIONS)
def _run(compute, threads, tasks):
    program = np.array([len(tasks), address_of(tasks)])
    _in_parallel(compute, address_of(program), threads, 0)
    return program[0] + tasks[0, 0]  # since Numba frees an array after its last use, of which an address is none


def run(tasks: NDArray[np.int64], threads: int) -> None:
    """Compute tasks, [number, TASK], one after the other, each on `threads` of torch's threads."""
    _run(_compute.address, threads, tasks)


def as_program(*tasks: Task) -> NDArray[np.int64]:
    """[number, TASK]"""
    return np.array([task + (0,) * (TASK - len(task)) for task in tasks], np.int64)
