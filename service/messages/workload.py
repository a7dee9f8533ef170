"""What a client knows of a workload: its name, its items and how its inputs are written."""

from __future__ import annotations

from typing import Final

import msgspec


class WorkloadAbout(msgspec.Struct, frozen=True, kw_only=True):
    """A workload as its clients see it.

    Attributes:
        name: as `--workload` takes it.
        description: one line.
        unit: what is counted, in the plural: what a result has one of, or tokens.
        examples: lines, each of which spells an input.
        query: name of the parameter of ``GET /?…=`` that takes such a line.
        inputs, outputs: names of the lists in the JSON that ``POST /`` takes and answers.
        streams: whether a result is a text that comes in pieces; else it is JSON, and comes at once.
    """

    name: str
    description: str
    unit: str
    examples: tuple[str, ...]
    query: str
    inputs: str
    outputs: str
    streams: bool

    @property
    def generates(self) -> bool:
        """Whether results come in tokens, of which a request says how many it wants."""
        return self.unit == "tokens"


TEXT: Final = WorkloadAbout(
    name="text",
    description="Continues a prompt with a language model, token by token",
    unit="tokens",
    examples=(
        "Once upon a time",
        "The three laws of robotics are",
        "A batch is a group of",
        "Explain latency to a child:",
        "In the year 2050, computers",
    ),
    query="text",
    inputs="inputs",
    outputs="outputs",
    streams=True,
)
