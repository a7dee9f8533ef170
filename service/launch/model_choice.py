"""The model of a start on this machine: which one it is, and that it is here before Ray starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from service.engine.model.report import ModelError, Report
from service.engine.model.resolve import resolve
from service.launch import checks
from service.messages.life import StartError
from service.messages.options import (
    AUTO_MODEL,
    LARGE_MODEL,
    LARGE_MODEL_GPU_BYTES,
    SMALL_MODEL,
    ServiceOptions,
)

LARGE_MODEL_BYTES: Final = 3_422_777_952


class ModelChoice:
    """What the user named, or the small model until `suit` is told of a GPU that holds the large one.

    Attributes:
        name: the model, never `AUTO_MODEL`.
        is_open: the user named none.
        why: a sentence, where the small model takes the place of the large one.
    """

    def __init__(self, options: ServiceOptions) -> None:
        self.is_open = options.model == AUTO_MODEL
        self.name = SMALL_MODEL if self.is_open else options.model
        self.why = ""
        self._replicas = options.replicas

    def suit(self, gpu_bytes: int) -> bool:
        """Whether the model became another one, for a GPU with so much memory."""
        if not self.is_open or gpu_bytes < LARGE_MODEL_GPU_BYTES:
            return False
        self.name = LARGE_MODEL
        return True

    def bring(self, report: Report, on_other: Callable[[], None]) -> None:
        """Fetch and convert as needed, and see that memory holds the model; raises `ModelError` or `StartError`.

        Where no model was named and the large one cannot be had, `on_other` is called and the small one is brought.
        """
        if self.is_open and self.name == LARGE_MODEL:
            try:
                checks.check_memory_for_weights(LARGE_MODEL_BYTES, self._replicas)  # before so much is fetched
                self._bring(report)
            except (ModelError, StartError) as error:
                self.name = SMALL_MODEL
                large = LARGE_MODEL.rpartition("/")[2]
                self.why = f"{SMALL_MODEL} takes the place of {large}, which this GPU holds. {error}"
                on_other()
            else:
                return
        self._bring(report)

    def _bring(self, report: Report) -> None:
        checks.check_memory_for_model(resolve(self.name, report).path, self._replicas)
