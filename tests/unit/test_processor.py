"""How much processor the engine asked for and got: a figure, and a line of `explain`."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from service.__main__ import main
from service.analysis.observed.processor import least_processor_share, processor_share
from service.analysis.observed.register import REGISTER
from service.analysis.observed.statistics import figures
from service.messages.settings import Settings
from service.messages.telemetry import TelemetryFrame
from tests.recorded import entries_of, write_recording
from tests.synthetic_run import HEALTHY, Slowed, Step, SyntheticRun, filled_history

STEPS = (Step(0.0, 2.0, Settings()),)
RUN = SyntheticRun(40.0, STEPS, slowed=(Slowed(20.0, 30.0, 3.0),), measures_processor=True)
UNMEASURED = SyntheticRun(20.0, STEPS)


@pytest.mark.parametrize(("until_s", "share"), [(20.0, HEALTHY), (29.9, HEALTHY / 3), (40.0, HEALTHY)])
def test_that_the_figure_is_what_the_engine_got_of_what_it_asked_for(until_s: float, share: float) -> None:
    history, _ = filled_history(RUN, until_s)
    now = figures(history)
    assert now.processor_share == pytest.approx(share, abs=0.03)
    assert REGISTER["processor_share"].with_unit(now.processor_share) == f"{100 * (now.processor_share or 0.0):.0f} %"


def test_that_the_figure_is_a_dash_where_the_system_does_not_report_it() -> None:
    now = figures(filled_history(UNMEASURED)[0])
    assert now.processor_share is None
    assert REGISTER["processor_share"].with_unit(now.processor_share) == "–"


def test_that_a_replica_that_begins_anew_begins_to_count_anew() -> None:
    history, clock = filled_history(RUN, 20.0)
    frame = next(frame for frame, _ in RUN.frames() if frame.at_s >= clock.now_s + 1.0)
    (status,) = frame.replicas
    use = msgspec.structs.replace(status.engine_processor, got_s=0.0, waited_s=100.0)
    clock.now_s = frame.at_s
    renewed = msgspec.structs.replace(status, pid=2, engine_processor=use)
    history.add_telemetry(msgspec.structs.replace(frame, replicas=(renewed,)))
    assert figures(history).processor_share == pytest.approx(HEALTHY, abs=0.01)


def test_that_a_frame_of_an_older_service_is_read_and_says_nothing_of_the_processor() -> None:
    frame, _ = next(RUN.frames())
    told = msgspec.to_builtins(frame)
    for status in told["replicas"]:
        del status["engine_processor"]
    (status,) = msgspec.convert(told, TelemetryFrame).replicas
    assert status.engine_processor is None


def test_that_explain_says_how_much_the_engine_got_and_when_it_was_least(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_recording(tmp_path / "run.bsr", entries_of(RUN))
    history, clock = filled_history(RUN)
    begin_s = clock.now_s - 40.0
    got = f"{100 * (processor_share(history, begin_s, clock.now_s) or 0.0):.0f} %"
    least = f"{100 * (least_processor_share(history, begin_s, clock.now_s) or 0.0):.0f} %"
    assert main(["explain", str(path), "--json", str(tmp_path / "out.json")]) == 0
    assert f"The engine got {got} of the processor time that it asked for, and {least} in" in capsys.readouterr().out
    told = msgspec.json.decode((tmp_path / "out.json").read_bytes())
    assert told["least_processor_share"] < told["processor_share"] < HEALTHY

    unknown = write_recording(tmp_path / "unknown.bsr", entries_of(UNMEASURED))
    assert main(["explain", str(unknown)]) == 0
    assert "processor" not in capsys.readouterr().out
