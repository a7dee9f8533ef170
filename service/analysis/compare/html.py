"""A comparison or a sweep as an HTML page that needs nothing else: the verdict, the plots and the evidence.

The page's form and look are in `report.html`, a Jinja2 template; this module gives it the texts, plots and tables.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from service.analysis.compare.comparison import Comparison, ServiceFacts
from service.analysis.compare.run import FIGURE_BY_NAME, FIGURES, FigureName, MeasuredRun, spoiling
from service.analysis.compare.svg import cumulative_plot, ratio_plot, sweep_plot
from service.analysis.compare.sweep import Sweep
from service.analysis.observed.descriptions import load_text
from service.analysis.observed.register import RUN
from service.messages.objectives import Objectives
from service.messages.settings import Settings
from service.messages.text import format_figure

SAME_LOAD: Final = "In each round both sides were sent the same arrivals, prompts and lengths, to an idle service; "
OWN_LOADS: Final = "In each round either side was sent its own load, from one seed, to an idle service; "
METHOD: Final = (
    "which side came first changed from round to round. The interval is Student's t on the logarithms of the rounds' "
    "ratios, because requests within a round depend on each other and rounds do not. The verdict is about one figure, "
    "chosen before; the other intervals are evidence, not verdicts."
)
ROUND_FIGURES: Final = tuple(
    figure
    for figure in FIGURES
    if figure.name in ("p50_s", "p95_s", "mean_s", "ttft_p95_s", "tpot_p95_s", "requests_per_s", "mean_batch")
)
ROUND_TITLES: Final = tuple(f"{figure.title} ({figure.unit})".removesuffix(" ()") for figure in ROUND_FIGURES)


@dataclass(frozen=True)
class Section:
    """A part of the page: its title, and what there is of a plot, a text and a table, in this order.

    Attributes:
        legend: names of the plot's curves.
        header: names of the table's columns; a table of facts has none.
        rows: of the table; the first cell names the row.
    """

    title: str
    plot: Markup | None = None
    legend: Sequence[str] = ()
    text: str = ""
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()


def comparison_page(comparison: Comparison) -> str:
    """The report of `compare`."""
    plan, differences = comparison.plan, comparison.differences
    sides = {"A": plan.a, "B": plan.b}
    method = (SAME_LOAD if plan.a.load == plan.b.load else OWN_LOADS) + METHOD
    loads = {f"load of {name}": load_text(side.load) for name, side in sides.items()}
    loads["objectives"] = _wanted(plan.objectives)
    rounds = f"{len(comparison.a)} of {plan.duration_s:g} s each side, seeds from {plan.seed}"
    sections = [
        Section("Cumulative latency", cumulative_plot(comparison), legend=tuple(sides)),
        Section("B over A", ratio_plot(differences, plan.figure)) if differences else None,
        _differences(comparison),
        _rounds(comparison),
        _definitions(each.figure for each in differences),
        _settings("Settings", {name: side.settings for name, side in sides.items()}),
        _measurement(comparison.service, comparison.measured_at, loads, rounds, method),
    ]
    return _page("A and B compared", comparison.title, comparison.verdict, comparison.caveats, sections)


def sweep_page(sweep: Sweep) -> str:
    """The report of `sweep`."""
    plan, best = sweep.plan, sweep.best()
    is_measured = any(point.runs for point in sweep.points)
    plot_title = f"{FIGURE_BY_NAME['requests_per_s'].title} over {FIGURE_BY_NAME[sweep.latency].title} (s)"
    loads = {"load": load_text(plan.load), "objectives": _wanted(plan.objectives)}
    rounds = f"{plan.rounds} of {plan.duration_s:g} s each point, seeds from {plan.seed}"
    sections = [
        Section(plot_title, sweep_plot(sweep)) if is_measured else None,
        _points(sweep),
        _definitions(each.name for each in ROUND_FIGURES),
        _settings("Settings of the best", {"best": sweep.points[best].settings}) if best is not None else None,
        _measurement(sweep.service, sweep.measured_at, loads, rounds),
    ]
    spoilt = [(sweep.label(place), spoiling(point.runs)) for place, point in enumerate(sweep.points)]
    caveats = [f"{label}: {sentence}" for label, sentences in spoilt for sentence in sentences]
    return _page("Settings swept", ", ".join(sweep.varied()), sweep.verdict(), caveats, sections)


def _wanted(objectives: Objectives) -> str:
    return objectives.share_words if objectives else objectives.words


def _page(kind: str, title: str, verdict: str, warnings: Sequence[str], sections: Sequence[Section | None]) -> str:
    loader = FileSystemLoader(Path(__file__).parent)
    templates = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    return templates.get_template("report.html").render(
        kind=kind, title=title, verdict=verdict, warnings=warnings, sections=[each for each in sections if each]
    )


def _differences(comparison: Comparison) -> Section:
    rows = []
    for each in comparison.differences:
        figure = FIGURE_BY_NAME[each.figure]
        title = Markup("<strong>{}</strong>").format(figure.title) if each == comparison.decisive else figure.title
        values = (format_figure(value, figure.unit) for value in (each.a, each.b))
        rows.append((title, *values, each.short_text, each.interval_text))
    return Section("Figures", header=("mean of the rounds", "A", "B", "B over A", "95 % interval"), rows=rows)


def _rounds(comparison: Comparison) -> Section:
    rows = [
        (f"{number} {name}", str(run.seed), str(run.answered), *_figures([run]))
        for number, pair in enumerate(zip(comparison.a, comparison.b, strict=True), start=1)
        for name, run in zip("AB", pair, strict=True)
    ]
    return Section("Rounds", header=("round", "seed", "answered", *ROUND_TITLES), rows=rows)


def _points(sweep: Sweep) -> Section:
    front, best = sweep.front(), sweep.best()
    rows = []
    for place, point in enumerate(sweep.points):
        remark = "best" if place == best else "on the front" if place in front else ""
        rows.append((sweep.label(place), *_figures(point.runs), remark))
    return Section("Points", header=("settings", *ROUND_TITLES, ""), rows=rows)


def _definitions(names: Iterable[FigureName]) -> Section:
    """What the figures are, in the words of the register."""
    entries = [FIGURE_BY_NAME[name].entry for name in names]
    rows = [(entry.name, f"{entry.definition}.") for entry in entries]
    return Section("What the figures are", text=f"{RUN}, from an idle service to an idle one.", rows=rows)


def _figures(runs: Sequence[MeasuredRun]) -> list[str]:
    return [format_figure(figure.of(runs) if runs else None) for figure in ROUND_FIGURES]


def _settings(title: str, columns: dict[str, Settings]) -> Section:
    names = Settings.__struct_fields__
    rows = [(name, *(str(getattr(settings, name)) for settings in columns.values())) for name in names]
    return Section(title, header=("", *columns), rows=rows)


def _measurement(
    service: ServiceFacts, measured_at: float, loads: dict[str, str], rounds: str, method: str = ""
) -> Section:
    moment = datetime.datetime.fromtimestamp(measured_at).astimezone().strftime("%Y-%m-%d %H:%M %Z")
    facts = {"service": service.text, "address": service.url, **loads, "rounds": rounds, "measured": moment}
    return Section("How it was measured", text=method, rows=tuple(facts.items()))
