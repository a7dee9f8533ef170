"""Everything that is computed from telemetry, for the window and the commands alike.

`observed` keeps the history, `predict` simulates other settings, `goal` finds and keeps those that hold an objective,
`findings` says what to change, `compare` holds the results of A/B comparisons and sweeps, `recording` writes and reads
histories. Measuring and drawing stand elsewhere.

Invariant: pure. It imports no Ray, no torch and no network, and its only clock is the one that a `History` is given.
"""
