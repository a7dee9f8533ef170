"""Two machines' clocks are reconciled from the requests between them, and the error of that is known."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.analysis.observed.history import History
from service.analysis.observed.stages import STAGES, durations, marks
from service.messages.clock import ClockOffset
from service.messages.load import ClientRequest, ClientTotals, LoadFrame
from service.messages.settings import Settings, VersionedSettings
from service.messages.telemetry import RequestRecord, TelemetryFrame
from tests.synthetic_run import FakeClock

pytestmark = pytest.mark.promise("T21")

IN_FORCE = VersionedSettings(version=1, settings=Settings())
PAIRS = st.fixed_dictionaries(
    {
        "offset_s": st.floats(-1e6, 1e6),
        "drift": st.floats(-1e-4, 1e-4),
        "way_s": st.floats(0.0001, 0.2),
        "seed": st.integers(0, 2**32),
    }
)


@dataclass(frozen=True)
class TwoMachines:
    """A sender whose clock is off and drifts, and a way between the two that takes `way_s` and often longer."""

    offset_s: float
    drift: float
    way_s: float
    seed: int

    def sender_s(self, service_s: float) -> float:
        return (service_s - self.offset_s) * (1 + self.drift)

    def requests(self, count: int = 40) -> list[tuple[float, ...]]:
        """Intended, sent, received, finished and heard of each, on the service's clock."""
        draw = random.Random(self.seed)
        told = []
        for number in range(count):
            intended_s = 1000.0 + number * 2.0
            sent_s = intended_s + draw.random() * 0.01
            received_s = sent_s + self.way_s * (1 + draw.expovariate(1.0))
            finished_s = received_s + draw.uniform(0.05, 3.0)
            told.append((intended_s, sent_s, received_s, finished_s, finished_s + self.way_s * (1 + draw.random())))
        return told


def heard(machines: TwoMachines) -> History:
    """What a window on the sender's machine knows in the end."""
    history = History("sender's", clock := FakeClock())
    for number, (intended_s, sent_s, received_s, finished_s, heard_s) in enumerate(machines.requests(), start=1):
        clock.now_s = machines.sender_s(heard_s + 0.05)
        record = RequestRecord(
            id=f"q{number}",
            client_id=f"c{number}",
            replica="r1",
            state="done",
            prompt_tokens=5,
            max_tokens=24,
            received_s=received_s,
            enqueued_s=received_s,
            finished_s=finished_s,
        )
        asked = ClientRequest(
            id=f"c{number}",
            source="load",
            prompt="",
            max_tokens=24,
            intended_s=machines.sender_s(intended_s),
            sent_s=machines.sender_s(sent_s),
            finished_s=machines.sender_s(heard_s),
            outcome="ok",
        )
        frame = TelemetryFrame(number=number, at_s=finished_s, clock="service's", in_force=IN_FORCE, requests=(record,))
        history.add_telemetry(frame)
        history.add_load(
            LoadFrame(at_s=clock.now_s, clock="sender's", pattern=None, totals=ClientTotals(), requests=(asked,))
        )
    return history


@given(PAIRS)
@settings(max_examples=60, deadline=None)
def test_that_the_stages_add_up_across_machines_whatever_their_clocks(pair: dict[str, float]) -> None:
    history = heard(TwoMachines(**pair))
    rows = history.requests.rows()
    spans = durations(marks(history.requests.columns, np.array([row.key for row in rows])))
    latencies = np.array([row.latency_s for row in rows])
    np.testing.assert_allclose(spans.sum(axis=1), latencies, rtol=0.01)
    assert (spans >= 0).all()


@given(PAIRS)
@settings(max_examples=60, deadline=None)
def test_that_no_stage_is_wrong_by_more_than_the_stated_error(pair: dict[str, float]) -> None:
    machines = TwoMachines(**pair)
    history = heard(machines)
    error_s = history.sender_clock.error_s
    assert error_s is not None
    assert error_s <= 2 * machines.way_s + 0.02, "what the ways allow, and two clocks may drift"
    (last,) = durations(marks(history.requests.columns, np.array([history.requests.rows()[-1].key])))
    _, sent_s, received_s, finished_s, heard_s = machines.requests()[-1]
    names = [stage.name for stage in STAGES]
    rounding_s = 1e-3  # of a latency of seconds on a clock that drifts by a ten-thousandth
    assert last[names.index("network_in")] == pytest.approx(received_s - sent_s, abs=error_s + rounding_s)
    assert last[names.index("delivery")] == pytest.approx(heard_s - finished_s, abs=error_s + rounding_s)


def test_that_one_machine_has_one_clock_without_error() -> None:
    offset = ClockOffset("here")
    offset.note("here", at_s=5.0, received_s=5.4)
    assert (offset.offset_s, offset.error_s) == (0.0, 0.0)


def test_that_messages_one_way_leave_the_error_open() -> None:
    offset = ClockOffset("here")
    offset.note("there", at_s=5.0, received_s=105.4)
    assert offset.error_s is None
    assert offset.to_ours(5.0) == pytest.approx(105.4)


def test_that_a_clock_that_was_set_is_believed_anew() -> None:
    offset = ClockOffset("here")
    offset.note_clock("there")
    offset.note_exchange(asked_s=0.0, received_s=100.1, answered_s=101.0, heard_s=1.1)
    assert offset.offset_s == pytest.approx(100.0, abs=0.2)
    offset.note_exchange(asked_s=3600.0, received_s=110.1, answered_s=111.0, heard_s=3601.1)
    assert offset.offset_s == pytest.approx(-3490.0, abs=0.2)
