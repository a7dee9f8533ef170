"""Bugs that are planted in the product, one at a time, to see that a seed of the simulation or a test finds each."""
