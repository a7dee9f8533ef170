"""Functions other than text that are served in batches: the contract, those built in, and finding one by name.

Invariant: importing a workload imports nothing that it computes with; `load` and calls do.
"""
