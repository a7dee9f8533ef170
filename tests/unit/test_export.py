from __future__ import annotations

import csv
import io
from datetime import datetime

import pytest

from service.analysis.observed.history import History
from service.analysis.recording.tables import SUBJECTS, ExportError, Table, as_csv, as_file, as_parquet
from service.messages.load import ClientRequest, ClientTotals, LoadFrame
from service.messages.settings import Settings, SettingsChange, VersionedSettings
from service.messages.telemetry import BatchRecord, RequestRecord, TelemetryFrame

CLOCK = "one"
BEGAN_S = 1000.0
WALL_S = 1_700_000_000.0


class Clock:
    """Both clocks of the machine, moved by hand."""

    now_s = BEGAN_S

    def monotonic(self) -> float:
        return self.now_s

    def wall(self) -> float:
        return WALL_S + self.now_s - BEGAN_S


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def history(clock: Clock) -> History:
    """Two seconds in which one request was answered under version 1, and one is running under version 2."""
    history = History(CLOCK, clock.monotonic, clock.wall)
    old, new = Settings(), Settings(max_batch_size=8)
    prompt = 'say "hi",\nplease'
    sent = ClientRequest(
        id="c1",
        source="fire",
        prompt=prompt,
        max_tokens=4,
        intended_s=BEGAN_S + 0.1,
        sent_s=BEGAN_S + 0.1,
        finished_s=BEGAN_S + 0.6,
        tokens=4,
        new_text=" Grüße, 世界",
        outcome="ok",
    )
    first = request("a", "c1", "done", BEGAN_S + 0.1, "b1", finished_s=BEGAN_S + 0.6)
    before = VersionedSettings(version=1, settings=old)
    history.add_telemetry(TelemetryFrame(number=1, at_s=BEGAN_S, clock=CLOCK, in_force=before))
    history.add_telemetry(telemetry(2, BEGAN_S + 0.7, before, first, batch("b1", 1, BEGAN_S + 0.1)))
    history.add_load(
        LoadFrame(at_s=BEGAN_S + 0.7, clock=CLOCK, pattern=None, totals=ClientTotals(sent=1, ok=1), requests=(sent,))
    )
    change = SettingsChange(version=2, previous=old, settings=new, requested_s=BEGAN_S + 1, in_force_s=BEGAN_S + 1.002)
    second = request("b", None, "running", BEGAN_S + 1.1, "b2")
    history.add_telemetry(
        telemetry(
            3,
            BEGAN_S + 2,
            VersionedSettings(version=2, settings=new),
            second,
            batch("b2", 2, BEGAN_S + 1.1),
            change,
        )
    )
    clock.now_s = BEGAN_S + 2
    return history


def request(
    name: str, client_id: str | None, state: str, at_s: float, batch: str, finished_s: float | None = None
) -> RequestRecord:
    return RequestRecord(
        id=name,
        client_id=client_id,
        replica="r1",
        state=state,  # type: ignore[arg-type]
        prompt_tokens=3,
        max_tokens=4,
        completion_tokens=4 if finished_s else 1,
        batch=batch,
        received_s=at_s,
        enqueued_s=at_s,
        formed_s=at_s,
        started_s=at_s,
        first_token_s=at_s + 0.2 if finished_s else None,
        finished_s=finished_s,
        longest_gap_s=0.125 if finished_s else None,
        longest_gap_at_s=at_s + 0.4 if finished_s else None,
    )


def batch(name: str, version: int, formed_s: float) -> BatchRecord:
    return BatchRecord(
        id=name,
        number=version,
        replica="r1",
        settings_version=version,
        formation="late",
        size=1,
        cap=16,
        release_reason="timeout",
        formed_s=formed_s,
        started_s=formed_s,
    )


def telemetry(
    number: int,
    at_s: float,
    in_force: VersionedSettings,
    record: RequestRecord,
    formed: BatchRecord,
    change: SettingsChange | None = None,
) -> TelemetryFrame:
    changes = (change,) if change else ()
    return TelemetryFrame(
        number=number,
        at_s=at_s,
        clock=CLOCK,
        in_force=in_force,
        requests=(record,),
        batches=(formed,),
        changes=changes,
    )


