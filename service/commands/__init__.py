"""Each word of `python -m service …` in a file, the engine's bench, and batches of whole files.

What the commands measure is computed in `analysis`, `engine` and `load`.

Invariant: a command parses, calls and prints; it computes nothing.
"""
