"""Load: patterns of arrivals and lengths, and what the load process reads and writes as JSON lines."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import PurePath
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from service.messages.settings import Bounds
from service.messages.workload import TEXT

LOAD_BOUNDS: Final[Mapping[str, Bounds]] = {
    "count": Bounds(1, 100_000, integral=True),
    "users": Bounds(1, 4096, integral=True),
    "think_s": Bounds(0, 3600, integral=False),
    "rate_per_s": Bounds(0.001, 10_000, integral=False),
    "span_s": Bounds(0.1, 86_400, integral=False),
    "shape": Bounds(0.01, 1000, integral=False),
    "time_scale": Bounds(0.001, 1000, integral=False),
    "tokens": Bounds(1, 100_000, integral=True),
    "temperature": Bounds(0, 10, integral=False),
}


def _within(name: str) -> msgspec.Meta:
    """What msgspec is to hold a number to."""
    bounds = LOAD_BOUNDS[name]
    return msgspec.Meta(ge=bounds.low, le=bounds.high)


Count: TypeAlias = Annotated[int, _within("count")]
Rate: TypeAlias = Annotated[float, _within("rate_per_s")]
Span: TypeAlias = Annotated[float, _within("span_s")]


class Burst(msgspec.Struct, frozen=True, kw_only=True, tag_field="pattern", tag="burst"):
    """`count` requests at once, then nothing."""

    count: Count


class ClosedLoop(msgspec.Struct, frozen=True, kw_only=True, tag_field="pattern", tag="closed"):
    """`users` users, each of which sends its next request after the last answer and a think time.

    Attributes:
        think_s: from an answer to the user's next request; where it is `exponential`, on average.
    """

    users: Annotated[int, _within("users")]
    think_s: Annotated[float, _within("think_s")] = 0.0
    think: Literal["fixed", "exponential"] = "fixed"


class ConstantRate(msgspec.Struct, frozen=True, kw_only=True, tag_field="pattern", tag="constant"):
    """Open loop: arrivals that do not wait for answers, as regular as a clock's ticks."""

    rate_per_s: Rate


class Poisson(msgspec.Struct, frozen=True, kw_only=True, tag_field="pattern", tag="poisson"):
    """Open loop: arrivals that do not wait for answers nor for each other, on average `rate_per_s` a second."""

    rate_per_s: Rate


class GammaArrivals(msgspec.Struct, frozen=True, kw_only=True, tag_field="pattern", tag="gamma"):
    """Open loop whose intervals are gamma distributed.

    Attributes:
        shape: 1 is Poisson, less comes in clusters, more is more regular. The coefficient of variation of the
            intervals is 1/√shape; it is what vLLM's `bench serve` calls `--burstiness`.
    """

    rate_per_s: Rate
    shape: Annotated[float, _within("shape")]


class OnOff(msgspec.Struct, frozen=True, kw_only=True, tag_field="pattern", tag="on-off"):
    """Open loop: Poisson arrivals for `on_s`, none for `off_s`, and so on."""

    rate_per_s: Rate
    on_s: Span
    off_s: Span


class Ramp(msgspec.Struct, frozen=True, kw_only=True, tag_field="pattern", tag="ramp"):
    """Open loop: Poisson arrivals whose rate goes evenly from one to another within `over_s`, and stays there."""

    rate_per_s: Rate
    rate_to_per_s: Rate
    over_s: Span


class Steps(msgspec.Struct, frozen=True, kw_only=True, tag_field="pattern", tag="steps"):
    """Open loop: Poisson arrivals at one rate after the other, each for `step_s`; the last stays."""

    rates_per_s: Annotated[tuple[Rate, ...], msgspec.Meta(min_length=1, max_length=1000)]
    step_s: Span


