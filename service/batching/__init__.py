"""Forming batches: the queue, its rules, and Ray's own early formation behind the same interface.

Settings are checked in `messages`; batches run in `replica` and `engine`.

Invariant: `queue` and `rules` need only the standard library and `messages.settings`, so that they can be lifted out.
"""
