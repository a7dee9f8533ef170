"""Forming batches: the queue, its rules, Ray's own early formation behind the same interface, a router's view of them.

Settings are checked in `messages`; batches run in `replica` and `engine`.

Invariant: `queue` and `rules` need only the standard library, so that they can be lifted out.
"""
