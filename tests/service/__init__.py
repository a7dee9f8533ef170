"""Tests with real services. They wait for events."""

HANG_S = 240.0
"""What takes longer hangs, also on a slow and busy machine whose first start fetches and converts the model."""
