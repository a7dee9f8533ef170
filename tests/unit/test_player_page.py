"""A recording as one HTML file: its data are what the window shows, and it asks nothing of a network."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gui.series.latency import MEASURES, values_at
from service.analysis.lesson.file import parse
from service.analysis.lesson.page import lesson_page
from service.analysis.observed.statistics import figures
from service.analysis.recording.format import Bookmarked, Entry
from service.analysis.recording.page import STEP_S, player_page
from service.analysis.recording.reader import Recording, open_recording
from service.commands import export
from service.messages.settings import Settings
from tests.recorded import entries_of, header, write_recording
from tests.synthetic_run import Step, SyntheticRun

LESSON = """---
lesson: On <b>caps</b>
settings: {max_batch_size: 4}
load: {pattern: poisson, share: 50 %}
recording: run.bsr
---
About caps.

## Small
```run
```
Seen: {p95_s} in batches of {mean_batch}.

## Large
```run
settings: {max_batch_size: 16}
```
From {before.mean_batch} to {mean_batch}.

## Asked
```question
ask: 1 < 2?
answers: ["Yes", "No"]
right: 1
```
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty seconds; after twenty the cap was raised. Each half is a run of a lesson."""
    steps = (Step(0.0, 4.0, Settings(max_batch_size=4)), Step(20.0, settings=Settings(max_batch_size=16)))
    entries = list(entries_of(SyntheticRun(40.0, steps)))
    begun_s = entries[0].at_s
    for name, from_s, to_s in (("Small", 2.0, 19.0), ("Large", 21.0, 38.0)):
        event = Bookmarked(text=name, start_s=begun_s + from_s, end_s=begun_s + to_s)
        at_s = begun_s + to_s + 1.0
        entries.append(Entry(at_s=at_s, event=event))
    entries.sort(key=lambda entry: entry.at_s)
    return write_recording(tmp_path_factory.mktemp("recordings") / "run.bsr", entries, header(model="org/tiny"))


@pytest.fixture(scope="module")
def recording(file: Path) -> Recording:
    return open_recording(file)


@pytest.mark.promise("T15")
@pytest.mark.parametrize(("from_s", "to_s"), [(5.0, 1e9), (9.0, 8.0)])
def test_that_a_stretch_that_cannot_have_come_is_left_out(tmp_path: Path, from_s: float, to_s: float) -> None:
    entries = list(entries_of(SyntheticRun(20.0, (Step(0.0, 4.0, Settings()),))))
    begun_s = entries[0].at_s
    forged = Bookmarked(text="Small", start_s=begun_s + from_s, end_s=begun_s + to_s)
    entries.insert(len(entries) // 2, Entry(at_s=entries[len(entries) // 2].at_s, event=forged))
    read = open_recording(write_recording(tmp_path / "run.bsr", entries, header()))
    assert read.bookmarks == ()
    assert read.damage is not None
    assert "1 of its lines could not be understood" in read.damage


def data_of(page: str) -> dict[str, Any]:
    [found] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    data: dict[str, Any] = json.loads(found)
    return data


def test_that_its_figures_are_those_of_the_window(recording: Recording) -> None:
    data, history = data_of(player_page(recording, "run")), recording.history
    begun_s = history.now_s() - data["end"]
    for place in (40, 100, 150):
        shown = figures(history, begun_s + place * STEP_S)
        for name in ("requests_per_s", "p95_s", "mean_batch", "queue"):
            value = getattr(shown, name)
            assert data["figures"][name][place] == (None if value is None else pytest.approx(value, rel=1e-3, abs=1e-9))


def test_that_it_holds_every_batch_and_request_and_no_two_in_one_place(recording: Recording) -> None:
    data, history = data_of(player_page(recording, "run")), recording.history
    assert len(data["batches"]) == len(history.batches.columns)
    assert len(data["bars"]) == len(history.requests.columns)
    lanes: dict[int, float] = {}
    for came, started, ended, lane, _reason in data["bars"]:
        assert lanes.get(lane, -1.0) <= came
        assert started is None or came <= started + 0.002, "times are rounded to milliseconds"
        lanes[lane] = float("inf") if ended is None else ended
    assert sorted(lanes) == list(range(len(lanes))), "no row is left out"
    assert any(text.startswith("max_batch_size 4 → 16") for _at_s, text in data["marks"])


def test_that_each_time_of_a_request_is_drawn_as_in_the_window(recording: Recording) -> None:
    data, history = data_of(player_page(recording, "run")), recording.history
    begun_s = history.now_s() - data["end"]
    assert [each["name"] for each in data["measures"]] == [each.words for each in MEASURES.values()]
    for drawn, measure in zip(data["measures"], MEASURES.values(), strict=True):
        known = np.isfinite(history.requests.samples[measure.name])
        assert len(drawn["points"]) == np.count_nonzero(known) > 0
        for place in (40, 100, 150):
            shown = values_at(history, begun_s + place * STEP_S, measure)
            assert {name: drawn["lines"][name][place] for name in shown} == {
                name: None if np.isnan(value) else pytest.approx(value, rel=1e-3) for name, value in shown.items()
            }


def test_that_it_asks_nothing_of_a_network(recording: Recording) -> None:
    page = player_page(recording, "run")
    assert "default-src 'none'" in page
    assert not re.search(r"""(src|href|url\(|@import|fetch\(|XMLHttpRequest|https?:)""", page.partition("<body>")[2])


def test_that_what_a_lesson_or_a_file_is_called_is_only_words(recording: Recording) -> None:
    page = player_page(recording, "</script><script>alert(1)</script>")
    assert "<script>alert(1)" not in page


def test_that_a_lesson_tells_beside_the_plots_what_was_seen(recording: Recording) -> None:
    data = data_of(page := lesson_page(parse(LESSON, "caps.md"), recording))
    assert "<h1>On &lt;b&gt;caps&lt;/b&gt;</h1>" in page
    about, small, large, asked = data["steps"]
    assert about[2:] == [None, None]
    assert (small[0], large[0]) == ("Small", "Large")
    assert (small[3] - small[2], large[3] - large[2]) == (pytest.approx(17.0), pytest.approx(17.0))
    seen = re.search(r"Seen: [\d.]+ s in batches of ([\d.]+)\.", small[1])
    assert seen is not None
    assert f"From {seen[1]} to " in large[1]
    assert "1 &lt; 2?" in asked[1]
    assert "<summary>Answer</summary>Yes</details>" in asked[1]


def test_that_the_command_exports_recordings_and_lessons(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lesson, page = file.with_name("caps.md"), tmp_path / "page.html"
    lesson.write_text(LESSON)
    for source in (file, lesson):
        assert export.main([str(source), str(page)]) == 0
        assert "kB, to be opened in a browser" in capsys.readouterr().out
        assert page.read_text().startswith("<!DOCTYPE html>")
        page.unlink()
    assert export.main([str(lesson), str(tmp_path / "table.csv")]) == 2
    assert "is exported as a page" in capsys.readouterr().err
