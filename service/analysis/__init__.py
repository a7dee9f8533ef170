"""What is computed from telemetry: history and figures, recordings, findings, predictions, comparisons.

Measuring stands in `commands` and `load`; drawing stands in the window, which uses this room as the commands do.

Invariant: pure. No Ray, no torch, no network, and no clock of its own.
"""
