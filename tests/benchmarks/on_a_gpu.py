"""What only a real GPU can show: the same texts, the steps it takes, and that its failures harm nobody else.

python -m tests.benchmarks.on_a_gpu [--only texts steps joins architectures failures]

`texts`: in float32, the answers to 32 prompts by transformers' own `generate` beside ours, alone, in one batch, and
joining an open one, with graphs and without. In the default dtype, how many answers depend on their batch.
`steps`: what a step takes, replayed and launched, and how much of it is Python's own time; what it launches and waits
for, as CUDA's profiler counts it, beside `gpu_launches`, which counts without a GPU.
`joins`: tokens/s of 32 users whose answers differ in length, in batches that are formed late and in an open one.
`architectures`: random models of other architectures: the same texts as by `generate`, and steps replayed and launched;
one of which no graph can be made, and what is said of it.
`failures`: values that are no numbers, memory that lacks for weights, graphs and rows, and a device that is lost. Each
is measured in a process of its own.

Exit code 1 if one of them is not as promised.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import torch
from torch import nn

from service.engine.engine import TextEngine
from service.engine.job import DeviceLostError, Progress, SamplingParams, Sequence
from service.engine.model import optimize
from service.engine.model.folder import ModelFolder
from service.engine.model.load import LoadedModel, load
from service.engine.model.report import ModelError
from service.engine.model.resolve import DEFAULT_MODEL, resolve
from tests.benchmarks.invariance import WAYS, count_differing, in_batches_of, prompts

DEVICE: Final = "cuda"
ROWS: Final = 32
FEW: Final = 8  # answers of each other architecture
TOKENS: Final = 48
STEP_ROWS: Final = (1, 8, 32, 128)
MARK: Final = " Zanzibar"  # in the prompt that is to fail
MOST_LAUNCHES: Final = 16  # of a steady step beside its graph
WAITS: Final = ("cudaStreamSynchronize", "cudaEventSynchronize", "cudaDeviceSynchronize", "cudaMemcpy")
LAUNCHES: Final = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx")
REPLAY: Final = "cudaGraphLaunch"
USERS: Final = 32
ANSWERS: Final = 384


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=CHECKS, default=list(CHECKS))
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("This machine has no CUDA GPU that torch can use.")
        return 2
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {DEFAULT_MODEL}")
    failed = 0
    for name in options.only:
        for check in CHECKS[name]:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
                try:
                    lines, holds = process.submit(check).result()
                except Exception as error:
                    lines, holds = [f"{type(error).__name__}: {error}"], False
            failed += not holds
            print(f"{'as promised' if holds else 'NOT AS PROMISED'}: {check.__name__.strip('_').replace('_', ' ')}")
            for line in lines:
                print(f"    {line}", flush=True)
    return int(failed > 0)


Seen = tuple[list[str], bool]
"""Lines for the reader, and whether what is promised holds."""


def _texts_in_float32() -> Seen:
    folder, lines, wrong = resolve(DEFAULT_MODEL), list[str](), 0
    expected = _generated(folder.path)
    for name, variant in VARIANTS.items():
        with variant():
            engine = TextEngine(load(folder, DEVICE, "float32"))
        for way, run in WAYS.items():
            differing = count_differing(expected, _answers(engine, run))
            lines.append(f"{name}, {way}: {differing} of {ROWS} answers differ from generate's; {_use(engine)}")
            wrong += differing > 1  # whose two likeliest tokens are as likely
    return lines, wrong == 0


def _texts_in_the_default_dtype() -> Seen:
    engine = TextEngine(load(resolve(DEFAULT_MODEL), DEVICE, "auto"))
    alone = _answers(engine, WAYS["alone"])
    lines = [f"{way}: {count_differing(alone, _answers(engine, run))} of {ROWS} differ" for way, run in WAYS.items()]
    return lines, True


def _steps() -> Seen:
    lines, holds = list[str](), True
    for name, variant in VARIANTS.items():
        begun_s = time.perf_counter()
        with variant():
            engine = TextEngine(load(resolve(DEFAULT_MODEL), DEVICE, "auto"))
        loaded_s, held = time.perf_counter() - begun_s, torch.cuda.memory_reserved() / 1e9
        lines.append(f"{name}: loaded in {loaded_s:.1f} s, {held:.2f} GB")
        for rows in STEP_ROWS:
            steps_s = _steps_s(engine, rows)
            took = f"{1e3 * median(steps_s):.2f} ms, at most {1e3 * max(steps_s):.1f}"
            lines.append(f"  {rows:3} rows: a step takes {took}")
        lines += _asked(counts := _counted(engine))
        if name == OURS:
            launches, waits = sum(counts.calls[each] for each in LAUNCHES), sum(counts.calls[each] for each in WAITS)
            holds = launches <= MOST_LAUNCHES and 0.9 < counts.calls[REPLAY] <= 1 and waits < 2.2
        lines.append(f"  {_use(engine)}")
        del engine
        torch.cuda.empty_cache()
    return lines, holds


def _joins() -> Seen:
    engine = TextEngine(load(resolve(DEFAULT_MODEL), DEVICE, "auto"))
    speeds: dict[str, list[float]] = {"late": [], "continuous": []}
    for _ in range(3):
        for name, way in (("late", in_batches_of(USERS)), ("continuous", _open)):
            sequences = _of_many_lengths(engine)
            begun_s = time.perf_counter()
            way(engine, sequences)
            speeds[name].append(sum(len(each.tokens) for each in sequences) / (time.perf_counter() - begun_s))
    late, continuous = (median(each[1:]) for each in speeds.values())
    speed = f"late {late:,.0f}, continuous {continuous:,.0f} tokens/s"
    return [f"8 to 128 tokens, {USERS} rows: {speed}; {_use(engine)}"], continuous >= late


def _other_architectures() -> Seen:
    seen = [_architecture(kind) for kind in OTHERS]
    return [line for lines, _ in seen for line in lines], all(holds for _, holds in seen)


def _architecture(kind: str) -> Seen:
    lines = list[str]()
    with _random_model(kind, OTHERS[kind]) as folder:
        expected = _generated(folder.path, FEW)
        engine = TextEngine(load(folder, DEVICE, "float32"))
        differing = {name: count_differing(expected, _answers(engine, run, FEW)) for name, run in WAYS.items()}
        use = engine.graphs
        is_replayed = use is not None and use.replayed == use.steps
        lines.append(f"{kind}: of {FEW} answers differ from generate's {differing}; {_use(engine)}")
        for name in (OURS, "no graphs"):
            with VARIANTS[name]():
                engine = TextEngine(load(folder, DEVICE, "auto"))
            took = ", ".join(f"{1e3 * median(_steps_s(engine, rows)):.2f} ms at {rows}" for rows in (1, ROWS))
            lines.append(f"  {name}: a step takes {took} rows; {_use(engine)}")
    return lines, is_replayed and max(differing.values()) <= 1


def _an_architecture_without_graphs() -> Seen:
    """Its rotation looks at how long its longest row is."""
    with _random_model(
        "llama", {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}}
    ) as folder:
        expected = _generated(folder.path, FEW)
        engine = TextEngine(load(folder, DEVICE, "float32"))
        differing = count_differing(expected, _answers(engine, WAYS["alone"], FEW))
    use = engine.graphs
    lines = [f"{differing} of {FEW} answers differ from generate's; {_use(engine)}"]
    return (
        lines,
        differing <= 1 and use is not None and use.replayed == 0 and "No graph could be captured" in use.why_not,
    )


@contextmanager
def _random_model(kind: str, changes: dict[str, Any]) -> Iterator[ModelFolder]:
    """Of 8 layers, with the default model's tokenizer."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **(SHAPE | changes)))
    with TemporaryDirectory() as name:
        model.save_pretrained(name)
        AutoTokenizer.from_pretrained(resolve(DEFAULT_MODEL).path).save_pretrained(name)
        yield ModelFolder(kind, Path(name))


