"""A comparison or a sweep as a page that needs nothing else: what was found, the plots, and the evidence."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Final
from xml.etree.ElementTree import Element

from service.analysis.compare.comparison import Comparison, ServiceFacts
from service.analysis.compare.markup import Child, element, html, table
from service.analysis.compare.run import FIGURE_BY_NAME, FIGURES, Run, spelled, spoiling
from service.analysis.compare.style import STYLE
from service.analysis.compare.svg import cumulative_plot, ratio_plot, sweep_plot
from service.analysis.compare.sweep import Sweep
from service.analysis.observed.descriptions import load_text
from service.messages.settings import Settings

SAME_LOAD: Final = "In each round both sides were sent the same arrivals, prompts and lengths, to an idle service; "
OWN_LOADS: Final = "In each round either side was sent its own load, from one seed, to an idle service; "
METHOD: Final = (
    "which side came first changed from round to round. The interval is Student's t on the logarithms of the rounds' "
    "ratios, because requests within a round depend on each other and rounds do not. The verdict is about one figure, "
    "chosen before; the other intervals are evidence, not verdicts."
)
ROUND_FIGURES: Final = ("p50_s", "p95_s", "mean_s", "requests_per_s", "mean_batch")


def comparison_page(comparison: Comparison) -> str:
    """The report of `compare`."""
    plan = comparison.plan
    sides = {"A": plan.a, "B": plan.b}
    return _page(
        "A and B compared",
        comparison.title,
        comparison.verdict,
        comparison.caveats,
        _plot("Cumulative latency", cumulative_plot(comparison), "A", "B"),
        _plot("B over A", ratio_plot(comparison.differences, plan.figure)) if comparison.differences else None,
        _section("Figures", _differences(comparison)),
        _section("Rounds", _rounds(comparison)),
        _section("Settings", _settings({name: side.settings for name, side in sides.items()})),
        _section(
            "How it was measured",
            element("p", (SAME_LOAD if plan.a.load == plan.b.load else OWN_LOADS) + METHOD),
            _facts(
                comparison.service,
                comparison.measured_at,
                {f"load of {name}": load_text(side.load) for name, side in sides.items()},
                f"{len(comparison.a)} of {plan.duration_s:g} s each side, seeds from {plan.seed}",
            ),
        ),
    )


def sweep_page(sweep: Sweep) -> str:
    """The report of `sweep`."""
    plan, best = sweep.plan, sweep.best()
    is_measured = any(point.runs for point in sweep.points)
    lost = [
        f"{sweep.label(place)}: {text}" for place, point in enumerate(sweep.points) for text in spoiling(point.runs)
    ]
    return _page(
        "Settings swept",
        ", ".join(sweep.varied()),
        sweep.verdict(),
        lost,
        _plot(_sweep_title(sweep), sweep_plot(sweep)) if is_measured else None,
        _section("Points", _points(sweep)),
        _section("Settings of the best", _settings({"best": sweep.points[best].settings}))
        if best is not None
        else None,
        _section(
            "How it was measured",
            _facts(
                sweep.service,
                sweep.measured_at,
                {"load": load_text(plan.load), "objective": plan.objective.text if plan.objective else "none"},
                f"{plan.rounds} of {plan.duration_s:g} s each point, seeds from {plan.seed}",
            ),
        ),
    )


def _page(kind: str, title: str, verdict: str, warnings: Sequence[str], *parts: Element | None) -> str:
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width"),
        element("title", f"{kind}: {title}"),
        element("style", STYLE),
    )
    body = element(
        "body",
        element("h1", kind),
        element("p", title, class_="subject"),
        element("p", verdict, class_="verdict"),
        *[element("p", warning, class_="warning") for warning in warnings],
        *parts,
    )
    return "<!DOCTYPE html>\n" + html(element("html", head, body, lang="en")) + "\n"


def _section(title: str, *children: Element) -> Element:
    return element("section", element("h2", title), *children)


def _plot(title: str, plot: Element, *named: str) -> Element:
    legend = element("p", *[element("span", name, class_=f"key {name.lower()}") for name in named], class_="legend")
    return _section(title, *([legend] if named else []), plot)


def _differences(comparison: Comparison) -> Element:
    rows: list[Sequence[Child]] = []
    for each in comparison.differences:
        figure = FIGURE_BY_NAME[each.figure]
        values = (spelled(value, figure.unit) for value in (each.a, each.b))
        title = element("strong", figure.title) if each.figure == comparison.plan.figure else figure.title
        rows.append((title, *values, each.short_text, each.interval_text))
    return table(("mean of the rounds", "A", "B", "B over A", "95 % interval"), rows)


def _rounds(comparison: Comparison) -> Element:
    rows = []
    for number, pair in enumerate(zip(comparison.a, comparison.b, strict=True)):
        for name, run in zip("AB", pair, strict=True):
            rows.append((f"{number + 1} {name}", str(run.seed), str(run.answered), *_figures([run])))
    return table(("round", "seed", "answered", *_figure_titles()), rows)


def _sweep_title(sweep: Sweep) -> str:
    return f"Throughput (req/s) over {FIGURE_BY_NAME[sweep.latency].title} (s)"


def _points(sweep: Sweep) -> Element:
    front, best = sweep.front(), sweep.best()
    rows = []
    for place, point in enumerate(sweep.points):
        remark = "best" if place == best else "on the front" if place in front else ""
        rows.append((sweep.label(place), *_figures(point.runs), remark))
    return table(("settings", *_figure_titles(), ""), rows)


def _figure_titles() -> list[str]:
    return [f"{each.title} ({each.unit})".removesuffix(" ()") for each in FIGURES if each.name in ROUND_FIGURES]


def _figures(runs: Sequence[Run]) -> list[str]:
    return [spelled(each.of(runs) if runs else None) for each in FIGURES if each.name in ROUND_FIGURES]


def _settings(columns: dict[str, Settings]) -> Element:
    names = Settings.__struct_fields__
    rows = [(name, *(str(getattr(settings, name)) for settings in columns.values())) for name in names]
    return table(("", *columns), rows)


def _facts(service: ServiceFacts, measured_at: float, loads: dict[str, str], rounds: str) -> Element:
    moment = datetime.datetime.fromtimestamp(measured_at).astimezone().strftime("%Y-%m-%d %H:%M %Z")
    facts = {"service": service.text, "address": service.url, **loads, "rounds": rounds, "measured": moment}
    return table(("", ""), facts.items(), class_="facts")
