"""Walks a GGUF file's structure without trusting it, before anything that trusts it may read it.

    header   "GGUF", version, number of tensors, number of metadata entries
    metadata key, type, value …
    tensors  name, shape, type, offset …
    data     aligned; every tensor must lie inside the file

Every length is checked against the file before it is followed, so a crafted or cut file is refused in milliseconds.
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)
MAX_ENTRIES: Final = 1 << 16
MAX_TENSORS: Final = 1 << 20
MAX_ELEMENTS: Final = 1 << 22  # of one metadata array; vocabularies have some 10^5
MAX_DIMENSIONS: Final = 4
MAX_NAME: Final = 1 << 16
DEFAULT_ALIGNMENT: Final = 32

STRING: Final = 8
ARRAY: Final = 9
SCALARS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

Scalar: TypeAlias = bool | int | float | str


class GgufError(ValueError):
    """The file is not what it says; `str()` of it is the end of a sentence: "it ends too early"."""


@dataclass
class GgufHeader:
    """What the file says about itself; arrays are left out of `metadata`."""

    metadata: dict[str, Scalar] = field(default_factory=dict)
    tensor_count: int = 0

    @property
    def architecture(self) -> str:
        return str(self.metadata.get("general.architecture", ""))

    def whole_number(self, key: str, default: int) -> int:
        value = self.metadata.get(key, default)
        if not isinstance(value, int):
            raise GgufError(f"its {key} is {value!r:.40}, not a whole number")
        return value


def read_header(path: Path) -> GgufHeader:
    """Check the whole structure of the file; raises `GgufError`."""
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise GgufError("it does not begin as a GGUF file does")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Walk(data).run()


class _Walk:
    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = len(MAGIC)

    def run(self) -> GgufHeader:
        version = self._number("I")
        if version not in VERSIONS:
            raise GgufError(f"its format version {version} is not one of {', '.join(map(str, VERSIONS))}")
        tensor_count = self._count("tensors", MAX_TENSORS)
        header = GgufHeader(tensor_count=tensor_count)
        for _ in range(self._count("metadata entries", MAX_ENTRIES)):
            self._entry(header.metadata)
        self._check_promises(header)
        ends = [self._tensor_end() for _ in range(tensor_count)]
        self._check_data(header, max(ends, default=0))
        return header

    def _entry(self, metadata: dict[str, Scalar]) -> None:
        key, kind = self._text(), self._number("I")
        if kind == ARRAY:
            self._skip_array()
        elif kind == STRING:
            metadata[key] = self._text(limit=len(self._data))
        else:
            metadata[key] = self._number(_scalar_format(kind))

    def _skip_array(self) -> None:
        kind, count = self._number("I"), self._count("array elements", MAX_ELEMENTS)
        if kind == STRING:
            for _ in range(count):
                self._skip(self._number("Q"))
        else:
            self._skip(count * struct.calcsize("<" + _scalar_format(kind)))

    def _tensor_end(self) -> int:
        """Read one tensor's description; where its data ends, counted from the first tensor's."""
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType  # a tenth of a second that only GGUF files cost

        name, dimensions = self._text(), self._number("I")
        if not 1 <= dimensions <= MAX_DIMENSIONS:
            raise GgufError(f"its tensor {name!r} has {dimensions} dimensions")
        elements = math.prod(self._number("Q") for _ in range(dimensions))
        kind, offset = self._number("I"), self._number("Q")
        try:
            block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
        except (ValueError, KeyError):
            raise GgufError(f"its tensor {name!r} is of the unknown type {kind}") from None
        return int(offset + elements // block * block_bytes)

    def _check_promises(self, header: GgufHeader) -> None:
        if not header.architecture:
            raise GgufError("it names no architecture")
        if header.whole_number("split.count", 1) > 1:
            raise GgufError("it is one part of several; join the parts into one file")
        blocks = header.whole_number(f"{header.architecture}.block_count", 0)
        if not 0 <= blocks <= header.tensor_count:
            raise GgufError(f"it promises {blocks} layers and has {header.tensor_count} tensors")

    def _check_data(self, header: GgufHeader, data_bytes: int) -> None:
        alignment = header.whole_number("general.alignment", DEFAULT_ALIGNMENT)
        if not 1 <= alignment <= 1 << 20:
            raise GgufError(f"its alignment is {alignment} bytes")
        start = math.ceil(self._at / alignment) * alignment
        if header.tensor_count and start + data_bytes > len(self._data):
            raise GgufError(f"it ends after {len(self._data)} bytes and should have {start + data_bytes}")

    def _count(self, what: str, limit: int) -> int:
        count = int(self._number("Q"))
        if count > limit:
            raise GgufError(f"it claims {count} {what}")
        return count

    def _text(self, limit: int = MAX_NAME) -> str:
        length = int(self._number("Q"))
        if length > limit:
            raise GgufError(f"it has a name of {length} bytes")
        start = self._at
        self._skip(length)
        return self._data[start : self._at].decode("utf-8", errors="replace")

    def _number(self, form: str) -> int:
        start = self._at
        self._skip(struct.calcsize("<" + form))
        value: int = struct.unpack_from("<" + form, self._data, start)[0]
        return value

    def _skip(self, size: int) -> None:
        if size > len(self._data) - self._at:
            raise GgufError("it ends too early")
        self._at += size


def _scalar_format(kind: int) -> str:
    if kind not in SCALARS:
        raise GgufError(f"it has a value of the unknown type {kind}")
    return SCALARS[kind]
