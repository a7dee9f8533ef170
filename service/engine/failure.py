"""What a model raised, kept as text so that the tensors in its traceback can be freed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception in words."""

    text: str
    is_out_of_memory: bool

    def __str__(self) -> str:
        return self.text


def attempt(action: Callable[[], T]) -> T | Failure:
    """What `action` returns, or why it failed. Anything a model raises counts, `SystemExit` too, but not Ctrl+C."""
    try:
        return action()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        logger.debug("The model raised", exc_info=error)
        return Failure(_in_words(error), _is_out_of_memory(error))


def _in_words(error: BaseException) -> str:
    name = type(error).__name__
    return f"{name}: {error}" if str(error) else name


def _is_out_of_memory(error: BaseException) -> bool:
    """torch has a class for it on accelerators; its allocator for the CPU raises a bare `RuntimeError`."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(mark in str(error) for mark in ("can't allocate", "out of memory"))
