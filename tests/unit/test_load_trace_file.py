"""Reading traces, and saying which line is wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from service.load.arrivals import TraceEntry, TraceError, read_trace


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.jsonl"


def test_that_a_trace_is_read_in_its_order(path: Path) -> None:
    path.write_text('{"offset_s": 0.5, "prompt": "a", "max_tokens": 8}\n\n{"offset_s": 0.5, "prompt_words": 12}\n')
    assert read_trace(str(path)) == (
        TraceEntry(offset_s=0.5, prompt="a", max_tokens=8),
        TraceEntry(offset_s=0.5, prompt_words=12),
    )


def test_that_a_trace_of_mooncake_is_read_as_it_is(path: Path) -> None:
    path.write_text(
        '{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]}\n'
        '{"timestamp": 27482, "input_length": 191378, "output_length": 1, "hash_ids": [46]}\n'  # the longest one
    )
    assert read_trace(str(path)) == (
        TraceEntry(offset_s=27.482, prompt_words=6955, max_tokens=52),
        TraceEntry(offset_s=27.482, prompt_words=191_378, max_tokens=1),
    )


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        "offset_s",
        "[1]",
        '{"offset_s": -1}',
        '{"offset_s": NaN}',
        '{"offset_s": 1e999}',
        '{"offset_s": "1"}',
        '{"offset_s": 1, "max_tokens": 0}',
        '{"offset_s": 1, "prompt_words": 1e9}',
        '{"offset_s": 1, "prompt": "\\ud800"}',
        "[" * 100_000,
        "\x00",
    ],
)
def test_that_a_bad_line_is_named_by_its_number(path: Path, line: str) -> None:
    path.write_text('{"offset_s": 0}\n\n' + line + '\n{"offset_s": 2}\n')
    with pytest.raises(TraceError, match=r"^Line 3 of trace\.jsonl is not an arrival: .+\.$"):
        read_trace(str(path))


def test_that_a_line_that_is_no_text_is_named(path: Path) -> None:
    path.write_bytes(b'{"offset_s": 0}\n{"offset_s": 1, "prompt": "\xff"}\n')
    with pytest.raises(TraceError, match="Line 2"):
        read_trace(str(path))


def test_that_a_line_before_the_one_above_is_named(path: Path) -> None:
    path.write_text('{"offset_s": 3}\n{"offset_s": 2}\n')
    with pytest.raises(TraceError, match=r"Line 2 of trace\.jsonl is before the line above it"):
        read_trace(str(path))


def test_that_an_empty_trace_and_a_missing_one_are_said_in_words(path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read: No such file"):
        read_trace(str(path))
    path.write_text("\n")
    with pytest.raises(TraceError, match="holds no arrival"):
        read_trace(str(path))


def test_that_what_is_no_file_is_not_waited_for(path: Path) -> None:
    os.mkfifo(path)
    for no_file in (path, path.parent, Path("/dev/zero")):
        with pytest.raises(TraceError, match="is not a file"):
            read_trace(str(no_file))


def test_that_a_path_that_cannot_be_is_said_in_words() -> None:
    with pytest.raises(TraceError, match="cannot be read"):
        read_trace("a\0b")
