"""Lines in, lines out."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from service.load.control import BadCommandError, CommandReader, LineWriter, parse_command
from service.messages.load import Cancel, ClosedLoop, Fire, Poisson, RunLoad, StopLoad
from service.messages.pipes import LineCutter


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """A pipe whose ends a test may close itself."""
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            continue


class TestCommands:
    @pytest.mark.parametrize(
        ("line", "command"),
        [
            (b'{"do": "fire", "prompts": ["a"], "copies": 2}', Fire(prompts=("a",), copies=2)),
            (b'{"do": "stop"}', StopLoad()),
            (b'{"do": "cancel"}', Cancel()),
            (b'{"do": "cancel", "ids": ["x"]}', Cancel(ids=("x",))),
            (
                b'{"do": "run", "pattern": {"pattern": "closed", "users": 3}, "prompts": ["a"]}',
                RunLoad(pattern=ClosedLoop(users=3), prompts=("a",)),
            ),
            (
                b'{"do": "run", "pattern": {"pattern": "poisson", "rate_per_s": 4}, "prompts": ["a"]}\r',
                RunLoad(pattern=Poisson(rate_per_s=4), prompts=("a",)),
            ),
        ],
    )
    def test_that_commands_are_read(self, line: bytes, command: object) -> None:
        assert parse_command(line) == command

    @pytest.mark.parametrize(
        "line",
        [
            b"hello",
            b"[]",
            b"{}",
            b'{"do": "dance"}',
            b'{"do": "fire"}',
            b'{"do": "fire", "prompts": ["a"], "copies": 0}',
            b'{"do": "fire", "prompts": ["a"], "copies": true}',
            b'{"do": "fire", "prompts": "a"}',
            b'{"do": "fire", "prompts": ["\\ud800"]}',
            b'{"do": "fire", "prompts": ["\xff"]}',
            b'{"do": "run", "pattern": {"pattern": "poisson", "rate_per_s": 0}, "prompts": ["a"]}',
            b'{"do": "run", "pattern": {"pattern": "poisson", "rate_per_s": NaN}, "prompts": ["a"]}',
            b'{"do": "run", "pattern": {"pattern": "poisson", "rate_per_s": 1e999}, "prompts": ["a"]}',
            b'{"do": "run", "pattern": {"pattern": "closed", "users": 5000}, "prompts": ["a"]}',
            b"[" * 100_000,
        ],
    )
    def test_that_nonsense_is_refused_in_words(self, line: bytes) -> None:
        with pytest.raises(BadCommandError, match=r"The load process did not understand a command: .+\."):
            parse_command(line)


class TestLineCutter:
    def test_that_lines_cut_anywhere_are_put_together(self) -> None:
        cutter = LineCutter(most_bytes=10)
        lines = [cutter.feed(bytes([byte])) for byte in b"one\n\ntwo\r\nrest"]
        assert [line for group in lines for line in group] == [b"one", b"", b"two"]
        assert cutter.flush() == [b"rest"]
        assert cutter.flush() == []

    def test_that_a_line_too_long_is_given_up_and_the_next_is_read(self) -> None:
        cutter = LineCutter(most_bytes=10)
        assert cutter.feed(b"x" * 8) == []
        assert cutter.feed(b"x" * 8) == []
        assert cutter.feed(b"x\nshort\n" + b"y" * 11 + b"\n") == [None, b"short", None]


class TestCommandReader:
    async def test_that_lines_and_the_end_are_told_in_the_loop(self, pipe: tuple[int, int]) -> None:
        lines: list[bytes | None] = []
        ended = asyncio.Event()
        CommandReader(pipe[0], lines.append, ended.set).start()
        os.write(pipe[1], b"one\ntw")
        os.write(pipe[1], b"o\nnever ended")
        os.close(pipe[1])
        await ended.wait()
        assert lines == [b"one", b"two"]


class TestLineWriter:
    async def test_that_a_slow_reader_blocks_the_thread_and_not_the_loop(self, pipe: tuple[int, int]) -> None:
        freed: list[bool] = []
        writer = LineWriter(pipe[1], lambda: freed.append(True), lambda: None)
        writer.start()
        line = b"x" * 1_000_000 + b"\n"
        writer.write(line)
        assert not writer.is_free
        read = b""
        while len(read) < len(line):
            assert not freed or len(read) > len(line) - 100_000
            read += await asyncio.to_thread(os.read, pipe[0], 65536)
        await writer.wait_until_free()
        assert (read, freed) == (line, [True])

    async def test_that_a_reader_that_has_gone_is_told(self, pipe: tuple[int, int]) -> None:
        broken = asyncio.Event()
        writer = LineWriter(pipe[1], lambda: None, broken.set)
        writer.start()
        os.close(pipe[0])
        writer.write(b"hello\n")
        await broken.wait()
