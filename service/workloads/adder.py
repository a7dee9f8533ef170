"""The vectorised adder of Ray's batching tutorial."""

from __future__ import annotations

import time
from typing import Any, ClassVar, Final

from service.workloads.workload import Workload

WORK_S: Final = 0.2
LARGEST: Final = 2**53  # beyond it JSON's numbers are no longer exact everywhere


class Adder(Workload):
    """Adds 1 to all numbers of a batch at once, after 200 ms that stand for work, whatever the batch's size."""

    name: ClassVar = "adder"
    description: ClassVar = "Adds 1 to each number, after 200 ms of work for the whole batch"
    examples: ClassVar = tuple(str(number) for number in range(9))
    unit: ClassVar = "numbers"
    query: ClassVar = "number"

    def check(self, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > LARGEST:
            raise ValueError(f"The adder takes a whole number such as 3, not {str(value)[:80]!r}.")
        return value

    def __call__(self, inputs: list[int]) -> list[int]:
        import numpy as np

        time.sleep(WORK_S)
        results: list[int] = (np.asarray(inputs) + 1).tolist()
        return results
