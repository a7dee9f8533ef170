"""GGUF file → folder of bf16 safetensors and tokenizer, once, in a child process with limits.

The GGUF reader can be made to loop and to allocate without end, so it runs apart:
`python -m service.engine.model.convert SOURCE DESTINATION`. The parent checks, describes and publishes what the child
wrote.
"""

from __future__ import annotations

import re
import shutil
import sys
import traceback
from pathlib import Path
from typing import Final

from service.engine.model.cache import Source, part_of, publish_folder, remove
from service.engine.model.child import Outcome, run_module
from service.engine.model.report import ModelError, Report

MIB: Final = 1 << 20
MEMORY_BYTES: Final = 3 * 1024 * MIB  # Python with torch, and the reader's own objects
MEMORY_PER_BYTE: Final = 16  # of the file: unpacked weights, twice
CPU_S: Final = 30.0
CPU_S_PER_MIB: Final = 3.0
WALL_PER_CPU: Final = 2.0  # other work wants the processor too

_PROGRESS = re.compile(r"progress (\d\.\d+)$")


def convert(source: Path, origin: Source, target: Path, report: Report) -> None:
    """Turn the GGUF file `source` into the folder `target`; the caller holds the lock of the model."""
    part = part_of(target)
    try:
        part.mkdir()
        outcome = _run(source, part, report)
        if not outcome.is_success:
            raise ModelError(_failure(source, outcome))
        if not origin.is_still(source):
            raise ModelError(f"The GGUF file {source} was changed while it was read; start again.")
        publish_folder(part, target, origin)
    finally:
        remove(part)


def cpu_limit_s(size: int) -> float:
    return CPU_S + CPU_S_PER_MIB * size / MIB


def _run(source: Path, part: Path, report: Report) -> Outcome:
    done = 0.0

    def on_line(line: str) -> None:
        nonlocal done
        if match := _PROGRESS.match(line):
            done = float(match[1])

    return run_module(
        "service.engine.model.convert",
        source,
        part,
        on_line=on_line,
        on_tick=lambda: report("convert", done, 1.0),
        limit_s=WALL_PER_CPU * cpu_limit_s(source.stat().st_size),
    )


def _failure(source: Path, outcome: Outcome) -> str:
    if outcome.timed_out or outcome.code < 0 or "MemoryError" in outcome.last_line:
        reason = "reading it took more time or memory than its size allows"
    else:
        reason = outcome.last_line.rstrip(".") or f"exit code {outcome.code}"
    return f"The GGUF file {source} could not be converted ({reason}); check that it is a whole text-generation model."


# ---------------------------------------------------------------------------------------------------------------------
# In the child
# ---------------------------------------------------------------------------------------------------------------------


def main(source: Path, destination: Path) -> int:
    limit_resources(source.stat().st_size)
    try:
        _save(source, destination)
    except Exception as error:
        traceback.print_exc()
        print(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}", flush=True)
        return 1
    return 0


def limit_resources(size: int) -> None:
    """Bound this process by what a file of `size` bytes can need; systems without such limits have the wall time."""
    try:
        import resource
    except ImportError:
        return
    cpu_s = int(cpu_limit_s(size))
    for limit, value in (
        # Private memory, not address space: libraries and the mapped file are not what a crafted file inflates.
        (resource.RLIMIT_DATA, MEMORY_BYTES + MEMORY_PER_BYTE * size),
        (resource.RLIMIT_CPU, cpu_s),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(limit)
        allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
        try:
            resource.setrlimit(limit, (allowed, hard))
        except (OSError, ValueError):
            continue


def _save(source: Path, destination: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    alone = destination / "alone"  # in a folder of its own: what lies beside the file is not part of the model
    alone.mkdir()
    (alone / "model.gguf").symlink_to(source.resolve())
    where = {"gguf_file": "model.gguf", "local_files_only": True, "trust_remote_code": False}
    _tell(0.1)
    model = AutoModelForCausalLM.from_pretrained(
        alone, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True), **where
    )
    _tell(0.7)
    # WORKAROUND transformers 5.23: it calls a model read from GGUF quantised, and refuses to save it, even unpacked.
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(destination)
    _tell(0.75)
    AutoTokenizer.from_pretrained(alone, **where).save_pretrained(destination)
    shutil.rmtree(alone)
    _tell(1.0)


def _tell(done: float) -> None:
    print(f"progress {done:.2f}", flush=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
