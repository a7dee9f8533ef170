"""The history of a service: requests, batches, statuses and annotations of the last ten minutes, and their figures.

Invariant: the other rooms of `analysis` read it, and it imports none of them. All its times are on the service's clock.
"""
