"""`batch`: a file of inputs through one engine (`local_run`), or through the engines of a Ray cluster (`cluster_run`).

Invariant: outcomes are written in the order of the input, and a bad line before the results that follow it.
"""
