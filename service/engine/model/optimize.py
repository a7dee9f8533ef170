"""The quickest forward pass that computes the same as transformers' own.

A Llama, and what computes as it does, gets one in fewer operations that takes several batches at once, on any device.
On the CPU weights are packed as well, of any architecture. `python -m tests.benchmarks.optimized` measures both.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import takewhile
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaForCausalLM, LlamaRotaryEmbedding
from transformers.models.mistral.modeling_mistral import (
    MistralDecoderLayer,
    MistralForCausalLM,
    MistralRotaryEmbedding,
)
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer, Qwen2ForCausalLM, Qwen2RotaryEmbedding

from service.engine.memory import free_memory_bytes
from service.engine.model.batch_cache import BatchCache
from service.engine.model.graphs import COLUMNS, HELD_COLUMNS, Capture, GraphedPass, LaunchedPass, as_cuda_graphs
from service.engine.model.lean import AS_TRANSFORMERS, AT_ONCE, LeanLlama, MakeLinear, Operators
from service.engine.model.linear import (
    InvariantLinear,
    MergedLinear,
    PackedLinear,
    SideBySide,
    has_kernels,
    is_invariant,
    packs,
)
from service.engine.model.passes import ForwardPass, OwnPass, Part
from service.engine.model.report import LoadReport, ModelError, keep_quiet, reported

logger = logging.getLogger(__name__)

LEAN: Final[dict[type, tuple[type, type]]] = {
    LlamaForCausalLM: (LlamaDecoderLayer, LlamaRotaryEmbedding),
    MistralForCausalLM: (MistralDecoderLayer, MistralRotaryEmbedding),
    Qwen2ForCausalLM: (Qwen2DecoderLayer, Qwen2RotaryEmbedding),
}
"""Architectures that compute as a Llama does, their layers and rotations."""

WINDOWS: Final = ("sliding_window", "attention_chunk_size", "window_size")
"""Names of configurations for how many columns some layers attend to."""

FIXED_ROTATIONS: Final = frozenset({"default", "linear", "llama3", "yarn"})  # others depend on a pass's longest row


class Linear(NamedTuple):
    """How linear layers compute, and by how many roundings of the largest logit results may differ for it."""

    make: MakeLinear
    roundings: float
    operators: Operators = AS_TRANSFORMERS


IN_ANOTHER_ORDER: Final = 256.0
"""Roundings of float32 on a GPU, whose products add in an order that depends on how many rows there are.

On an H200 graphs of random models differed by more than 8 from what was launched.
"""

ROOM_FOR_TWO: Final = 4.0  # times all weights, for each replica: keys and values need some as well

AS_IT_IS: Final = Linear(SideBySide, 8.0)
AT_A_GPU: Final = Linear(MergedLinear, 32.0, AT_ONCE)  # by torch's operators alone
PACKED: Final = {torch.bfloat16: Linear(PackedLinear, 0.0), torch.float32: Linear(PackedLinear, 256.0)}
INVARIANT: Final = {dtype: Linear(InvariantLinear, linear.roundings) for dtype, linear in PACKED.items()}


def by_kernels(*, eight_bit: bool = False, as_published: bool = True, twofold: bool = False) -> Linear:
    """Linear layers of our own kernels, where there are some; `twofold` for a model that was published in few bits."""
    from service.engine.model.by_kernels import BY_KERNELS
    from service.engine.model.tiled import EightBitLinear, PublishedLinear, TiledLinear, TwofoldLinear
    from service.engine.model.vectors import HAS_BYTES

    if eight_bit:
        return Linear(EightBitLinear, 32.0, BY_KERNELS)
    published = TwofoldLinear if twofold else PublishedLinear
    return Linear(published if as_published and HAS_BYTES else TiledLinear, 32.0, BY_KERNELS)


def on_a_processor(dtype: torch.dtype, *, twofold: bool = False) -> list[Linear]:
    """Linear layers for weights of `dtype`, the quickest first; none where there are but torch's."""
    packed = [PACKED[dtype]] if packs(dtype) else []
    if dtype != torch.bfloat16 or not has_kernels():
        return packed
    return [by_kernels(twofold=twofold), by_kernels(as_published=False), *packed]


