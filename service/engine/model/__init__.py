"""Models: fetching, converting, checking, loading, optimizing and running them.

Invariant: no code that a model brings along is ever run.
"""
