"""`pynvml` on a machine that has none: how many GPUs there are, and what is refused."""

from __future__ import annotations


class Nvml:
    """`pynvml` on a machine with `count` GPUs, or without its library where `count` is ``None``."""

    class NVMLError(Exception):
        pass

    def __init__(self, count: int | None, refused: str = "") -> None:
        """`refused`: a function that raises."""
        self._count = count
        self._refused = refused

    def nvmlInit(self) -> None:
        self._answer("nvmlInit")
        if self._count is None:
            raise self.NVMLError("NVML Shared Library Not Found")

    def nvmlDeviceGetCount(self) -> int | None:
        self._answer("nvmlDeviceGetCount")
        return self._count

    def _answer(self, function: str) -> None:
        if function == self._refused:
            raise self.NVMLError(function)
