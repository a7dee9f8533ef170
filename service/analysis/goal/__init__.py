"""From what must hold to settings: a search of all of them by simulation, and a controller that keeps them held.

A setting *holds* objectives where in nine of ten simulated runs at least their share of the requests meets them, and
where its queue does not grow without bound.

Invariant: the same observation and goal give the same answer; there is no clock and no chance but that of given seeds.
"""
