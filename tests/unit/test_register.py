"""The register of figures, and the figures that say how requests ended."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import fields
from typing import get_args

import msgspec
import pytest

from gui.demo import report as demo
from gui.look.glossary import FIGURES, TERMS
from gui.panels import figures_row
from service.analysis.compare.run import FIGURES as COMPARED
from service.analysis.compare.run import FigureName
from service.analysis.observed.history import History
from service.analysis.observed.register import ENTRIES, PERCENTILES, REGISTER, STAGES, Figures, numbers
from service.analysis.observed.statistics import figures
from service.analysis.predict import prediction_report
from service.commands import explain, load
from service.load.report import LoadFigures
from service.messages.load import ClientOutcome, ClientRequest, ClientTotals, LoadFrame
from service.messages.objectives import Objectives
from service.messages.settings import Settings
from tests.synthetic_run import CLOCK, FakeClock, Step, SyntheticRun, filled_history


def test_that_every_figure_stands_in_the_register_with_its_time_and_the_requests_that_count() -> None:
    assert list(REGISTER) == [field.name for field in fields(Figures)]
    assert all(entry.definition and entry.window in entry.sentence for entry in REGISTER.values())
    assert len({entry.name for entry in REGISTER.values()}) == len(REGISTER), "two figures have two names"
    assert {entry.name: entry.sentence for entry in REGISTER.values()} == FIGURES


NO_FIGURES = {"model", "device", "settings_changes", "frames", "startup_s"}  # of a demo's report


def leaves(kind: type[msgspec.Struct], path: str = "") -> Iterator[str]:
    """The paths of a struct's numbers."""
    for field in msgspec.structs.fields(kind):
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            yield from leaves(field.type, f"{path}{field.name}.")
        else:
            yield f"{path}{field.name}"


SHOWN: dict[str, Collection[str]] = {
    "figures row": figures_row.KEYS,
    "compare and sweep": get_args(FigureName),
    "load report": [field.name for field in msgspec.structs.fields(LoadFigures)],
    "rows of the load report": load.SPREADS,
    "prediction": prediction_report.SHOWN,
    "explain": explain.FIGURES,
    "demo": demo.FIGURES.values(),
}


@pytest.mark.parametrize("place", SHOWN)
def test_that_whatever_shows_a_figure_has_it_from_the_register(place: str) -> None:
    assert set(SHOWN[place]) <= set(ENTRIES)


def test_that_a_name_means_one_thing_everywhere() -> None:
    assert len({entry.name for entry in ENTRIES.values()}) == len(ENTRIES)
    assert all(entry.definition for entry in ENTRIES.values())
    assert {figure.title for figure in COMPARED} <= {entry.name for entry in ENTRIES.values()}
    of_objectives = {"latency": "latency_s", "ttft": "time_to_first_token_s", "tpot": "time_per_output_token_s"}
    assert {name: TERMS[name] for name in of_objectives} == {n: ENTRIES[k].definition for n, k in of_objectives.items()}


def test_that_no_number_of_a_demo_s_report_is_without_a_name_in_the_register() -> None:
    assert {path for path in leaves(demo.Report) if path.partition(".")[0] not in NO_FIGURES} == set(demo.FIGURES)


@pytest.mark.parametrize(("longest_s", "written"), [(9.99, "7.27"), (10.4, "7.3")])
def test_that_percentiles_have_one_decimal_once_one_of_them_reaches_ten_seconds(longest_s: float, written: str) -> None:
    assert numbers(Figures(p50_s=7.27, p95_s=longest_s, p99_s=longest_s))["p50_s"] == written


def test_that_what_is_unknown_is_a_dash_and_a_small_share_is_never_none() -> None:
    assert {numbers(Figures())[key] for key in (*PERCENTILES, *STAGES, "failed_share")} == {"–"}
    assert [numbers(Figures(failed_share=share))["failed_share"] for share in (0.0, 0.0004, 0.012, 0.97)] == [
        "0",
        "<0.1",
        "1.2",
        "97",
    ]