def optimized(
    model: Any, device: torch.device, eight_bit: bool = False, report: LoadReport = keep_quiet, replicas: int = 1
) -> nn.Module:
    """The `ForwardPass` of a model on `device`, whose layers may be replaced; it is not to be called otherwise.

    Its results are equal within rounding, verified on a probe input; a model with which it fails computes as it is.
    Weights are packed only where memory holds both kinds for a moment. With `eight_bit` they are rounded to 8 bits, and
    a model with which that fails is a `ModelError`. `report` is called for layers and, on a GPU, for graphs.
    `replicas` share the memory.
    """
    own = OwnPass(model, device)
    if eight_bit:
        try:
            return _replaced(model, own, by_kernels(eight_bit=True), report)
        except Exception as error:
            raise ModelError(
                f"This model's weights cannot be had in 8 bits ({error}); choose another dtype, such as auto."
            ) from error
    if device.type == "cuda":
        torch.backends.cuda.enable_cudnn_sdp(False)  # it plans for 50 ms at each new shape, as nearly every prompt has
        forward = _first_same(model, own, on_a_gpu(), report) if _is_lean(model) else own
        if forward is not own:
            return forward
        return _graphed(own, model, list(_reference_logits(own, model)), AS_IT_IS, report)
    dtype = next(model.parameters()).dtype
    times_free = free_memory_bytes() / sum(each.nbytes for each in model.parameters())
    twofold = times_free >= ROOM_FOR_TWO * replicas
    on_processor = on_a_processor(dtype, twofold=twofold) if device.type == "cpu" and times_free >= 1 else []
    return _first_same(model, own, on_processor or [AS_IT_IS], report)


def deterministic(model: Any, eight_bit: bool = False, report: LoadReport = keep_quiet) -> nn.Module:
    """The `ForwardPass` of a `LEAN` model on a processor whose results for a row do not depend on the rows beside it.

    Raises `ModelError` for another architecture, and where a probe shows that this processor's kernels are others.
    """
    dtype = next(model.parameters()).dtype
    if not _is_lean(model):
        kinds = ", ".join(kind.__name__ for kind in LEAN)
        name = type(model).__name__
        raise ModelError(f"{name} cannot be computed deterministically, only {kinds}; leave out deterministic.")
    found = [by_kernels(eight_bit=True)] if eight_bit else on_a_processor(dtype)
    linears = [each if each.operators.attended else INVARIANT[dtype] for each in found]
    if not linears:
        raise ModelError(f"This processor has no deterministic products in {dtype}; leave out deterministic.")
    own = OwnPass(model, torch.device("cpu"))
    lean = _first_same(model, own, linears, report)
    if not isinstance(lean, LeanLlama):
        raise ModelError("This model's results would be others if it were computed deterministically; leave it out.")
    if not all(is_invariant(layer, inputs, lean.number) for layer, inputs in lean.linears()):
        raise ModelError("This processor's products depend on the number of rows; leave out deterministic.")
    return lean


def on_a_gpu() -> list[Linear]:
    """Linear layers for a CUDA GPU, the quickest first."""
    try:
        from service.engine.model.gpu_kernels import AS_FUSED, FusedLinear
    except ImportError as error:  # torch brings Triton along on Linux alone
        logger.info("Without kernels of our own for the GPU: %s", error)
        return [AT_A_GPU, AS_IT_IS]
    return [Linear(FusedLinear, 32.0, AS_FUSED), AT_A_GPU, AS_IT_IS]


def _first_same(model: Any, own: OwnPass, linears: Sequence[Linear], report: LoadReport) -> nn.Module:
    """The pass with the first of these linear layers that computes the same; `own` where none does."""
    for linear in linears:
        try:
            return _replaced(model, own, linear, report)
        except Exception as error:  # such as of an architecture that looks at its layers' weights
            logger.warning("The model is not computed by %s: %s", linear.make.__name__, error)
    logger.warning("The model computes as transformers has it, which is slower.")
    return own


def _replaced(model: Any, own: OwnPass, linear: Linear, report: LoadReport) -> nn.Module:
    """Compute with these linear layers; what they may change is tried out."""
    if _is_lean(model):
        return _lean(model, own, linear, report)
    if linear is not AS_IT_IS:
        _exchange(model, own, linear, report)
    return own


def _lean(model: Any, own: ForwardPass, linear: Linear, report: LoadReport) -> nn.Module:
    lean = LeanLlama(model, linear.make, report, linear.operators)
    expected = list(_reference_logits(own, model))
    _require_same(expected, list(_reference_logits(lean, model)), linear.roundings)
    forward = _graphed(lean, model, expected, linear, report) if expected[0].is_cuda else lean
    del model.model.layers, model.lm_head  # the weights are in `lean` now
    return forward


def _graphed(forward: nn.Module, model: Any, expected: list[Tensor], linear: Linear, report: LoadReport) -> nn.Module:
    """Raises what kernels of our own do; torch's operators are tried next."""
    device, has_kernel = expected[0].device, linear.operators.attended is not None
    layers = count_layers(model)
    try:
        begin_capture = partial(as_cuda_graphs, device)
        is_lean = isinstance(forward, LeanLlama)
        columns = (
            HELD_COLUMNS if has_kernel else COLUMNS if is_lean else columns_that_hold(forward, model, begin_capture)
        )
        graphed = GraphedPass(
            forward, device, begin_capture(), layers, columns=columns, has_kernel=has_kernel, report=report
        )
        roundings = linear.roundings if has_kernel else AS_IT_IS.roundings
        _require_same(expected, list(_reference_logits(graphed, model)), roundings)
    except Exception as error:  # such as for lack of memory
        if has_kernel:
            raise
        reason = str(error).partition("\n")[0].partition(". ")[0]  # both go on with advice to programmers
        logger.warning("A step's operations are launched one by one, which is slower: %s", reason)
        return LaunchedPass(forward, f"No graph could be captured: {reason}")
    return graphed


