"""What crosses a process, frozen and typed, and what every room needs: clock, files, event stream, options, text.

Invariant: imports nothing of ours.
"""
