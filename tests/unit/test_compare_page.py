"""The reports: whole pages that need nothing else, with what was found and what it rests on."""

from __future__ import annotations

import random
import re
from html.parser import HTMLParser

import pytest

from service.analysis.compare.comparison import Comparison, ServiceFacts, concluded
from service.analysis.compare.html import comparison_page, sweep_page
from service.analysis.compare.run import MeasuredRun
from service.analysis.compare.run_plan import ComparePlan, Side, SweepPlan
from service.analysis.compare.svg import Axis
from service.analysis.compare.sweep import Sweep
from service.analysis.observed.register import ENTRIES
from service.messages.load import Poisson, RunLoad
from service.messages.objectives import Objectives
from service.messages.settings import Settings

LOAD = RunLoad(pattern=Poisson(rate_per_s=4), prompts=("Once <upon> a time",))
FACTS = ServiceFacts(url="http://127.0.0.1:8000", model="<script>model</script>", device="cpu", replicas=1)
VOID = {"meta"}


def run(seed: int, slowness: float, **counts: int) -> MeasuredRun:
    draw = random.Random(f"{seed}-{slowness}")
    latencies = tuple(slowness * draw.lognormvariate(0, 0.3) for _ in range(40))
    return MeasuredRun(
        seed=seed,
        ran_s=10.0,
        latencies_s=latencies,
        ttfts_s=tuple([each / 4 for each in latencies]),
        tpots_s=tuple([each / 32 for each in latencies]),
        tokens=960,
        good=40 - sum(each > 2.0 for each in latencies),
        mean_batch=2.0,
        **counts,
    )


def comparison(b: float = 3.0, **counts: int) -> Comparison:
    settings = Settings(), Settings(formation="early")
    plan = ComparePlan(a=Side(settings=settings[0], load=LOAD), b=Side(settings=settings[1], load=LOAD), rounds=3)
    a_runs = [run(seed, 1.0) for seed in range(3)]
    return concluded(FACTS, 1.7e9, plan, a_runs, [run(seed, b, **counts) for seed in range(3)])


def sweep(measured: int = 3) -> Sweep:
    points = tuple(Settings(max_batch_size=size) for size in (1, 4, 16))
    swept = Sweep.begun(FACTS, SweepPlan(points=points, load=LOAD, objectives=Objectives(latency_s=2.0)))
    for place in range(measured):
        swept = swept.with_run(place, run(0, 0.5 + place), 1.7e9)
    return swept


class Balance(HTMLParser):
    """Counts elements that were opened and not closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


PAGES = {"comparison": lambda: comparison_page(comparison()), "sweep": lambda: sweep_page(sweep())}


@pytest.mark.parametrize("kind", PAGES)
def test_that_a_page_is_well_formed_and_asks_for_nothing_from_outside(kind: str) -> None:
    page = PAGES[kind]()

    assert Balance(page).open == []
    assert "<script" not in page
    assert re.findall(r"(?:src|href|url)\s*[=(]", page) == []


def test_that_a_comparison_shows_verdict_plots_and_every_round() -> None:
    result = comparison()
    texts = Balance(comparison_page(result)).texts

    assert result.verdict in texts
    assert "formation late → early" in texts
    assert {"1 A", "1 B", "3 A", "3 B"} <= set(texts)
    assert comparison_page(result).count("<svg") == 2


def test_that_a_comparison_can_be_concluded_again_from_its_plan_and_runs() -> None:
    result = comparison()

    assert concluded(result.service, result.measured_at, result.plan, result.a, result.b) == result


def test_that_a_comparison_says_what_spoils_it() -> None:
    texts = Balance(comparison_page(comparison(refused=2))).texts

    assert "B: 6 of 126 requests were refused (503), so the latencies are of those that got in." in texts


def test_that_time_to_first_token_and_between_tokens_stand_beside_the_latency_with_their_intervals() -> None:
    result = comparison()
    texts = Balance(comparison_page(result)).texts

    for name in ("ttft_p50_s", "ttft_p95_s", "tpot_p50_s", "tpot_p95_s", "goodput_per_s"):
        found = next(each for each in result.differences if each.figure == name)
        assert found.low < found.ratio < found.high
        assert {ENTRIES[name].name, found.interval_text, f"{ENTRIES[name].definition}."} <= set(texts)


def test_that_a_sweep_shows_its_best_and_a_dot_a_point() -> None:
    page = sweep_page(sweep())

    assert page.count("<circle") == 3
    assert page.count('class="best"') == 1
    assert "p95 ≤ 2 s" in page


def test_that_a_sweep_with_nothing_measured_yet_is_a_page_too() -> None:
    assert Balance(sweep_page(sweep(measured=0))).open == []


def test_that_curves_a_hundred_times_apart_are_drawn_too() -> None:
    assert comparison_page(comparison(b=100.0)).count("nan") == 0


@pytest.mark.parametrize("low", [0.97, 0.5, 0.01])
def test_that_ratios_have_ticks_on_both_sides_of_the_same(low: float) -> None:
    ticks = Axis(low, 1 / low, 0.0, 100.0, is_log=True).ticks()

    assert min(ticks) < 1 < max(ticks)
    assert 3 <= len(ticks) <= 14
