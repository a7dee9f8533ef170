"""Recording what the window hears, and showing a recording in the place of a service.

Invariant: while a recording is shown, no request is sent.
"""
