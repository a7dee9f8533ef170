"""The contract of a function that is served in batches."""

from __future__ import annotations

import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

from service.messages.workload import WorkloadAbout


class Workload(ABC):
    """A function of a list of inputs, made ready once in each replica and then called with batch after batch.

    Attributes:
        name: as the window shows it.
        description: one line.
        unit: what is counted, in the plural.
        examples: lines as `parse` takes them.
        query: name of the parameter of ``GET /?…=``, which is such a line.
        inputs, outputs: names of the lists in the JSON that ``POST /`` takes and answers.
        computes_on_device: whether `load` makes use of a GPU where there is one; else it gets ``cpu``.
        longest_call_s: after which a call counts as stuck, or a step of one that streams: its requests fail, and the
            replica is replaced. ``None``: 20 times as long as the longest of late, but no less than 30 s, and 300 s for
            the first.
        retry_members: whether a call that fails is made again with each half of its inputs, and so on, so that an input
            that the function cannot take fails alone. ``False`` where a call has effects that must not come twice.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    examples: ClassVar[tuple[str, ...]]
    unit: ClassVar[str] = "items"
    query: ClassVar[str] = "input"
    inputs: ClassVar[str] = "inputs"
    outputs: ClassVar[str] = "outputs"
    computes_on_device: ClassVar[bool] = False
    longest_call_s: ClassVar[float | None] = None
    retry_members: ClassVar[bool] = True

    def parse(self, line: str) -> Any:
        """The JSON that a line stands for, unless this is overridden itself; raises `ValueError` with what to write."""
        try:
            return json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{line[:80]!r} cannot be read; write a line such as {self.examples[0]!r}.") from error

    def check(self, value: Any) -> Any:
        """An input as JSON has it, made what the function takes; raises `ValueError` where it takes no such thing."""
        return value

    def weight(self, value: Any) -> int:
        """What an input, as `check` gave it, counts in `max_batch_tokens`: 1 or more, such as an image's pixels."""
        return 1

    def load(self, device: str) -> None:  # noqa: B027  (not every function has something to load)
        """Make ready, in the thread that will call; `device` is one of torch's names."""

    @abstractmethod
    def __call__(self, inputs: list[Any]) -> list[Any] | Iterator[list[str | None]]:
        """The output of each input, in their order, as JSON can spell it.

        Called by one thread at a time, or by as many as `max_concurrent_batches` says.

        One that is a generator streams instead: it yields lists of equal length with the next piece of each output's
        text, or ``None`` where there is nothing new.
        """

    @classmethod
    def about(cls) -> WorkloadAbout:
        return WorkloadAbout(
            name=cls.name,
            description=cls.description,
            unit=cls.unit,
            examples=cls.examples,
            query=cls.query,
            inputs=cls.inputs,
            outputs=cls.outputs,
            streams=inspect.isgeneratorfunction(cls.__call__),
        )
