"""Decode steps as graphs: what is launched once, and not operation by operation.

On a GPU a small model's operations take less time than Python needs to launch them. A graph finds its tensors where
they were when it was captured. So the keys and values of the batch that is decoded are kept in static buffers, and for
each bucket of rows and columns a graph is captured there when the model is loaded. Rows and columns beyond the batch's
own are hidden by the mask. Short prompts have graphs too, and copy their keys and values to where their batch has them:
launched one by one on an H200, the operations of a prompt take as long as seven steps, for which all others would wait.
What no bucket holds is computed without a graph, in the static buffers or elsewhere.

Capturing is torch's (https://pytorch.org/docs/stable/notes/cuda.html#cuda-graphs).
"""

from __future__ import annotations

import logging
import math
import weakref
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import torch
from torch import Tensor, nn

from service.engine.model.batch_cache import BatchCache
from service.engine.model.passes import ForwardPass, Part
from service.engine.model.report import LoadReport, keep_quiet, reported
from service.messages.telemetry import GraphUse

logger = logging.getLogger(__name__)

ROWS: Final = (1, 2, 4, 8, 16, 32, 64, 128)
COLUMNS: Final = (128, 256, 512, 1024)
HELD_COLUMNS: Final = (128, 256, 512, 1024, 2048)
"""The room that is tried for graphs which read as many columns as are held: the largest for which there is memory."""
PROMPT_TOKENS: Final = 4096
PROMPTS: Final = tuple(
    (rows, columns) for rows, columns in product(ROWS, (16, 32, 64, 128)) if rows * columns <= PROMPT_TOKENS
)
MEMORY_SHARE: Final = 8  # of the free memory, static buffers take one part in this many
WARM_UPS: Final = 2

T = TypeVar("T")

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
    """A forward pass of which the decode steps of a batch are replayed, and short prompts.

    Attributes:
        use: how many steps were replayed; a pass counts as a step for each batch that it decodes.
        prompt_columns: of the longest prompt that is replayed.
    """

    def __init__(
        self,
        forward: ForwardPass,
        device: torch.device,
        capture: Capture,
        layers: int,
        rows: Sequence[int] = ROWS,
        columns: Sequence[int] = COLUMNS,
        has_kernel: bool = False,
        prompts: Sequence[tuple[int, int]] = PROMPTS,
        report: LoadReport = keep_quiet,
    ) -> None:
        """Capture a graph of a step for each pair of `rows` and `columns`, and one of a reading for each of `prompts`.

        `has_kernel`: a step reads as many columns as are held, so that one graph does for all of them.
        """
        super().__init__()
        self.use = GraphUse()
        self._forward = forward
        cell = _cell(forward, device, layers)
        room = _room(sum(each.nbytes for each in cell.like(1, 1)), device)
        rows, columns = _fitting(rows, columns, room)
        prompts = [each for each in prompts if math.prod(each) <= room]
        self._static = StaticBuffers(cell, rows[-1], columns[-1])
        columns = columns[-1:] if has_kernel else columns
        read_to = PromptBuffers(cell, max((rows * columns for rows, columns in prompts), default=0))
        # The largest first: the smaller ones find room in the memory that it needed.
        plans: list[tuple[Any, Any, Bucket]] = [
            *((PromptGraph, read_to, Bucket(*each)) for each in sorted(prompts, reverse=True)),
            *((StepGraph, self._static, Bucket(*each)) for each in sorted(product(rows, columns), reverse=True)),
        ]
        graphs = [
            (bucket, kind(forward, place, *bucket, capture))
            for kind, place, bucket in reported(plans, "graphs", report)
        ]
        self._prompts = _smallest_first(graphs, PromptGraph)
        self._steps = _smallest_first(graphs, StepGraph)
        self.prompt_columns = max((columns for _, columns in prompts), default=0)
        logger.info("%d graphs captured, for up to %d rows of %d columns", len(graphs), rows[-1], columns[-1])

    def forward(self, parts: Sequence[Part]) -> Tensor:
        graphs = [self._graph_for(part, is_first=part is parts[0]) for part in parts]
        beside = [part for part, graph in zip(parts, graphs, strict=True) if graph is None]
        self._count(beside, replayed=int(isinstance(graphs[0], StepGraph)))
        replayed = [None if graph is None else graph.logits(part) for part, graph in zip(parts, graphs, strict=True)]
        launched = iter(torch.split(self._forward(beside), [len(part.ids) for part in beside]) if beside else ())
        logits = [next(launched) if each is None else each for each in replayed]
        return logits[0] if len(logits) == 1 else torch.cat(logits)

    def _graph_for(self, part: Part, *, is_first: bool) -> StepGraph | PromptGraph | None:
        if _is_step(part):
            is_held = is_first and part.cache.rows <= self._static.rows
            return _fitting_graph(self._steps, len(part.ids), part.cache.length + 1) if is_held else None
        if isinstance(part.cache, BatchCache) and not part.cache.length:
            return _fitting_graph(self._prompts, *part.ids.shape)
        return None

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
        view = StepView(static.by_layer, rows, columns, self._column)
        part = Part(self._ids, self._positions, self._mask, view, is_graphed=True)
        self._replay = capture(lambda: forward([part]))

    def logits(self, part: Part) -> Tensor:
        """Those that follow the next column of a batch, [rows, vocabulary], good until the next step."""
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


