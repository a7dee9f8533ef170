"""What memory holds, and failures of a model, running out of memory among them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import torch

from service.engine.job import is_of_lost_device, is_out_of_memory
from service.engine.memory import free_memory_bytes
from service.engine.model.batch_cache import BatchCache
from service.engine.model.load import LoadedModel
from service.engine.model.passes import Part

KEYS_SHARE: Final = 0.5  # of the memory that is free once the model is loaded
REMEMBERED_S: Final = 60.0  # after which more rows are tried again: what a row needs depends on its length

T = TypeVar("T")


def tokens_that_fit(loaded: LoadedModel, replicas: int) -> int:
    """Tokens whose keys and values a share of the memory that is free now holds.

    Rows are padded to those of like length, and move when they outgrow their room: for that, and for what else the
    machine does, the rest remains.
    """
    with torch.inference_mode():
        cache, zero = BatchCache(1, loaded.layers), torch.zeros(1, 1, dtype=torch.long, device=loaded.device)
        loaded.forward([Part(zero, zero, None, cache)])
    token_bytes = sum(each.nbytes for each in cache.like(1, 1))
    if loaded.device.type == "cuda":
        free_bytes, _ = torch.cuda.mem_get_info(loaded.device)
    else:
        free_bytes = free_memory_bytes() // replicas
    return max(int(KEYS_SHARE * free_bytes / max(token_bytes, 1)), 1)


class MemoryLimit:
    """Remembers the size that is left when a batch did not fit."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._rows: int | None = None
        self._until_s = 0.0

    @property
    def rows(self) -> int | None:
        """The largest batch that fit since the last out-of-memory error; ``None`` where none is known."""
        return self._rows if self._clock() < self._until_s else None

    def lower(self, rows: int) -> None:
        """Remember that no more than `rows` fit."""
        self._rows, self._until_s = max(rows, 1), self._clock() + REMEMBERED_S

    def parts(self, rows: Sequence[T]) -> list[list[T]]:
        """As few parts as fit, of about the same size."""
        most = self.rows
        if not rows or most is None:
            return [list(rows)]
        count = -(-len(rows) // most)
        return [list(rows[i * len(rows) // count : (i + 1) * len(rows) // count]) for i in range(count)]


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception in words."""

    text: str
    is_out_of_memory: bool
    is_of_lost_device: bool = False


def attempt(action: Callable[[], T]) -> T | Failure:
    """What `action` returns, or why it failed. Anything a model raises counts, `SystemExit` too, but not Ctrl+C."""
    try:
        return action()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        logger.debug("The model raised", exc_info=error)
        return Failure(_in_words(error), is_out_of_memory(error), is_of_lost_device(error))


def _in_words(error: BaseException) -> str:
    """What it says first: CUDA's errors go on with advice for programmers."""
    name, text = type(error).__name__, str(error).strip()
    return f"{name}: {text.splitlines()[0]}" if text else name
