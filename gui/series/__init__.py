"""From history to curves and rows: pure functions.

Invariant: imports no Qt.
"""
