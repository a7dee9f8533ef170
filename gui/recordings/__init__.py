"""Records the events of the history, and shows a recording in the place of a service.

Invariant: while a recording is shown, no request is sent.
"""
