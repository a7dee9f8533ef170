"""Decode steps as graphs: what is launched once, and not operation by operation.

On a GPU a small model's operations take less time than Python needs to launch them. A graph finds its tensors where
they were when it was captured. So the keys and values of the batch that is decoded alone are kept in static buffers,
and for each bucket of rows and columns a graph is captured there when the model is loaded. Rows and columns beyond the
batch's own are hidden by the mask. Steps that read prompts, and steps that no bucket holds, are computed without a
graph, in the static buffers or elsewhere.

Capturing is torch's (https://pytorch.org/docs/stable/notes/cuda.html#cuda-graphs).
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Sequence
from itertools import product
from typing import Final, TypeAlias

import torch
from torch import Tensor, nn

from service.engine.model.batch_cache import BatchCache
from service.engine.model.passes import ForwardPass, Part
from service.engine.model.report import LoadReport, keep_quiet, reported
from service.messages.telemetry import GraphUse

logger = logging.getLogger(__name__)

ROWS: Final = (1, 2, 4, 8, 16, 32, 64, 128)
COLUMNS: Final = (128, 256, 512, 1024)
MEMORY_SHARE: Final = 8  # of the free memory, the static buffers take one part in this many
WARM_UPS: Final = 2

Capture: TypeAlias = Callable[[Callable[[], Tensor]], Callable[[], Tensor]]
"""Records what a function computes from tensors; what it returns does that again with what they hold then."""


class LaunchedPass(nn.Module):
    """A forward pass on a GPU whose operations are launched one by one, and the sentence that says why."""

    def __init__(self, forward: ForwardPass, why_not: str) -> None:
        super().__init__()
        self.use = GraphUse(why_not=why_not)
        self._forward = forward

    def forward(self, parts: Sequence[Part]) -> Tensor:
        self.use = _counted(self.use, steps=sum(map(_is_step, parts)))
        return self._forward(parts)


class GraphedPass(nn.Module):
    """A forward pass of which the decode steps of a batch are replayed; prompts that join it are computed beside.

    Attributes:
        use: how many steps were replayed; a pass counts as a step for each batch that it decodes.
    """

    def __init__(
        self,
        forward: ForwardPass,
        device: torch.device,
        capture: Capture,
        layers: int,
        rows: Sequence[int] = ROWS,
        columns: Sequence[int] = COLUMNS,
        report: LoadReport = keep_quiet,
    ) -> None:
        super().__init__()
        self.use = GraphUse()
        self._forward = forward
        cell = _cell(forward, device, layers)
        rows, columns = _fitting(rows, columns, sum(each.nbytes for each in cell.like(1, 1)), device)
        self._static = StaticBuffers(cell, rows[-1], columns[-1])
        # The largest first: the smaller ones find room in the memory that it needed.
        buckets = sorted(product(rows, columns), reverse=True)
        self._graphs = {
            bucket: StepGraph(forward, self._static, *bucket, capture) for bucket in reported(buckets, "graphs", report)
        }
        self._buckets = sorted(buckets, key=lambda bucket: bucket[0] * bucket[1])
        logger.info("%d graphs captured, for up to %d rows of %d columns", len(buckets), rows[-1], columns[-1])

    def forward(self, parts: Sequence[Part]) -> Tensor:
        graph = self._graph_for(parts[0])
        beside = parts if graph is None else parts[1:]
        self._count(beside, replayed=int(graph is not None))
        if graph is None:
            return self._forward(parts)
        logits = graph.step(parts[0])
        return torch.cat((logits, self._forward(beside))) if beside else logits

    def _graph_for(self, part: Part) -> StepGraph | None:
        if not _is_step(part) or part.cache.rows > self._static.rows:
            return None
        rows, end = len(part.ids), part.cache.length + 1
        fitting = (self._graphs[each] for each in self._buckets if rows <= each[0] and end <= each[1])
        return next(fitting, None)

    def _count(self, beside: Sequence[Part], replayed: int) -> None:
        launched = [part for part in beside if _is_step(part)]
        why_not = self.use.why_not
        if launched and replayed:
            why_not = "Rows of very different length are decoded apart, and graphs hold those of one length."
        elif launched:
            rows, columns = launched[0].cache.rows, launched[0].cache.length + 1
            most = f"{self._static.rows} rows and {self._static.columns:,} columns"
            why_not = f"A batch of {rows} rows and {columns:,} columns exceeds the largest graph: {most}."
        self.use = _counted(self.use, len(launched) + replayed, replayed, why_not)


class StaticBuffers:
    """The buffers that graphs read and write; one cache at a time goes on in them."""

    @torch.inference_mode()
    def __init__(self, cell: BatchCache, rows: int, columns: int) -> None:
        """Make room for `rows` and `columns` of the model whose cache `cell` is."""
        self.rows, self.columns = rows, columns
        self.buffers = cell.like(rows, columns)
        self.by_layer = cell.by_layer(self.buffers)
        self._owner: weakref.ref[BatchCache] | None = None

    def adopt(self, cache: BatchCache) -> None:
        if cache.is_in(self.buffers):
            return
        owner = None if self._owner is None else self._owner()
        if owner is not None and owner.is_in(self.buffers):
            owner.move_out()
        cache.move_to(self.buffers)
        self._owner = weakref.ref(cache)


class StepGraph:
    """The step of `rows` rows that attend to at most `columns` columns."""

    @torch.inference_mode()
    def __init__(self, forward: ForwardPass, static: StaticBuffers, rows: int, columns: int, capture: Capture) -> None:
        self._static = static
        device = static.buffers[0].device
        self._ids = torch.zeros(rows, 1, dtype=torch.long, device=device)
        self._positions = torch.zeros_like(self._ids)
        self._column = torch.zeros(1, dtype=torch.long, device=device)
        self._mask = torch.zeros(rows, columns, dtype=torch.bool, device=device)
        self._mask[:, 0] = True
        part = Part(self._ids, self._positions, self._mask, _View(static.by_layer, rows, columns, self._column))
        self._replay = capture(lambda: forward([part]))

    def step(self, part: Part) -> Tensor:
        """The logits that follow the next column of a batch, [rows, vocabulary], good until the next step."""
        rows, held = len(part.ids), part.cache.length
        self._static.adopt(part.cache)
        self._ids[:rows] = part.ids
        self._positions[:rows] = part.positions
        self._column.fill_(held)
        self._mask.zero_()
        self._mask[:, 0] = True  # a row that attends to nothing would leave NaN behind
        self._mask[:rows, : held + 1] = True if part.mask is None else part.mask
        logits = self._replay()
        part.cache.count_column()
        return logits[:rows]


class _View:
    """A cache of the first rows and columns of the static buffers; a tensor holds the place of the next column."""

    def __init__(self, by_layer: Sequence[tuple[Tensor, Tensor]], rows: int, columns: int, column: Tensor) -> None:
        self._by_layer = by_layer
        self._rows = rows
        self._columns = columns
        self._column = column

    def update(self, keys: Tensor, values: Tensor, layer: int) -> tuple[Tensor, ...]:
        written = []
        for buffer, new in zip(self._by_layer[layer], (keys, values), strict=True):
            of_rows = buffer[: self._rows]
            of_rows.index_copy_(2, self._column, new)
            written.append(of_rows[:, :, : self._columns])
        return tuple(written)

    def get_seq_length(self) -> int:
        return self._columns - 1


def _is_step(part: Part) -> bool:
    """Whether it is one more column of a batch that has columns."""
    return part.ids.shape[1] == 1 and isinstance(part.cache, BatchCache) and part.cache.length > 0


def _counted(use: GraphUse, steps: int, replayed: int = 0, why_not: str | None = None) -> GraphUse:
    why = use.why_not if why_not is None else why_not
    return GraphUse(steps=use.steps + steps, replayed=use.replayed + replayed, why_not=why)


def as_cuda_graphs(device: torch.device) -> Capture:
    pool = torch.cuda.graph_pool_handle()

    def capture(compute: Callable[[], Tensor]) -> Callable[[], Tensor]:
        aside = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        here = torch.cuda.current_stream(device)
        aside.wait_stream(here)
        with torch.cuda.stream(aside):
            for _ in range(WARM_UPS):
                compute()
        here.wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            result = compute()

        def replay() -> Tensor:
            graph.replay()
            return result

        return replay

    return capture


@torch.inference_mode()
def _cell(forward: ForwardPass, device: torch.device, layers: int) -> BatchCache:
    """A cache of one row and column."""
    cache, zero = BatchCache(1, layers), torch.zeros(1, 1, dtype=torch.long, device=device)
    forward([Part(zero, zero, None, cache)])
    return cache


def _fitting(
    rows: Sequence[int], columns: Sequence[int], cell_bytes: int, device: torch.device
) -> tuple[Sequence[int], Sequence[int]]:
    """The buckets for whose largest there is memory, of each at least one."""
    if device.type != "cuda":
        return rows, columns
    free, _ = torch.cuda.mem_get_info(device)
    while rows[-1] * columns[-1] * cell_bytes > free // MEMORY_SHARE and len(rows) + len(columns) > 2:
        if len(columns) > 1:  # longer ones are computed as well; more rows in a step are what graphs are for
            columns = columns[:-1]
        else:
            rows = rows[:-1]
    return rows, columns
