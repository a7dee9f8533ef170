"""Memory does not hold the rows of a batch all at once."""

from __future__ import annotations

import numpy as np

from service.analysis.findings.facts import Facts, Finding
from service.messages.text import counted


def find(facts: Facts) -> Finding | None:
    batches = facts.earlier_batches
    split = batches.splits > 0
    if not split.any():
        return None
    # A request that waits in `continuous` does so beside all rows that memory holds; elsewhere parts are about equal.
    parts = 1 if batches.is_open else batches.splits[split] + 1
    held = int(np.min(np.ceil(batches.size[split] / parts)))
    count = int(np.count_nonzero(split))
    return Finding(
        "memory_full",
        "warning",
        "Batches do not fit into memory",
        evidence=f"Memory did not hold all rows of {count} of the last {counted(len(batches), 'batch')}, but {held}: "
        "the others had to wait until these were done.",
        data={"split": count, "batches": len(batches), "rows": held},
        advice=f"Set max_batch_size to {held}: then nothing is tried in vain. Shorter texts need less memory.",
        control="max_batch_size",
    )
