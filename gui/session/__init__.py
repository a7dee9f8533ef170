"""One service and the load on it: life cycle, progress of a start, HTTP clients, child processes.

Invariant: imports no widget.
"""
