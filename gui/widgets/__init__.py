"""Controls of the window's own look, each usable in any panel.

Invariant: imports only `look`.
"""
