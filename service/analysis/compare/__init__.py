"""Results of A/B comparisons and sweeps: plans, statistics, verdicts, messages, and the report as a page.

The runs themselves are made in `commands`.

Invariant: a result is a document that holds its plan and every run, so its verdict can be computed again.
"""
