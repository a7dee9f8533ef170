"""The plots, drawn from curves that `series` computes.

Invariant: a plot is given its data; it fetches nothing and computes no figure.
"""
