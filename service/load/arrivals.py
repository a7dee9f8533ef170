"""Arrivals that do not wait for answers: when each is due, in seconds of the load's own time, with no clock.

Traces of arrivals are read from JSON Lines, an arrival a line:

    {"offset_s": 0.25, "prompt": "Once upon a time", "max_tokens": 24}
    {"offset_s": 0.75, "prompt_words": 120, "max_tokens": 64}

`offset_s` counts from the start of the load. A line without a prompt takes one of the load's, cut or continued to
`prompt_words` where it has them; one without `max_tokens` asks for as many as the load says. The traces of Mooncake
(https://github.com/kvcache-ai/Mooncake: `timestamp` in ms, `input_length`, `output_length`) are read as they are.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import msgspec

from service.messages.load import (
    Burst,
    ConstantRate,
    Count,
    GammaArrivals,
    OnOff,
    Pattern,
    Poisson,
    Ramp,
    RunLoad,
    Steps,
    Trace,
)
from service.messages.text import UserError

MOST_TRACE_BYTES: Final = 64 * 1024**2


class OnOffRate:
    """A rate for a while, then none for a while, and so on."""

    def __init__(self, rate_per_s: float, on_s: float, off_s: float) -> None:
        self._rate_per_s = rate_per_s
        self._on_s = on_s
        self._period_s = on_s + off_s

    def expected(self, until_s: float) -> float:
        periods, into_s = divmod(until_s, self._period_s)
        return (periods * self._on_s + min(into_s, self._on_s)) * self._rate_per_s

    def when(self, count: float) -> float:
        periods, into_s = divmod(count / self._rate_per_s, self._on_s)
        return periods * self._period_s + into_s


class RampRate:
    """From one rate evenly to another, which then stays."""

    def __init__(self, rate_per_s: float, rate_to_per_s: float, over_s: float) -> None:
        self._from = rate_per_s
        self._to = rate_to_per_s
        self._over_s = over_s
        self._slope = (rate_to_per_s - rate_per_s) / over_s
        self._on_the_way = (rate_per_s + rate_to_per_s) / 2 * over_s

    def expected(self, until_s: float) -> float:
        if until_s >= self._over_s:
            return self._on_the_way + (until_s - self._over_s) * self._to
        return self._from * until_s + self._slope * until_s**2 / 2

    def when(self, count: float) -> float:
        if count >= self._on_the_way:
            return self._over_s + (count - self._on_the_way) / self._to
        # The root of from·t + slope·t²/2 = count that stays exact as the slope goes to 0.
        return 2 * count / (self._from + math.sqrt(self._from**2 + 2 * self._slope * count))


class StepRate:
    """One rate after the other, each for as long; the last stays, so that a single rate is steady."""

    def __init__(self, rates_per_s: tuple[float, ...], step_s: float = 1.0) -> None:
        self._rates = rates_per_s
        self._step_s = step_s
        self._before = [0.0]  # expected when each step begins
        for rate in rates_per_s[:-1]:
            self._before.append(self._before[-1] + rate * step_s)

    def expected(self, until_s: float) -> float:
        step = min(int(until_s // self._step_s), len(self._rates) - 1)
        return self._before[step] + (until_s - step * self._step_s) * self._rates[step]

    def when(self, count: float) -> float:
        step = bisect_right(self._before, count) - 1
        return step * self._step_s + (count - self._before[step]) / self._rates[step]


Rate: TypeAlias = OnOffRate | RampRate | StepRate
"""`expected` says how many arrive on average from the start until then; `when` is its inverse."""


def rate_of(pattern: Pattern) -> Rate:
    """The rate that a pattern declares; raises `TypeError` for one that has none."""
    match pattern:
        case ConstantRate(rate_per_s=rate) | Poisson(rate_per_s=rate) | GammaArrivals(rate_per_s=rate):
            return StepRate((rate,))
        case OnOff(rate_per_s=rate, on_s=on_s, off_s=off_s):
            return OnOffRate(rate, on_s, off_s)
        case Ramp(rate_per_s=rate, rate_to_per_s=rate_to, over_s=over_s):
            return RampRate(rate, rate_to, over_s)
        case Steps(rates_per_s=rates, step_s=step_s):
            return StepRate(rates, step_s)
    raise TypeError(f"{type(pattern).__name__} has no rate")


class RatedArrivals:
    """Intervals drawn for a rate of one, run through at the rate in force (time rescaling).

    The n-th arrival is due when the rate, summed up over time, has come to the n-th sum of the intervals. So the same
    seed gives the same sequence at every rate, and a change of rate rescales what is left of the interval that is
    running: arrivals neither pause nor bunch up while a slider is dragged.
    """

    def __init__(self, pattern: Pattern, seed: int) -> None:
        self._pattern = pattern
        self._rate = rate_of(pattern)
        self._random = random.Random(f"arrivals-{seed}")
        self._due_s = 0.0
        self.advance()

    @property
    def due_s(self) -> float:
        return self._due_s

    def advance(self) -> None:
        self._due_s = self._rate.when(self._rate.expected(self._due_s) + self._interval())

    def retune(self, pattern: Pattern, at_s: float) -> bool:
        if type(pattern) is not type(self._pattern):
            return False
        left = self._rate.expected(self._due_s) - self._rate.expected(at_s)
        self._pattern, self._rate = pattern, rate_of(pattern)
        if self._due_s > at_s:
            self._due_s = self._rate.when(self._rate.expected(at_s) + left)
        return True

    def _interval(self) -> float:
        """For a rate of one: always the same, gamma distributed, or exponential as those of a Poisson process.

        The shape is what vLLM's `bench serve` calls burstiness (`get_request` in vllm/benchmarks/serve.py draws
        ``gamma(shape=burstiness, scale=1 / (rate * burstiness))``); the coefficient of variation is 1/√shape.
        """
        match self._pattern:
            case ConstantRate():
                return 1.0
            case GammaArrivals(shape=shape):
                return self._random.gammavariate(shape, 1 / shape)
        return self._random.expovariate(1.0)


class BurstArrivals:
    """All at once, then nothing; another burst while one goes out adds to it."""

    def __init__(self, count: int) -> None:
        self._left = count

    @property
    def due_s(self) -> float | None:
        return 0.0 if self._left else None

    def advance(self) -> None:
        self._left -= 1

    def retune(self, pattern: Pattern, at_s: float) -> bool:
        if not isinstance(pattern, Burst):
            return False
        self._left += pattern.count
        return True


class ReplayArrivals:
    """The offsets of a trace, times its scale; another scale holds from the moment it is chosen."""

    def __init__(self, trace: Trace, offsets_s: Sequence[float]) -> None:
        self._trace = trace
        self._offsets_s = offsets_s
        self._next = 0
        self._due_s = offsets_s[0] * trace.time_scale

    @property
    def due_s(self) -> float | None:
        return self._due_s if self._next < len(self._offsets_s) else None

    def advance(self) -> None:
        self._next += 1
        if self._next < len(self._offsets_s):
            gap_s = self._offsets_s[self._next] - self._offsets_s[self._next - 1]
            self._due_s += gap_s * self._trace.time_scale

    def retune(self, pattern: Pattern, at_s: float) -> bool:
        if not isinstance(pattern, Trace) or pattern.path != self._trace.path:
            return False
        if self._due_s > at_s:
            self._due_s = at_s + (self._due_s - at_s) * pattern.time_scale / self._trace.time_scale
        self._trace = pattern
        return True


class TraceError(UserError, ValueError):
    """A trace cannot be replayed; the text is a sentence that says why."""


class TraceEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An arrival of a trace; what is ``None`` is up to the load."""

    offset_s: float
    prompt: str | None = None
    prompt_words: int | None = None
    max_tokens: int | None = None