@pytest.fixture
def told() -> tuple[History, FakeClock]:
    return filled_history(SyntheticRun(20.0, (Step(0.0, 4.0, Settings(max_batch_size=16)),)))


def hear(history: History, *outcomes: ClientOutcome | None, ago_s: float = 1.0) -> None:
    """Requests of which no replica reports: they were sent `ago_s` ago and ended at once, if they ended."""
    at_s = history.now_s() - ago_s
    requests = [
        ClientRequest(
            id=f"heard-{ago_s}-{number}",
            source="load",
            prompt="Once",
            max_tokens=24,
            intended_s=at_s,
            sent_s=at_s,
            finished_s=None if outcome is None else at_s,
            outcome=outcome,
        )
        for number, outcome in enumerate(outcomes)
    ]
    history.add_load(
        LoadFrame(at_s=history.now_s(), clock=CLOCK, pattern=None, totals=ClientTotals(), requests=tuple(requests))
    )


def test_that_the_share_that_failed_counts_refusals_and_no_cancellations(told: tuple[History, FakeClock]) -> None:
    history, _ = told
    before = figures(history)
    assert (before.failed_share, before.failed, before.refused, before.cancelled) == (0.0, 0, 0, 0)
    hear(history, "failed", "refused", "refused", "cancelled")
    now = figures(history)
    assert (now.failed, now.refused, now.cancelled, now.ended) == (1, 2, 1, before.ended + 4)
    assert now.failed_share == pytest.approx(3 / now.ended)
    assert now.p50_s == before.p50_s


def test_that_failures_are_those_of_the_last_ten_seconds(told: tuple[History, FakeClock]) -> None:
    history, _ = told
    hear(history, "failed", ago_s=11.0)
    assert figures(history).failed_share == 0.0


def test_that_nothing_is_known_of_failures_where_nothing_ended() -> None:
    history, _ = filled_history(SyntheticRun(40.0, (Step(0.0, 4.0, Settings()), Step(20.0, rate_per_s=0.0))))
    assert (figures(history).ended, figures(history).failed_share) == (0, None)


def test_that_a_request_on_its_way_to_a_replica_waits(told: tuple[History, FakeClock]) -> None:
    history, _ = told
    before = figures(history)
    hear(history, None, None, ago_s=0.01)
    now = figures(history)
    assert before.queue is not None
    assert now.queue == before.queue + 2
    assert now.queue == (now.waiting or 0) + (now.formed or 0)
    assert now.running == before.running


def test_that_goodput_counts_the_answers_that_met_every_objective(told: tuple[History, FakeClock]) -> None:
    history, _ = told
    start_s, end_s = history.now_s() - 10, history.now_s()
    assert figures(history).goodput_per_s is None
    history.objectives = Objectives(latency_s=figures(history).p50_s)
    finished, latency = (history.requests.samples[name] for name in ("finished", "latency"))
    good = (finished > start_s) & (finished <= end_s) & (latency <= history.objectives.latency_s)
    assert figures(history).goodput_per_s == pytest.approx(good.sum() / 10)
    history.objectives = Objectives(latency_s=600.0, ttft_s=0.001)
    assert figures(history).goodput_per_s == 0.0
    history.objectives = Objectives(latency_s=600.0)
    assert figures(history).goodput_per_s == figures(history).requests_per_s


def test_that_objectives_stay_when_another_history_is_shown(told: tuple[History, FakeClock]) -> None:
    shown = History(CLOCK, FakeClock())
    shown.objectives = Objectives(latency_s=1.0)
    shown.become(told[0])
    assert shown.objectives == Objectives(latency_s=1.0)


def test_that_requests_stand_where_the_service_failed(told: tuple[History, FakeClock]) -> None:
    history, clock = told
    before = figures(history)
    history.mark_failure()
    clock.now_s += 60
    now = figures(history)
    assert (now.queue, now.running) == (before.queue, before.running)