class StepView:
    """A cache of the first rows and columns of the static buffers.

    Attributes:
        column: the place of the next column, [1].
    """

    def __init__(self, by_layer: Sequence[tuple[Tensor, Tensor]], rows: int, columns: int, column: Tensor) -> None:
        self.column = column
        self._by_layer = by_layer
        self._rows = rows
        self._columns = columns

    def buffers_of(self, layer: int) -> tuple[Tensor, Tensor]:
        """The keys and values of a layer, [at least its rows, heads, columns, size]."""
        return self._by_layer[layer]

    def update(self, keys: Tensor, values: Tensor, layer: int, *_: Any, **__: Any) -> tuple[Tensor, ...]:
        written = []
        for buffer, new in zip(self._by_layer[layer], (keys, values), strict=True):
            of_rows = buffer[: self._rows]
            of_rows.index_copy_(2, self.column, new)
            written.append(of_rows[:, :, : self._columns])
        return tuple(written)

    def get_seq_length(self, layer: int = 0) -> int:
        return self._columns - 1


class PromptBuffers:
    """Where the graphs of prompts leave keys and values.

    Attributes:
        cell: a cache whose layers lie in its buffers as these do.
    """

    @torch.inference_mode()
    def __init__(self, cell: BatchCache, cells: int) -> None:
        """Make room for `cells` columns, those of all rows counted together."""
        self.cell = cell
        self._buffers = cell.like(1, cells)

    def of(self, rows: int, columns: int) -> list[Tensor]:
        """The beginning of each buffer, viewed as one of `rows` rows of `columns` columns."""
        made = []
        for each in self._buffers:
            count, _, heads, _, size = each.shape
            cells = each.flatten(1)[:, : rows * heads * columns * size]
            made.append(cells.view(count, rows, heads, columns, size))
        return made


class PromptGraph:
    """The reading of prompts of `rows` rows, of at most `columns` columns each."""

    @torch.inference_mode()
    def __init__(self, forward: ForwardPass, place: PromptBuffers, rows: int, columns: int, capture: Capture) -> None:
        self._cell, self._buffers = place.cell, place.of(rows, columns)
        self._ids = torch.zeros(rows, columns, dtype=torch.long, device=self._buffers[0].device)
        self._positions = torch.zeros_like(self._ids)
        self._mask = torch.ones_like(self._ids, dtype=torch.bool)
        view = _PromptView(self._cell.by_layer(self._buffers))
        part = Part(self._ids, self._positions, self._mask, view, is_graphed=True)
        self._replay = capture(lambda: forward([part]))

    def logits(self, part: Part) -> Tensor:
        """Those that follow the last column, [rows, vocabulary]; the part's cache holds its columns then."""
        rows, columns = part.ids.shape
        first = self._ids.shape[1] - columns  # what is before is padding
        self._ids[:rows, first:] = part.ids
        self._positions[:rows, first:] = part.positions
        self._mask[:rows, :first] = False
        self._mask[:rows, first:] = True if part.mask is None else part.mask
        self._mask[rows:] = True  # a row that attends to nothing would leave NaN behind
        logits = self._replay()[:rows].clone()  # the next prompts may come in the same pass
        part.cache.begin_as(self._cell, [each[:, :rows, :, first:] for each in self._buffers])
        return logits


class _PromptView:
    """A cache that holds nothing yet and keeps what it gets in these keys and values of each layer."""

    def __init__(self, by_layer: Sequence[tuple[Tensor, Tensor]]) -> None:
        self._by_layer = by_layer

    def update(self, keys: Tensor, values: Tensor, layer: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        for buffer, new in zip(self._by_layer[layer], (keys, values), strict=True):
            buffer.copy_(new)
        return keys, values

    def get_seq_length(self, layer: int = 0) -> int:
        return 0


class Bucket(NamedTuple):
    """What a graph has room for."""

    rows: int
    columns: int


def _smallest_first(graphs: Sequence[tuple[Bucket, Any]], kind: type[T]) -> list[tuple[Bucket, T]]:
    return sorted(
        ((bucket, graph) for bucket, graph in graphs if isinstance(graph, kind)), key=lambda each: math.prod(each[0])
    )


def _fitting_graph(graphs: Sequence[tuple[Bucket, T]], rows: int, columns: int) -> T | None:
    """The first that has room."""
    return next((graph for bucket, graph in graphs if rows <= bucket.rows and columns <= bucket.columns), None)


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


def _room(cell_bytes: int, device: torch.device) -> float:
    """Columns of all rows together that buffers may hold, those of steps and those of prompts each."""
    if device.type != "cuda":
        return math.inf
    free, _ = torch.cuda.mem_get_info(device)
    return free // MEMORY_SHARE // cell_bytes


def _fitting(rows: Sequence[int], columns: Sequence[int], room: float) -> tuple[Sequence[int], Sequence[int]]:
    """The buckets for whose largest there is room, of each at least one."""
    while rows[-1] * columns[-1] > room and len(rows) + len(columns) > 2:
        if len(columns) > 1:  # longer ones are computed as well; more rows in a step are what graphs are for
            columns = columns[:-1]
        else:
            rows = rows[:-1]
    return rows, columns
