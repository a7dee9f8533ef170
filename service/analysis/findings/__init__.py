"""Findings: sentences with evidence and advice on a moment of a history, found by `rules`.

Invariant: a rule reads `Facts` alone, and returns a `Finding` or ``None``; `ranking` decides which are shown.
"""
