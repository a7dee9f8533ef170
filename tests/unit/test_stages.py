"""The stages of a start as the user reads them."""

from __future__ import annotations

from gui.session.start_progress import StageLine, StartProgress
from service.messages.life import Stage, StageProgress, Starting

STAGES = (
    Stage(name="ray", title="Start Ray", about_s=4.0),
    Stage(name="fetch", title="Fetch the model"),
    Stage(name="load", title="Load the model", about_s=12.0),
)


class FakeClock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def started(*reports: StageProgress) -> StartProgress:
    progress = StartProgress(clock=FakeClock())
    progress.take(Starting(instance="i", stages=STAGES))
    for report in reports:
        progress.take(report)
    return progress


def test_that_the_clock_of_a_stage_runs_on_between_reports() -> None:
    clock = FakeClock()
    progress = StartProgress(clock=clock)
    progress.take(Starting(instance="i", stages=STAGES))
    clock.now_s += 8.0
    assert progress.lines()[0].detail == "8 s of about 4 s"
    progress.take(StageProgress(name="ray", elapsed_s=9.0))
    clock.now_s += 2.0
    assert progress.summary == "Start Ray: 11 s of about 4 s"
    progress.take(RAY_DONE)
    clock.now_s += 2.0
    assert progress.lines()[0].detail == "4.0 s", "it has ended"


def test_that_a_stage_is_expected_to_take_as_long_as_at_the_last_start() -> None:
    fetched = StageProgress(name="fetch", elapsed_s=30.0, finished=True)
    loaded = StageProgress(name="load", elapsed_s=7.0, finished=True)
    durations_s = started(RAY_DONE, fetched, loaded).durations_s
    assert durations_s == {"ray": 4.0, "load": 7.0}, "the model is fetched once"
    progress = StartProgress(durations_s)
    progress.take(Starting(instance="j", stages=STAGES))
    assert [line.detail for line in progress.lines()][2] == "about 7 s"
    assert progress.lead.endswith("the next start takes about 11 s.")


RAY_DONE = StageProgress(name="ray", elapsed_s=4.04, finished=True)


def test_that_before_any_report_the_first_stage_is_present() -> None:
    assert [line.state for line in started().lines()] == ["present", "ahead", "ahead"]


def test_that_a_finished_stage_says_how_long_it_took() -> None:
    assert started(RAY_DONE).lines()[0] == StageLine("Start Ray", "done", "4.0 s")


def test_that_a_stage_that_counts_bytes_tells_amount_rate_and_time_left() -> None:
    at_first = StageProgress(name="fetch", elapsed_s=0.0, done=3e6, total=93e6, unit="bytes")
    later = StageProgress(name="fetch", elapsed_s=5.0, done=58e6, total=93e6, unit="bytes")
    line = started(RAY_DONE, at_first, later).lines()[1]
    assert line.detail == "58 of 93 MB · 11 MB/s · 3 s left"
    assert line.fraction == 58 / 93


def test_that_what_a_resumed_fetch_found_does_not_count_as_speed() -> None:
    at_first = StageProgress(name="fetch", elapsed_s=0.0, done=80e6, total=93e6, unit="bytes")
    later = StageProgress(name="fetch", elapsed_s=1.0, done=82e6, total=93e6, unit="bytes")
    assert "2.0 MB/s" in started(at_first, later).lines()[1].detail


def test_that_a_stage_that_can_only_be_guessed_never_claims_its_end() -> None:
    late = StageProgress(name="load", elapsed_s=60.0)
    line = started(late).lines()[2]
    assert (line.state, line.fraction, line.detail) == ("present", 0.97, "60 s of about 12 s")


def test_that_stages_ahead_say_about_how_long_they_take() -> None:
    assert started(RAY_DONE).lines()[2] == StageLine("Load the model", "ahead", "about 12 s")


def test_that_a_new_start_forgets_the_one_before() -> None:
    progress = started(RAY_DONE)
    progress.take(Starting(instance="j", stages=STAGES))
    assert progress.lines()[0].state == "present"


def test_that_stages_that_become_others_keep_what_has_ended() -> None:
    progress = started(RAY_DONE, StageProgress(name="fetch", elapsed_s=9.0, done=3e6, total=93e6, unit="bytes"))
    why = "The small model takes the place of the 1.7B one. The hub can't be reached; connect to the network."
    progress.take(Starting(instance="i", stages=(STAGES[0], STAGES[2]), why_model=why))
    assert [line.state for line in progress.lines()] == ["done", "present"]
    taken = "The small model takes the place of the 1.7B one. The log says why."
    assert progress.lead == f"It takes about 16 s. {taken}"


def test_that_the_summary_is_the_present_stage_in_a_line() -> None:
    assert started(RAY_DONE, StageProgress(name="load", elapsed_s=3.0)).summary == "Load the model: 3 s of about 12 s"
    assert StartProgress().summary == "Starting"


def test_that_a_stage_that_counts_says_what_and_its_bar_never_stands_where_time_goes_on() -> None:
    layers = StageProgress(name="load", elapsed_s=3.0, done=15.0, total=30.0, unit="layers")
    graphs = StageProgress(name="load", elapsed_s=9.0, done=8.0, total=32.0, unit="graphs")
    first, second = started(layers).lines()[2], started(layers, graphs).lines()[2]
    assert (first.detail, first.fraction) == ("15 of 30 layers · 3 s", 0.5)
    assert (second.detail, second.fraction) == ("8 of 32 graphs · 9 s", 0.75)