def _values_that_are_no_numbers() -> Seen:
    loaded = load(resolve(DEFAULT_MODEL), DEVICE, "auto")
    engine = TextEngine(loaded)
    before = _answers(engine, in_batches_of(ROWS))
    marked = engine.encode(MARK, 1)[0]

    def spoil(module: object, args: tuple[torch.Tensor], output: torch.Tensor) -> torch.Tensor:
        return output.masked_fill((args[0] == marked)[..., None], float("nan"))

    hook = _embedding(loaded).register_forward_hook(spoil)
    bad = Sequence("bad", engine.encode(f"Here is{MARK}", TOKENS), SamplingParams(max_tokens=TOKENS))
    sequences = [*_sequences(engine), bad]
    ends = _ends(engine, sequences)
    hook.remove()
    beside = count_differing(before, [each.tokens for each in sequences[:-1]])
    after = count_differing(before, _answers(engine, in_batches_of(ROWS)))
    lines = [
        f"its own end: {ends['bad'].error}",
        f"answers of the {ROWS} beside it that differ: {beside}; of the next batch: {after}",
    ]
    failed = [name for name, each in ends.items() if each.error]
    return lines, failed == ["bad"] and after == 0


def _lack_of_memory_for_weights() -> Seen:
    torch.cuda.set_per_process_memory_fraction(0.05e9 / torch.cuda.get_device_properties(0).total_memory)
    try:
        load(resolve(DEFAULT_MODEL), DEVICE, "auto")
    except ModelError as error:
        return [str(error)], "does not fit into the memory" in str(error)
    return ["It was loaded."], False