def parsed(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode("utf-8"), newline="")))


def test_that_each_request_is_a_line_with_its_words_and_times(history: History) -> None:
    first, second = parsed(as_csv(SUBJECTS["requests"].table(history.requests.rows(), history.wall_time)))

    assert first["client_id"] == "c1"
    assert first["state"] == "done"
    assert first["prompt"] == 'say "hi",\nplease'
    assert first["completion"] == " Grüße, 世界"
    assert first["latency_s"] == "0.500000"
    assert (first["ttft_s"], first["tpot_s"], first["longest_gap_s"]) == ("0.200000", "0.100000", "0.125000")
    assert datetime.fromisoformat(first["arrived_at"]).timestamp() == pytest.approx(WALL_S + 0.1, abs=0.01)
    assert second["state"] == "running"
    assert second["finished_s"] == second["latency_s"] == ""
    assert second["ttft_s"] == second["tpot_s"] == second["longest_gap_s"] == ""


def test_that_a_lone_surrogate_in_a_text_does_not_break_the_file(history: History) -> None:
    from dataclasses import replace

    row = replace(history.requests.rows()[0], text="\ud800")

    assert parsed(as_csv(SUBJECTS["requests"].table([row], history.wall_time)))[0]["completion"] == "?"


def test_that_figures_are_told_every_second_under_the_settings_of_that_time(history: History) -> None:
    table = table_of("figures", history)
    lines = parsed(as_csv(table))

    assert [row[1] for row in table.rows] == [BEGAN_S, BEGAN_S + 1, BEGAN_S + 2]
    assert [line["settings_version"] for line in lines] == ["", "1", "2"]
    assert [line["max_batch_size"] for line in lines] == ["", "16", "8"]
    assert [line["p50_s"] for line in lines] == ["", "0.5", ""]


def test_that_each_batch_is_a_line_with_its_reason_and_what_its_members_waited(history: History) -> None:
    first, second = parsed(as_csv(table_of("batches", history)))

    assert (first["id"], first["replica"], first["release_reason"], first["size"]) == ("b1", "r1", "timeout", "1")
    assert first["longest_wait_s"] == "0.000000"
    assert second["finished_s"] == ""


@pytest.mark.parametrize("subject", SUBJECTS)
def test_that_without_data_only_the_heads_are_written(subject: str) -> None:
    table = table_of(subject, History(CLOCK))

    assert as_csv(table).decode().strip() == ",".join(table.columns)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_that_parquet_holds_the_same_as_csv_with_types(history: History, subject: str) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    table = table_of(subject, history)

    read = parquet.read_table(io.BytesIO(as_parquet(table)))

    assert read.column_names == list(table.columns)
    assert read.num_rows == len(table.rows)
    for name, kind in table.columns.items():
        place = list(table.columns).index(name)
        known = [row[place] is not None for row in table.rows]
        assert [value is not None for value in read[name].to_pylist()] == known
        if kind in ("seconds", "number"):
            assert read[name].to_pylist() == [row[place] for row in table.rows]
        if kind == "moment":
            assert [round(at.timestamp(), 3) for at in read[name].to_pylist()] == [
                round(row[place], 3)  # type: ignore[arg-type]
                for row in table.rows
            ]


def test_that_without_its_library_parquet_says_how_to_get_it(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.analysis.recording.tables.find_spec", lambda _name: None)

    with pytest.raises(ExportError, match="pip install pyarrow"):
        as_file(table_of("requests", history), ".parquet")


def test_that_a_file_of_another_kind_is_refused(history: History) -> None:
    with pytest.raises(ExportError, match=r"must end in \.csv or \.parquet, not in \.xlsx"):
        as_file(table_of("requests", history), ".xlsx")


def table_of(subject: str, history: History) -> Table:
    way = SUBJECTS[subject]
    return way.table(way.look(history, way.items(history)), history.wall_time)
