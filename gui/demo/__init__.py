"""A run without hands, and the report of what it measured.

Invariant: it acts only through what a user can reach.
"""
