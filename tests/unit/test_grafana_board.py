"""The board in `assets/grafana.json`: Grafana knows its parts, and `GET /metrics` the figures that it asks for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import promql_parser
import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from service.messages.settings import Settings, VersionedSettings
from service.replica.exposition import ReplicaMetrics
from service.replica.recorder import Recorder
from tests.unit.test_metrics import run_batch, scraped
from tests.unit.test_telemetry import status

BOARD: Mapping[str, Any] = json.loads((Path(__file__).parents[2] / "assets" / "grafana.json").read_text())
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
COLUMNS = 24


def queries(rate_interval: str = "1m") -> Iterator[str]:
    """Every query of the board, with values for Grafana's own variables."""
    found = [target["expr"] for panel in PANELS for target in panel["targets"]]
    found += [annotation["expr"] for annotation in BOARD["annotations"]["list"]]
    for query in found:
        for variable, value in (("$__rate_interval", rate_interval), ("$__interval", "15s")):
            query = query.replace(variable, value)
        yield query


def asked(query: str) -> list[promql_parser.VectorSelector]:
    """The selectors in a query, as a parser of PromQL finds them."""
    selectors: list[promql_parser.VectorSelector] = []

    def visit(node: promql_parser.Expr) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            selectors.append(node)

    promql_parser.walk(promql_parser.parse(query), visit)
    return selectors


@pytest.fixture(scope="module")
def given() -> dict[str, set[str]]:
    """The names of all that a scrape holds, each with the labels of its series."""
    recorder = Recorder("r1")
    run_batch(recorder)
    known = ReplicaMetrics()
    known.note(recorder.report(status()))
    seen = scraped(known.scrape(VersionedSettings(version=1, settings=Settings())).text())
    names: dict[str, set[str]] = {"batchscope_good_requests_total": {"model_name", "replica"}}  # where one is held
    for name, labels in seen.values:
        names.setdefault(name, set()).update(label for label, _ in labels)
    return names


@pytest.mark.parametrize("query", list(queries()))
def test_that_every_figure_and_label_that_is_asked_for_is_given(query: str, given: Mapping[str, set[str]]) -> None:
    selectors = asked(query)
    assert selectors
    for selector in selectors:
        assert selector.name in given
        assert {matcher.name for matcher in selector.matchers.matchers} <= given[selector.name]


def test_that_the_variables_choose_by_labels_that_are_given(given: Mapping[str, set[str]]) -> None:
    chosen = [each["query"]["query"] for each in BOARD["templating"]["list"] if each["type"] == "query"]
    for query in chosen:
        name, label = query.removeprefix("label_values(").removesuffix(")").split(", ")
        assert label in given[name]
    assert len(chosen) == 2


def test_that_grafana_knows_every_part_of_it() -> None:
    """Read by Grafana's own model of a board and written again, all of it is still there."""
    register_default_plugins()
    known = json.loads(JSONEncoder().encode(Dashboard.from_json(dict(BOARD))))
    assert list(missing(BOARD, known)) == []


def missing(wanted: Any, known: Any, path: str = "") -> Iterator[str]:
    """Paths of what is in `wanted` and not, or another, in `known`."""
    if isinstance(wanted, dict) and isinstance(known, dict):
        for key, value in wanted.items():
            yield from missing(value, known.get(key), f"{path}.{key}")
    elif isinstance(wanted, list) and isinstance(known, list) and len(wanted) == len(known):
        for place, (one, other) in enumerate(zip(wanted, known, strict=True)):
            yield from missing(one, other, f"{path}[{place}]")
    elif wanted != known:
        yield f"{path}: {wanted!r} is {known!r}"


def test_that_panels_have_names_of_their_own_and_do_not_lie_on_each_other() -> None:
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
    assert len({panel["title"] for panel in PANELS}) == len(PANELS)
    taken: dict[tuple[int, int], str] = {}
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= COLUMNS
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]
