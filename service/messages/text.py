"""Times as users read them, and numbers as they write them."""

from __future__ import annotations

import math


def spelled_time(seconds: float) -> str:
    """
    >>> spelled_time(9.6), spelled_time(61.0), spelled_time(3725.0)
    ('10 s', '1 min 1 s', '1 h 2 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def spelled_ms(milliseconds: float) -> str:
    """
    >>> spelled_ms(3.2), spelled_ms(0.4), spelled_ms(1530)
    ('3 ms', '0.4 ms', '1.5 s')
    """
    if milliseconds >= 1000:
        return f"{milliseconds / 1000:.1f} s"
    return f"{milliseconds:.0f} ms" if milliseconds >= 1 else f"{milliseconds:.1f} ms"


def parse_number(text: str) -> float:
    """The finite number that `text` spells in plain ASCII ("0.05", "1e-3"); raises `ValueError` for anything else."""
    if not text.isascii() or "_" in text:
        raise ValueError("not a number")
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("not a finite number")
    return value