@torch.inference_mode()
def columns_that_hold(forward: ForwardPass, model: Any, begin_capture: Callable[[], Capture]) -> Sequence[int]:
    """The columns of graphs that compute as `forward`, transformers' own pass of `model`, does.

    In a graph each column attends to all before it. In some architectures it attends to the last ones alone, so that
    only graphs of no more columns hold. What a configuration does not say of it is seen at long texts. Each trial has
    a capture of its own: the memory of graphs that are gone cannot be that of others.

    Raises:
        ValueError: for an architecture of which no graph holds.
    """
    config, weights = model.config.get_text_config(), model.get_input_embeddings().weight
    context = getattr(config, "max_position_embeddings", None) or COLUMNS[-1]
    windows = [getattr(config, name, None) for name in WINDOWS]
    most = min(window for window in (*windows, context) if window)
    positions = torch.arange(COLUMNS[-1], device=weights.device)[None]
    ids, layers = positions * 37 % len(weights), count_layers(model)

    def after(compute: ForwardPass, held: int) -> Tensor:
        cache = BatchCache(1, layers)
        compute([Part(ids[:, :held], positions[:, :held], None, cache)])
        return compute([Part(ids[:, held : held + 1], positions[:, held : held + 1], None, cache)])

    def holds(columns: int) -> bool:
        graphed = GraphedPass(
            forward, weights.device, begin_capture(), layers, rows=(1,), columns=(columns,), prompts=()
        )
        texts = (columns // 2 + 1, min(columns, context) - 1)
        return all(_are_same(after(forward, held), after(graphed, held), AS_IT_IS.roundings) for held in texts)

    tried = (columns for columns, fewer in zip(COLUMNS, (0, *COLUMNS), strict=False) if fewer < most)
    holding = list(takewhile(holds, tried))
    if not holding:
        raise ValueError(f"{type(model).__name__} attends in a way that no graph holds")
    return holding


def _exchange(model: Any, own: ForwardPass, linear: Linear, report: LoadReport) -> None:
    expected = list(_reference_logits(own, model))
    replaced = [
        (parent, name, layer)
        for parent in model.modules()
        for name, layer in parent.named_children()
        if type(layer) is nn.Linear  # a subclass may compute something else
    ]
    try:
        for parent, name, layer in reported(replaced, "layers", report):
            setattr(parent, name, linear.make(layer))
        _require_same(expected, list(_reference_logits(own, model)), linear.roundings)
    except Exception:
        for parent, name, layer in replaced:
            setattr(parent, name, layer)
        raise


def count_layers(model: Any) -> int:
    """As its configuration has it; 1 where it does not say."""
    return getattr(model.config.get_text_config(), "num_hidden_layers", None) or 1


def _is_lean(model: Any) -> bool:
    """Whether the model is made of exactly the classes of one that is `LEAN`, and each column attends to all before."""
    if type(model) not in LEAN:
        return False
    layer, rotation = LEAN[type(model)]
    rotates_by = model.model.rotary_emb
    has_known_parts = type(rotates_by) is rotation and all(type(each) is layer for each in model.model.layers)
    has_window = getattr(model.config, "sliding_window", None) is not None
    return has_known_parts and not has_window and rotates_by.rope_type in FIXED_ROTATIONS


def _require_same(expected: list[Tensor], found: list[Tensor], roundings: float) -> None:
    if not all(_are_same(one, other, roundings) for one, other in zip(expected, found, strict=True)):
        raise ValueError("its results would be others")


def _are_same(one: Tensor, other: Tensor, roundings: float) -> bool:
    if one.is_cuda and one.dtype == torch.float32:
        roundings = max(roundings, IN_ANOTHER_ORDER)
    most = roundings * torch.finfo(one.dtype).eps * one.abs().max()
    return bool((one - other).abs().max() <= most)


@torch.inference_mode()
def _reference_logits(compute: ForwardPass, model: Any) -> Iterator[Tensor]:
    """Logits for two rows of a few columns, one of them padded, and for the step that follows."""
    weights = model.get_input_embeddings().weight
    ids = torch.arange(8, device=weights.device).reshape(2, 4) % weights.shape[0]
    mask = torch.tensor([[1, 1, 1, 1, 1], [0, 1, 1, 1, 1]], dtype=torch.bool, device=weights.device)
    positions = mask.cumsum(-1).sub_(1).clamp_(min=0)
    cache = BatchCache(2, count_layers(model))
    yield compute([Part(ids, positions[:, :4], mask[:, :4], cache)])
    yield compute([Part(ids[:, :1], positions[:, 4:], mask, cache)])