class Trace(msgspec.Struct, frozen=True, kw_only=True, tag_field="pattern", tag="trace"):
    """Open loop: the arrivals that a file holds; see `service/load/arrivals.py`.

    Attributes:
        path: of the file, on the machine of the load process.
        time_scale: what the file's times are multiplied by: 0.5 replays it twice as fast.
    """

    path: str
    time_scale: Annotated[float, _within("time_scale")] = 1.0


Pattern: TypeAlias = Burst | ClosedLoop | ConstantRate | Poisson | GammaArrivals | OnOff | Ramp | Steps | Trace


def describe_pattern(pattern: Pattern | None) -> str:
    """The load in a few words.

    >>> describe_pattern(Ramp(rate_per_s=1, rate_to_per_s=8, over_s=60))
    '1.0 to 8.0 req/s within 60 s'
    """
    match pattern:
        case ConstantRate(rate_per_s=rate):
            return f"{format_rate(rate)} req/s, constant"
        case Poisson(rate_per_s=rate):
            return f"{format_rate(rate)} req/s"
        case GammaArrivals(rate_per_s=rate, shape=shape):
            return f"{format_rate(rate)} req/s, shape {shape:g}"
        case OnOff(rate_per_s=rate, on_s=on_s, off_s=off_s):
            return f"{format_rate(rate)} req/s, {on_s:g} s on, {off_s:g} s off"
        case Ramp(rate_per_s=rate, rate_to_per_s=rate_to, over_s=over_s):
            return f"{format_rate(rate)} to {format_rate(rate_to)} req/s within {over_s:g} s"
        case Steps(rates_per_s=rates, step_s=step_s):
            return f"{', '.join(map(format_rate, rates))} req/s, {step_s:g} s each"
        case Trace(path=path):
            return f"trace {PurePath(path).name}"
        case ClosedLoop(users=users, think_s=think_s):
            return f"{users} users" + (f", thinking {think_s:g} s" if think_s else "")
        case Burst(count=count):
            return f"burst of {count}"
    return "none"


def format_rate(rate_per_s: float) -> str:
    """A number of requests a second, with one decimal below 100."""
    return f"{rate_per_s:.1f}" if rate_per_s < 100 else f"{rate_per_s:.0f}"


class UniformLength(msgspec.Struct, frozen=True, kw_only=True, tag_field="drawn", tag="uniform"):
    """Every length from `low` to `high` is as likely as any other."""

    low: Count
    high: Count

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("its low end is above its high end.")


class LognormalLength(msgspec.Struct, frozen=True, kw_only=True, tag_field="drawn", tag="lognormal"):
    """Many short and few long ones, as in real traffic: half of them below `median`, none above `cap`.

    Attributes:
        sigma: standard deviation of the logarithm; about 0.6 is usual.
    """

    median: Count
    sigma: Annotated[float, msgspec.Meta(gt=0, le=5)]
    cap: Count


Length: TypeAlias = Count | UniformLength | LognormalLength


def longest(length: Length) -> int:
    """What no drawn length exceeds."""
    match length:
        case UniformLength(high=high):
            return high
        case LognormalLength(cap=cap):
            return cap
        case _:
            return length


def mean(length: Length) -> float:
    """The mean of the drawn lengths.

    >>> mean(24), mean(UniformLength(low=8, high=128)), round(mean(LognormalLength(median=64, sigma=0.5, cap=512)))
    (24.0, 68.0, 73)
    """
    match length:
        case UniformLength(low=low, high=high):
            return (low + high) / 2
        case LognormalLength(median=median, sigma=sigma, cap=cap):
            return min(median * math.exp(sigma**2 / 2), float(cap))
        case _:
            return float(length)


USUAL_PROMPTS: Final = TEXT.examples


class Fire(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="fire"):
    """Send each prompt `copies` times, now."""

    prompts: tuple[str, ...]
    copies: Count = 1
    max_tokens: Count = 24
    temperature: float = 0.0


