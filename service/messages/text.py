"""The one place that turns numbers into words for users, users' words into numbers, and text into what can be sent."""

from __future__ import annotations

import math
import re
import time
from typing import Final

UNKNOWN: Final = "–"
"""Stands for a number that is not known."""

LEAST_PERCENT: Final = 0.1  # that is shown as a number


class UserError(Exception):
    """A mistake or a state that the user can mend; its text is a sentence that says what to do."""


def format_time(seconds: float) -> str:
    """
    >>> format_time(9.6), format_time(61.0), format_time(3725.0)
    ('10 s', '1 min 1 s', '1 h 2 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def about_time(seconds: float) -> str:
    """Of an estimate, which knows no seconds once there are minutes, and is never of no time.

    >>> about_time(0.0), about_time(9.6), about_time(99.0), about_time(236.0), about_time(3725.0)
    ('0.1 s', '10 s', '99 s', '4 min', '1 h 2 min')
    """
    if seconds < 0.95:
        return f"{max(seconds, 0.1):.1f} s"
    if seconds < 120:
        return f"{round(seconds)} s"
    return f"{round(seconds / 60)} min" if seconds < 3570 else format_time(60 * round(seconds / 60))


def format_ms(milliseconds: float) -> str:
    """
    >>> format_ms(3.2), format_ms(0.4), format_ms(1530)
    ('3 ms', '0.4 ms', '1.5 s')
    """
    if milliseconds >= 1000:
        return f"{milliseconds / 1000:.1f} s"
    return f"{milliseconds:.0f} ms" if milliseconds >= 1 else f"{milliseconds:.1f} ms"


def seconds(duration_s: float) -> str:
    """As many digits as mean something.

    >>> seconds(0.0512), seconds(1.234), seconds(81.6)
    ('0.051 s', '1.2 s', '82 s')
    """
    if duration_s >= 10:
        return f"{duration_s:.0f} s"
    return f"{duration_s:.1f} s" if duration_s >= 1 else f"{duration_s:.3f} s".replace("0.000 s", "0 s")


def format_duration(seconds: float) -> str:
    """As on a clock.

    >>> format_duration(42.4), format_duration(605), format_duration(3661)
    ('0:42', '10:05', '1:01:01')
    """
    hours, rest = divmod(int(seconds), 3600)
    minutes = f"{rest // 60:02}" if hours else f"{rest // 60}"
    return f"{hours}:{minutes}:{rest % 60:02}" if hours else f"{minutes}:{rest % 60:02}"


def clock_text(wall_s: float, decimals: int = 0) -> str:
    """The local time of day at `wall_s`, in seconds since 1970, rounded down."""
    scaled = math.floor(wall_s * 10**decimals + 1e-6)
    whole, fraction = divmod(scaled, 10**decimals)
    text = time.strftime("%H:%M:%S", time.localtime(whole))
    return f"{text}.{fraction:0{decimals}d}" if decimals else text


def format_number(value: float | None, decimals: int, unit: str = "") -> str:
    """A fixed number of decimals, and the unit.

    >>> format_number(9.46, 1), format_number(None, 1), format_number(float("nan"), 0), format_number(2, 2, "s")
    ('9.5', '–', '–', '2.00 s')
    """
    return UNKNOWN if value is None or math.isnan(value) else f"{value:.{decimals}f} {unit}".rstrip()


def format_figure(value: float | None, unit: str = "") -> str:
    """Three digits that count, and the unit.

    >>> format_figure(0.41239, "s"), format_figure(12.345, "req/s"), format_figure(312.4), format_figure(None, "s")
    ('0.412 s', '12.3 req/s', '312', '–')
    """
    if value is None:
        return UNKNOWN
    decimals = 3 if abs(value) < 1 else 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:.{decimals}f} {unit}".rstrip()


def per_second(rate: float) -> str:
    """
    >>> per_second(4.04), per_second(123.4)
    ('4.0 requests/s', '123 requests/s')
    """
    return f"{rate:.1f} requests/s" if rate < 100 else f"{rate:.0f} requests/s"


def significant(number: float, digits: int = 2) -> float:
    """The number to that many significant digits.

    >>> significant(4.5678), significant(123.4), significant(0.0), significant(123.4, 3)
    (4.6, 120.0, 0.0, 123.0)
    """
    return float(f"{number:.{digits}g}")


def percent(share: float) -> str:
    """
    >>> percent(0.014), percent(0.462)
    ('1.4 %', '46 %')
    """
    return f"{percent_number(share)} %"


def percent_number(share: float) -> str:
    """The share in percent, without the sign. What is more than nothing is not said to be 0, nor what lacks some 100.

    >>> [percent_number(share) for share in (0.0, 0.0004, 0.004, 0.462, 0.9962, 0.9999, 1.0)]
    ['0', '<0.1', '0.4', '46', '99.6', '99.9', '100']
    """
    value = 100 * share
    if 0 < value < LEAST_PERCENT:
        return f"<{LEAST_PERCENT}"
    if 99.5 <= value < 100:
        return f"{min(value, 100 - LEAST_PERCENT):.1f}"
    return f"{value:.{1 if 0 < value < 2 else 0}f}"


def counted(count: int, noun: str) -> str:
    """
    >>> counted(1, "request"), counted(3, "batch"), counted(2, "process")
    ('1 request', '3 batches', '2 processes')
    """
    plural = f"{noun}es" if noun.endswith(("ch", "ss")) else f"{noun}s"
    return f"{count} {noun if count == 1 else plural}"


def encodable(text: str) -> str:
    r"""The text with "?" for each lone surrogate, which is no character and cannot be sent.

    >>> encodable("a\ud800b")
    'a?b'
    """
    return text.encode("utf-8", "replace").decode()


def may_have_decimal_comma(text: str) -> bool:
    """Whether a part of a list of numbers may be meant as one number: "2,5" is 2.5 to many.

    >>> [may_have_decimal_comma(text) for text in ("2,5", "1 0,05", "2, 5", "2,4,8", "2.5,16")]
    [True, True, False, False, False]
    """
    return any(re.fullmatch(r"\d+,\d+", part) for part in re.split(r",?\s+", text.strip()))


def parse_number(text: str) -> float:
    """The finite number that `text` spells in plain ASCII ("0.05", "1e-3"); raises `ValueError` for anything else."""
    if not text.isascii() or "_" in text:
        raise ValueError("not a number")
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("not a finite number")
    return value
