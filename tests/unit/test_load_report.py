"""From requests to figures, and the sentences about what spoils them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from service.load.report import LoadFigures, ReportedRequest, load_figures, spoilers
from service.messages.gaps import Gaps
from service.messages.load import ClientTotals
from service.messages.objectives import Objectives


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


def gaps(*gaps_s: float) -> Gaps:
    counted = Gaps()
    for gap_s in gaps_s:
        counted.add(gap_s)
    return counted


class TestTokens:
    def test_that_the_time_per_token_is_what_follows_the_first_over_the_tokens_that_do(self) -> None:
        figures = load_figures([request(0, 2.0, tokens=11), request(1, 4.0, tokens=5)])
        assert figures.time_per_output_token_s is not None
        assert (figures.time_per_output_token_s.p50, figures.time_per_output_token_s.max) == (0.3, 0.5)

    def test_that_every_gap_between_tokens_counts_once_whichever_request_it_is_of(self) -> None:
        requests = [request(0, gaps=gaps(*[0.01] * 97)), request(1, gaps=gaps(0.01, 0.01, 0.8))]
        itl_s = load_figures(requests).inter_token_latency_s
        assert itl_s is not None
        assert (itl_s.mean, itl_s.max) == (pytest.approx((99 * 0.01 + 0.8) / 100), 0.8)
        assert (itl_s.p50, itl_s.p99) == (pytest.approx(0.01, rel=0.026), pytest.approx(0.01, rel=0.026))

    def test_that_what_has_no_second_token_has_no_time_between_tokens(self) -> None:
        figures = load_figures([request(0, tokens=1), request(1, first_token_s=None)])
        assert (figures.time_per_output_token_s, figures.inter_token_latency_s) == (None, None)

    def test_that_a_report_from_before_reads(self) -> None:
        old = msgspec.json.decode(msgspec.json.encode(load_figures([request(0)])), type=dict[str, Any])
        for name in ("time_per_output_token_s", "inter_token_latency_s", "goodput_per_s", "good_share"):
            del old[name]
        assert msgspec.convert(old, type=LoadFigures).inter_token_latency_s is None


class TestGoodput:
    def test_that_requests_count_that_met_every_objective(self) -> None:
        requests = [request(0, 1.0), request(1, 1.0, tokens=2), request(2, 3.0), request(3, 1.0)]
        figures = load_figures(requests, Objectives(latency_s=2.0, tpot_s=0.1))
        assert (figures.goodput_per_s, figures.good_share) == (2 / 5.0, 0.5)

    def test_that_a_request_without_an_answer_met_none(self) -> None:
        refused = request(1, 0.001, outcome="refused", tokens=0, first_token_s=None)
        figures = load_figures([request(0), refused], Objectives(latency_s=2.0))
        assert figures.good_share == 0.5

    def test_that_without_objectives_it_is_unknown(self) -> None:
        figures = load_figures([request(0)])
        assert (figures.goodput_per_s, figures.good_share) == (None, None)


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
