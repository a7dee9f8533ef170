"""The view Compare: what is measured, shown, applied and saved.

Invariant: measuring happens in a child process; this room only asks for it and shows the result.
"""
