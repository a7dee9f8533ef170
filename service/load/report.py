"""The report of a run of load: every request, the figures over them, and what spoils those figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np

from service.load.flight import Flight
from service.messages.gaps import Gaps
from service.messages.load import ClientOutcome, ClientTotals, Length, Pattern, spoiling_lag_ms
from service.messages.objectives import NO_OBJECTIVES, Objectives
from service.messages.workload import TEXT


class ReportedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it was sent; times are seconds from the start of the run.

    Attributes:
        id: sent as `X-Request-Id`, so it is the `RequestRecord.client_id` of the same request.
        tokens: generated.
        prompt_tokens: as the server counts them, where it does.
        gaps: between successive chunks of a stream that brought tokens; ``None`` of an answer in one piece.
    """

    id: str
    intended_s: float
    sent_s: float | None
    first_token_s: float | None
    finished_s: float | None
    max_tokens: int
    tokens: int
    prompt_tokens: int | None
    outcome: ClientOutcome
    error: str | None = None
    gaps: Gaps | None = None

    @classmethod
    def of(cls, flight: Flight, start_s: float) -> ReportedRequest:
        """The outcome of `flight`, which has ended."""
        assert flight.outcome is not None
        return cls(
            id=flight.id,
            intended_s=flight.intended_s - start_s,
            sent_s=_since(start_s, flight.sent_s),
            first_token_s=_since(start_s, flight.first_token_s),
            finished_s=_since(start_s, flight.finished_s),
            max_tokens=flight.max_tokens,
            tokens=flight.tokens,
            prompt_tokens=flight.prompt_tokens,
            outcome=flight.outcome,
            error=flight.error,
            gaps=flight.gaps if flight.gaps.bins else None,
        )

    @property
    def latency_s(self) -> float | None:
        """From the intended send time to the last token."""
        return _since(self.intended_s, self.finished_s)

    @property
    def ttft_s(self) -> float | None:
        """Time to first token, from the intended send time."""
        return _since(self.intended_s, self.first_token_s)

    @property
    def tpot_s(self) -> float | None:
        """Time per output token, (latency − TTFT) / (tokens − 1), as in vLLM's `bench serve`; ``None`` of one token."""
        if self.first_token_s is None or self.finished_s is None or self.tokens < 2:
            return None
        return (self.finished_s - self.first_token_s) / (self.tokens - 1)

    def has_met(self, objectives: Objectives) -> bool:
        """Whether the request was answered, and as soon as `objectives` ask."""
        latency_s = self.latency_s if self.outcome == "ok" else None
        return latency_s is not None and objectives.are_met(latency_s, self.ttft_s, self.tpot_s)


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """How a figure is distributed over the requests, in the unit that the field's name says."""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


class LoadFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures over requests; a figure without any request to take it from is ``None``.

    Attributes:
        ran_s: from the start to the last answer; the rates are taken over this span.
        latency_s: of answered requests, from the intended send time to the last token.
        time_to_first_token_s: TTFT of answered requests, from the intended send time to the first token.
        time_per_output_token_s: TPOT of answered requests, a value a request: (latency − TTFT) / (tokens − 1), as in
            vLLM's `bench serve`. GuideLLM calls the same inter-token latency, and weighs it by the tokens.
        inter_token_latency_s: ITL, a value for each gap between successive chunks with tokens of an answered request,
            as in vLLM's `bench serve`: a chunk of several tokens ends one gap. AIPerf calls the same inter-chunk
            latency. The mean and the maximum, which is the longest stall, are exact, the percentiles to 2.5 %.
        lag_ms: how late the generator itself sent.
        goodput_per_s: requests a second that met the objectives, as in DistServe (arXiv 2401.09670); ``None`` without
            any.
        good_share: of the requests that were sent, the share that met them; one that is not answered meets none.
    """

    ran_s: float
    requests_per_s: float | None
    tokens_per_s: float | None
    latency_s: Spread | None
    time_to_first_token_s: Spread | None
    lag_ms: Spread | None
    time_per_output_token_s: Spread | None = None
    inter_token_latency_s: Spread | None = None
    goodput_per_s: float | None = None
    good_share: float | None = None


class LoadReport(LoadFigures, frozen=True, kw_only=True):
    """A run of load: what was asked for, the figures, and every request.

    Attributes:
        unit: what the tokens are, in the plural.
        prompts: how many there were to draw from.
        started: when, in Unix time.
        clock, start_s: the start on the sender's monotonic clock, and which that is, as in `LoadFrame`.
        duration_s: for how long requests were to be sent.
        objectives: what a request is to meet to count for goodput.
        warnings: sentences on what spoils the figures.
    """

    url: str
    model: str | None
    unit: str = TEXT.unit
    pattern: Pattern
    seed: int
    prompts: int
    max_tokens: Length
    prompt_words: Length | None
    temperature: float
    stream: bool = True
    started: float
    clock: str
    start_s: float
    duration_s: float
    totals: ClientTotals
    objectives: Objectives = NO_OBJECTIVES
    warnings: tuple[str, ...] = ()
    requests: tuple[ReportedRequest, ...] = ()


def load_figures(requests: Sequence[ReportedRequest], objectives: Objectives = NO_OBJECTIVES) -> LoadFigures:
    """The figures over `requests`, in whatever order they come."""
    answered = [request for request in requests if request.outcome == "ok"]
    ran_s = max([request.finished_s or 0.0 for request in requests], default=0.0)
    tokens = sum(request.tokens for request in answered)
    gaps = Gaps()
    gaps.add_all(request.gaps for request in answered if request.gaps is not None)
    good = sum(request.has_met(objectives) for request in requests) if objectives else None
    return LoadFigures(
        ran_s=ran_s,
        requests_per_s=len(answered) / ran_s if ran_s else None,
        tokens_per_s=tokens / ran_s if ran_s else None,
        latency_s=spread(_known(request.latency_s for request in answered)),
        time_to_first_token_s=spread(_known(request.ttft_s for request in answered)),
        lag_ms=spread([1e3 * lag_s for lag_s in _known(_since(r.intended_s, r.sent_s) for r in requests)]),
        time_per_output_token_s=spread(_known(request.tpot_s for request in answered)),
        inter_token_latency_s=spread_of_gaps(gaps),
        goodput_per_s=good / ran_s if good is not None and ran_s else None,
        good_share=good / len(requests) if good is not None and requests else None,
    )


def tokens_between(requests: Iterable[ReportedRequest], start_s: float, end_s: float) -> float:
    """The number of tokens in that span, if the tokens of a request came evenly between its first and its last.

    The tokens of an answer in one piece are taken to have come evenly since the request was sent. In a closed loop the
    span between start and end of the arrivals has all users present, which the end of the run has not.
    """
    return sum(_tokens_between(request, start_s, end_s) for request in requests)


def _tokens_between(request: ReportedRequest, start_s: float, end_s: float) -> float:
    began_s = request.sent_s if request.first_token_s is None else request.first_token_s
    if began_s is None or request.finished_s is None:
        return 0.0
    shared_s = min(end_s, request.finished_s) - max(start_s, began_s)
    span_s = request.finished_s - began_s
    if span_s <= 0:
        return float(request.tokens) if start_s <= request.finished_s < end_s else 0.0
    return request.tokens * max(shared_s, 0.0) / span_s


def spread(values: Sequence[float]) -> Spread | None:
    """Mean, percentiles (linear between neighbours) and maximum; ``None`` of nothing.

    >>> spread([1.0, 2.0, 3.0]).p50
    2.0
    """
    if not values:
        return None
    p50, p90, p95, p99, most = (float(value) for value in np.percentile(values, (50, 90, 95, 99, 100)))
    return Spread(mean=float(np.mean(values)), p50=p50, p90=p90, p95=p95, p99=p99, max=most)


def spread_of_gaps(gaps: Gaps) -> Spread | None:
    """The same of times between tokens, whose percentiles are known to 2.5 %."""
    if gaps.mean_s is None:
        return None
    p50, p90, p95, p99 = gaps.percentiles_s(50, 90, 95, 99)
    return Spread(mean=gaps.mean_s, p50=p50, p90=p90, p95=p95, p99=p99, max=gaps.longest_s)


def spoilers(totals: ClientTotals, figures: LoadFigures, requests: Iterable[ReportedRequest]) -> Iterator[str]:
    """Sentences on what the figures leave out or get wrong."""
    lag_ms, latency_s = figures.lag_ms, figures.latency_s
    if lag_ms is not None and latency_s is not None and lag_ms.p99 > spoiling_lag_ms(latency_s.p50):
        yield (
            f"The load generator itself sent late (p99 {lag_ms.p99:.0f} ms, beside a median latency of "
            f"{1e3 * latency_s.p50:.0f} ms), so part of the latency is its own: send less, or from another machine."
        )
    if totals.dropped:
        yield (
            f"{totals.dropped:,} arrivals were dropped because too many requests were outstanding: the service was "
            "spared them, and the figures with it."
        )
    if totals.refused:
        yield f"The service refused {totals.refused:,} requests because its queue was full."
    if totals.failed:
        errors = Counter(request.error for request in requests if request.outcome == "failed" and request.error)
        often = f" Most often: {errors.most_common(1)[0][0]}" if errors else ""
        yield f"{totals.failed:,} requests failed.{often}"
    if totals.cancelled:
        yield f"{totals.cancelled:,} requests were broken off before they were answered."


def _since(start_s: float, at_s: float | None) -> float | None:
    return None if at_s is None else at_s - start_s


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
