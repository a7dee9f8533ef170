"""The view Compare: setups, measurements, results, and files saved from them.

Invariant: measuring happens in a child process; this room only asks for it and shows the result.
"""
