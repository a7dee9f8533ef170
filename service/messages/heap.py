"""The heap of a process, once its start is over."""

from __future__ import annotations

import gc


def set_heap_aside() -> None:
    """Exclude all present objects from garbage collection, since those of a start stay.

    A full collection visits every object and holds all else up: for 0.3 s where torch and transformers are imported.
    vLLM does the same (`freeze_gc_heap` in vllm/utils/gc_utils.py).
    """
    gc.collect()
    gc.freeze()
