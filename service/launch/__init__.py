"""From `python -m service` to a service that answers, and to its end: supervisor, driver, checks, reaper.

Everything that concerns Ray itself stands in `ray_serve`; the driver imports it stage by stage.

Invariant: nothing here imports torch, and what starts a process also ends it.
"""