def _lack_of_memory_for_graphs() -> Seen:
    torch.cuda.set_per_process_memory_fraction(0.6e9 / torch.cuda.get_device_properties(0).total_memory)
    engine = TextEngine(load(resolve(DEFAULT_MODEL), DEVICE, "auto"))
    ends = _ends(engine, _sequences(engine))
    return [f"{_use(engine)}", _summary(ends)], all(each.error is None for each in ends.values())


def _lack_of_memory_for_rows() -> Seen:
    engine = TextEngine(load(resolve(DEFAULT_MODEL), DEVICE, "auto"))
    torch.cuda.empty_cache()
    room = torch.cuda.memory_reserved() + 1.5e9
    torch.cuda.set_per_process_memory_fraction(room / torch.cuda.get_device_properties(0).total_memory)
    sampling = SamplingParams(max_tokens=16, ignore_eos=True)
    drawn = random.Random(4)
    sequences = [Sequence(str(n), [drawn.randrange(100, 40_000) for _ in range(2000)], sampling) for n in range(128)]
    ends = _ends(engine, sequences)
    again = _ends(engine, _sequences(engine))
    lines = ["128 prompts of 2,000 tokens, 1.5 GB left: " + _summary(ends), "then 32 short ones: " + _summary(again)]
    return lines, all(each.error is None for each in (*ends.values(), *again.values()))


def _a_lost_device() -> Seen:
    loaded = load(resolve(DEFAULT_MODEL), DEVICE, "auto")
    engine = TextEngine(loaded)
    table = torch.zeros(8, device=DEVICE)
    _embedding(loaded).register_forward_hook(lambda _, ids, output: output + table[ids[0].flatten()[:1] + 99_999])
    sequences, ends = _sequences(engine), dict[str, Progress]()
    begun_s = time.perf_counter()
    try:
        engine.generate(sequences, lambda progress: ends.update({each.job.id: each for each in progress}))
    except DeviceLostError as error:
        took_s = time.perf_counter() - begun_s
        failed = sum(each.error is not None for each in ends.values())
        return [f"after {took_s:.2f} s: {error}", f"{failed} of {ROWS} got their end"], failed == ROWS
    return [_summary(ends)], False


SHAPE: Final = {
    "vocab_size": 49152,
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "max_position_embeddings": 4096,
    "initializer_range": 0.05,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
}
OTHERS: Final[dict[str, dict[str, Any]]] = {
    "qwen2": {},
    "qwen3": {},
    "mistral": {"sliding_window": 512},
    "gemma2": {"sliding_window": 512},
    "gemma3_text": {"sliding_window": 512},
    "phi3": {"sliding_window": None},
    "gpt2": {"n_embd": 512, "n_layer": 8, "n_head": 8, "n_positions": 1024},
}
OURS: Final = "graphs of our own kernels"
VARIANTS: Final[dict[str, Callable[[], AbstractContextManager[object]]]] = {
    OURS: nullcontext,
    "graphs of torch's operators": lambda: patch(f"{optimize.__name__}.on_a_gpu", lambda: [optimize.AT_A_GPU]),
    "no graphs": lambda: patch(f"{optimize.__name__}.as_cuda_graphs", side_effect=RuntimeError("left out")),
}

CHECKS: Final[dict[str, tuple[Callable[[], Seen], ...]]] = {
    "steps": (_steps,),
    "joins": (_joins,),
    "architectures": (_other_architectures, _an_architecture_without_graphs),
    "texts": (_texts_in_float32, _texts_in_the_default_dtype),
    "failures": (
        _values_that_are_no_numbers,
        _lack_of_memory_for_weights,
        _lack_of_memory_for_graphs,
        _lack_of_memory_for_rows,
        _a_lost_device,
    ),
}


