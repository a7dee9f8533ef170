"""From requests to figures, and the sentences about what spoils them."""

from __future__ import annotations

from typing import Any

import pytest

from service.load.report import ReportedRequest, load_figures, spoilers
from service.messages.load import ClientTotals


def request(number: int, latency_s: float = 1.0, lag_s: float = 0.0, **fields: Any) -> ReportedRequest:
    """The `number`-th, intended at as many seconds."""
    known: dict[str, Any] = {
        "id": str(number),
        "intended_s": float(number),
        "sent_s": number + lag_s,
        "first_token_s": number + latency_s / 2,
        "finished_s": number + latency_s,
        "max_tokens": 8,
        "tokens": 8,
        "prompt_tokens": 4,
        "outcome": "ok",
    }
    return ReportedRequest(**{**known, **fields})


class TestFigures:
    def test_that_latency_counts_from_the_intended_time(self) -> None:
        figures = load_figures([request(0, 2.0, lag_s=1.5), request(1, 4.0)])
        assert figures.latency_s is not None
        assert (figures.latency_s.p50, figures.latency_s.max, figures.latency_s.mean) == (3.0, 4.0, 3.0)
        assert figures.time_to_first_token_s is not None
        assert figures.time_to_first_token_s.max == 2.0

    def test_that_rates_are_those_of_the_time_it_really_ran(self) -> None:
        figures = load_figures([request(n, latency_s=1.0) for n in range(5)])
        assert (figures.ran_s, figures.requests_per_s, figures.tokens_per_s) == (5.0, 1.0, 8.0)

    def test_that_only_the_answered_count_and_all_that_were_sent_tell_the_lag(self) -> None:
        refused = request(1, latency_s=0.001, lag_s=0.05, outcome="refused", tokens=0, first_token_s=None)
        figures = load_figures([request(0), refused])
        assert figures.latency_s is not None
        assert figures.latency_s.p50 == 1.0
        assert figures.tokens_per_s == pytest.approx(8 / 1.001)
        assert figures.lag_ms is not None
        assert figures.lag_ms.max == pytest.approx(50)

    def test_that_percentiles_lie_where_they_belong_whatever_the_order(self) -> None:
        latency_s = load_figures([request(0, n / 100) for n in reversed(range(101))]).latency_s
        assert latency_s is not None
        assert [latency_s.p50, latency_s.p90, latency_s.p95, latency_s.p99] == pytest.approx([0.5, 0.9, 0.95, 0.99])

    def test_that_nothing_sent_gives_no_figures(self) -> None:
        figures = load_figures([])
        assert (figures.ran_s, figures.requests_per_s, figures.latency_s, figures.lag_ms) == (0.0, None, None, None)


class TestWarnings:
    def test_that_a_clean_run_has_none(self) -> None:
        requests = [request(n, lag_s=0.004) for n in range(10)]
        assert not list(spoilers(ClientTotals(sent=10, ok=10), load_figures(requests), requests))

    def test_that_an_own_lag_that_spoils_the_figures_is_named(self) -> None:
        requests = [request(n, latency_s=1.0, lag_s=0.2) for n in range(10)]
        (warning,) = spoilers(ClientTotals(sent=10, ok=10), load_figures(requests), requests)
        assert "sent late (p99 200 ms, beside a median latency of 1000 ms)" in warning

    def test_that_a_lag_small_beside_the_latency_does_no_harm(self) -> None:
        requests = [request(n, latency_s=10.0, lag_s=0.2) for n in range(10)]
        assert not list(spoilers(ClientTotals(sent=10, ok=10), load_figures(requests), requests))

    def test_that_every_loss_is_counted_in_words(self) -> None:
        requests = [
            request(0),
            request(1, outcome="failed", error="It broke."),
            request(2, outcome="failed", error="It broke."),
            request(3, outcome="failed", error="Another."),
        ]
        totals = ClientTotals(sent=1234, ok=1, refused=5, failed=3, cancelled=2, dropped=1000)
        warnings = tuple(spoilers(totals, load_figures(requests), requests))
        assert [warning.split(" ")[0] for warning in warnings] == ["1,000", "The", "3", "2"]
        assert warnings[2] == "3 requests failed. Most often: It broke."