_Words: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]  # as the longest contexts of models


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    offset_s: float | None = None
    prompt: str | None = None
    prompt_words: _Words | None = None
    max_tokens: Count | None = None
    timestamp: float | None = None
    input_length: _Words | None = None
    output_length: Count | None = None

    def entry(self) -> TraceEntry:
        offset_s = self.offset_s
        if offset_s is None and self.timestamp is not None:
            offset_s = self.timestamp / 1e3
        if offset_s is None:
            raise ValueError("it has neither `offset_s` (in seconds) nor `timestamp` (in milliseconds)")
        if offset_s < 0:
            raise ValueError("its time is before the start")
        return TraceEntry(
            offset_s=offset_s,
            prompt=self.prompt,
            prompt_words=self.prompt_words or self.input_length,
            max_tokens=self.max_tokens or self.output_length,
        )


_decode = msgspec.json.Decoder(_Line).decode


def read_trace(path: str) -> tuple[TraceEntry, ...]:
    """The arrivals in the file, in their order; raises `TraceError`, which names the line that is wrong."""
    entries = tuple(_entries(_content(path), Path(path).name))
    if not entries:
        raise TraceError(f"The trace {path} holds no arrival.")
    return entries


def _content(path: str) -> bytes:
    file = Path(path)
    if file.exists() and not file.is_file():
        raise TraceError(f"The trace {path} is not a file.")
    try:
        with file.open("rb") as opened:
            content = opened.read(MOST_TRACE_BYTES + 1)
    except (OSError, ValueError) as e:
        reason = e.strerror if isinstance(e, OSError) and e.strerror else str(e)
        raise TraceError(f"The trace {path} cannot be read: {reason}.") from e
    if len(content) > MOST_TRACE_BYTES:
        raise TraceError(f"The trace {path} is larger than {MOST_TRACE_BYTES // 1024**2} MiB.")
    return content


def _entries(content: bytes, name: str) -> Iterator[TraceEntry]:
    latest_s = 0.0
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            entry = _decode(line).entry()
        except (ValueError, RecursionError) as e:  # msgspec's errors are of these
            raise TraceError(f"Line {number} of {name} is not an arrival: {e}.") from e
        if entry.offset_s < latest_s:
            raise TraceError(f"Line {number} of {name} is before the line above it: sort the trace by time.")
        latest_s = entry.offset_s
        yield entry


OpenArrivals: TypeAlias = RatedArrivals | BurstArrivals | ReplayArrivals
"""What decides when the next request of an open loop is due.

`due_s` counts from the start of the load, ``None`` when there are no more arrivals; `advance` goes on to the next one.
`retune` goes on as another pattern from a time on, and is false if that takes other arrivals.
"""


def arrivals_of(load: RunLoad, trace: Sequence[TraceEntry]) -> OpenArrivals:
    """The arrivals that the pattern of an open loop declares; those of a `Trace` pattern are the entries of `trace`."""
    match load.pattern:
        case Burst(count=count):
            return BurstArrivals(count)
        case Trace() as pattern:
            return ReplayArrivals(pattern, [entry.offset_s for entry in trace])
        case pattern:
            return RatedArrivals(pattern, load.seed)