class RunLoad(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="run"):
    """Start the load, or change the one that runs: pattern, prompts and lengths apply to the next arrival.

    Attributes:
        seed: of arrivals, prompts and lengths, each with a random stream of its own: the same seed gives the same
            requests in the same order at any rate.
        prompt_words: words that prompts are cut or continued to; ``None`` leaves them as they are.
        stream: whether an answer comes token by token; otherwise the time of its first token is unknown.
    """

    pattern: Pattern
    prompts: tuple[str, ...]
    max_tokens: Length = 24
    prompt_words: Length | None = None
    temperature: float = 0.0
    stream: bool = True
    seed: int = 0
    max_outstanding: Count = 1024


class StopLoad(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="stop"):
    """No further arrivals; what is under way is let finish."""


class PauseLoad(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="pause"):
    """No arrivals until `ResumeLoad`; what is under way goes on."""


class ResumeLoad(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="resume"):
    """Go on where the pause began: what would have arrived during it comes as much later as it lasted."""


class Cancel(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="cancel"):
    """Break off these requests, or all where `ids` is ``None``."""

    ids: tuple[str, ...] | None = None


LoadCommand: TypeAlias = Fire | RunLoad | StopLoad | PauseLoad | ResumeLoad | Cancel

ClientOutcome: TypeAlias = Literal["ok", "failed", "cancelled", "refused"]


class ClientRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as its sender sees it; each later one of the same `id` replaces the earlier one.

    Attributes:
        id: sent as `X-Request-Id`, so it is the `RequestRecord.client_id` of the same request.
        new_text: what was generated since the last report on this request; the completion is their sum.
        intended_s, sent_s, first_token_s, finished_s: on the sender's monotonic clock.
        tokens: generated so far.
        outcome: ``None`` while under way; `refused` is the service's deliberate 503.
    """

    id: str
    source: Literal["fire", "load"]
    prompt: str
    max_tokens: int
    intended_s: float
    sent_s: float | None = None
    first_token_s: float | None = None
    finished_s: float | None = None
    tokens: int = 0
    new_text: str = ""
    outcome: ClientOutcome | None = None
    error: str | None = None

    @property
    def latency_s(self) -> float | None:
        """From the intended send time to the last token, in seconds."""
        return None if self.finished_s is None else self.finished_s - self.intended_s


class ClientTotals(msgspec.Struct, frozen=True, kw_only=True):
    """The client's ledger: ``sent = ok + refused + failed + cancelled + outstanding``; `dropped` were never sent.

    Attributes:
        repeated: greedy answers to prompts that were answered more than once, since the load or the service began.
        differing: of these, those that are not their prompt's most frequent answer.
    """

    sent: int = 0
    ok: int = 0
    refused: int = 0
    failed: int = 0
    cancelled: int = 0
    dropped: int = 0
    outstanding: int = 0
    repeated: int = 0
    differing: int = 0


class LoadFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="load"):
    """Everything the load process saw since its frame before, at most about 20 a second.

    Attributes:
        at_s: the sender's monotonic clock.
        clock: identifies that clock, as in `TelemetryFrame`.
        pattern: what runs now, or ``None``.
        lag_p99_ms: how late the generator itself sent, over the last 10 s; ``None`` while it sent nothing.
        is_paused: the load waits for `ResumeLoad`.
    """

    at_s: float
    clock: str
    pattern: Pattern | None
    totals: ClientTotals
    lag_p99_ms: float | None = None
    is_paused: bool = False
    requests: tuple[ClientRequest, ...] = ()


class LoadRefused(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="refused"):
    """A command could not be obeyed; `reason` is a sentence that says why."""

    reason: str


LoadEvent: TypeAlias = LoadFrame | LoadRefused


def spoiling_lag_ms(latency_p50_s: float) -> float:
    """The load generator's lag (p99, in milliseconds) beyond which it spoils a latency with this median.

    >>> spoiling_lag_ms(0.01), spoiling_lag_ms(2.0)
    (5.0, 100.0)
    """
    return max(5.0, 0.05 * 1e3 * latency_p50_s)
