"""The prediction of figures under other settings: a cost model fitted to batches, and a simulation of the rules.

`observation` is all that it rests on, and can travel to the process of `control`.

Invariant: the same observation and settings give the same prediction; chance is drawn from given seeds.
"""