def _generated(folder: Any, count: int = ROWS) -> list[list[int]]:
    """The answers of transformers' own `generate`, one prompt at a time, up to the end of their texts."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, dtype=torch.float32).to(DEVICE).eval()
    answers = []
    for prompt in prompts()[:count]:
        ids = torch.tensor([tokenizer(prompt)["input_ids"]], device=DEVICE)
        written = model.generate(ids, max_new_tokens=TOKENS, do_sample=False)[0, ids.shape[1] :].tolist()
        answers.append(written)
    return answers


def _sequences(engine: TextEngine, count: int = ROWS) -> list[Sequence]:
    sampling = SamplingParams(max_tokens=TOKENS)
    return [Sequence(str(n), engine.encode(each, TOKENS), sampling) for n, each in enumerate(prompts()[:count])]


def _answers(
    engine: TextEngine, run: Callable[[TextEngine, list[Sequence]], None], count: int = ROWS
) -> list[list[int]]:
    sequences = _sequences(engine, count)
    run(engine, sequences)
    return [each.tokens for each in sequences]


def _ends(engine: TextEngine, sequences: list[Sequence]) -> dict[str, Progress]:
    ends = dict[str, Progress]()
    engine.generate(sequences, lambda progress: ends.update({each.job.id: each for each in progress}))
    return ends


def _steps_s(engine: TextEngine, rows: int) -> list[float]:
    drawn, times_s = random.Random(rows), list[float]()
    sampling = SamplingParams(max_tokens=96, ignore_eos=True)
    sequences = [Sequence(str(n), [drawn.randrange(100, 40_000) for _ in range(20)], sampling) for n in range(rows)]
    engine.generate(sequences, lambda progress: times_s.append(time.perf_counter()) if progress else None)
    return [later - earlier for earlier, later in pairwise(times_s[8:])]


class Counts(NamedTuple):
    """What a steady step of `ROWS` rows asks of CUDA's runtime and of the GPU, on average, by name."""

    calls: Counter[str]
    kernels: Counter[str]
    kernels_us: Counter[str]
    waits_us: float  # of the host for the device


def _counted(engine: TextEngine) -> Counts:
    from torch.profiler import DeviceType, ProfilerActivity, profile

    steps = 64
    sampling = SamplingParams(max_tokens=steps + 24, ignore_eos=True)
    sequences = [Sequence(str(n), [1] * 20, sampling) for n in range(ROWS)]
    profiler, seen = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]), 0

    def emit(progress: list[Progress]) -> None:
        nonlocal seen
        seen += bool(progress)
        if seen == 10:
            profiler.start()
        elif seen == 10 + steps:
            profiler.stop()

    engine.generate(sequences, emit)
    counts = Counts(Counter(), Counter(), Counter(), 0.0)
    for event in profiler.key_averages():
        if event.device_type == DeviceType.CUDA:
            counts.kernels[event.key] += event.count / steps
            counts.kernels_us[event.key] += event.self_device_time_total / steps
        elif event.key.startswith("cu"):
            counts.calls[event.key] += event.count / steps
            if event.key in WAITS:
                counts = counts._replace(waits_us=counts.waits_us + event.self_cpu_time_total / steps)
    return counts


def _asked(counts: Counts) -> list[str]:
    kernels, busy_us = counts.kernels.total(), counts.kernels_us.total()
    launches, waits = (sum(counts.calls[each] for each in names) for names in (LAUNCHES, WAITS))
    return [
        f"  {ROWS} rows: {launches:.1f} launches, {counts.calls[REPLAY]:.2f} replays, {waits:.2f} waits, of "
        f"{counts.waits_us:.0f} us together",
        f"  {ROWS} rows: {kernels:.0f} kernels of {busy_us:.0f} us together",
        *(
            f"      {counts.kernels[name]:6.1f} of {us / counts.kernels[name]:5.1f} us  {name[:90]}"
            for name, us in counts.kernels_us.most_common(14)
        ),
    ]


def _of_many_lengths(engine: TextEngine) -> list[Sequence]:
    drawn, found = random.Random(7), list[Sequence]()
    for number in range(ANSWERS):
        sampling = SamplingParams(max_tokens=drawn.randint(8, 128), ignore_eos=True)
        ids = [drawn.randrange(100, 40_000) for _ in range(drawn.randint(10, 60))]
        found.append(Sequence(str(number), ids, sampling))
    return found


def _open(engine: TextEngine, sequences: list[Sequence]) -> None:
    coming, running = sequences[USERS:], USERS

    def emit(progress: list[Progress]) -> None:
        nonlocal running
        running -= sum(each.finish_reason is not None for each in progress)

    def admit(work: object, can_join: bool) -> list[Sequence]:
        nonlocal running
        joining = [coming.pop(0) for _ in range(min(USERS - running, len(coming)))] if can_join else []
        running += len(joining)
        return joining

    engine.generate(sequences[:USERS], emit, admit)


def _embedding(loaded: LoadedModel) -> nn.Module:
    assert isinstance(loaded.forward, nn.Module)
    return next(each for each in loaded.forward.modules() if isinstance(each, nn.Embedding))


def _use(engine: TextEngine) -> str:
    use = engine.graphs
    return "no graphs" if use is None else f"{use.replayed} of {use.steps} steps replayed. {use.why_not}"


def _summary(ends: dict[str, Progress]) -> str:
    errors = {each.error for each in ends.values() if each.error}
    return f"{sum(each.error is None for each in ends.values())} of {len(ends)} answered {'; '.join(errors)}"


if __name__ == "__main__":
    sys.exit(main())
