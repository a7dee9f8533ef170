"""Findings: sentences with evidence and advice on a moment of a history, a rule each in `rules`.

Invariant: a rule reads `Facts` alone, and returns a `Finding` or ``None``; `ranking` decides which are shown.
"""
