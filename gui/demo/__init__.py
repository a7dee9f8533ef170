"""A demo: a scripted run of the window, and the report of its measurements.

Invariant: it acts only through what a user can reach.
"""
