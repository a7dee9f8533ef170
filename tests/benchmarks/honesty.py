"""Whether everything that the window says is true and agrees, in each painted frame, while much happens.

python -m tests.benchmarks.honesty [--seconds S] [--only ACT [ACT ...]] [--pictures FOLDER]

The real window, offscreen, starts the real service and acts out the scenes of `ACTS`, `--seconds` each: a calm load,
settings that do not carry it and others that work its backlog off, each predicted, an overload of small batches and of
large ones, its backlog, a change of formation, 16 users, one and two busy programs beside them, a replica that stands
still and goes on, a frozen window, the end of the load, and the recording of it all, played. After each frame the texts
are read as a user reads them, and held against each other, against their bounds and against the service's ledger. It
prints each claim with the number of frames in which it was checked and in which it was untrue, and ends with 0 if none
was.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import psutil
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication, QLabel

from gui.app import Batchscope
from gui.control.arguments import Arguments
from gui.control.foresight import ANEW_S
from gui.session.lifecycle import LifeCycle
from gui.session.processes.service import ServiceStart
from gui.widgets.segmented import Segmented
from service.analysis.findings.facts import FULL
from service.analysis.predict.predict import HORIZON_S
from service.messages.load import ClosedLoop, Pattern, Poisson
from service.messages.options import ServiceOptions
from service.messages.settings import Settings
from service.messages.telemetry import Ledger
from service.messages.text import UNKNOWN
from tests.benchmarks.beside_other_work import BusyPrograms

SIZE: Final = (1440, 900)
TOKENS: Final = 24
NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")
LOST: Final = re.compile(r"\br\d+ lost\b|replica stopped|replica .* has ended", re.IGNORECASE)
OF_OLDER: Final = re.compile(r"\d+ requests? of the settings before")
LONGEST_DRAIN_S: Final = 120.0
ABOUT: Final = 1.25  # between two estimates, which are made at different moments
SHOWN_WITHIN_S: Final = 0.5  # figures of a recording, after it was played
LATE_S: Final = 2.5  # what is counted down once a second and rounded to seconds, beside busy programs

Untruth = Iterator[str]


@dataclass(frozen=True)
class Act:
    """A scene: settings and load that hold in it, and what else happens.

    Attributes:
        busy: programs that compute all the time beside the service.
        stops_replica: a replica stands still for half of the scene.
        freezes: the window is frozen.
        drains: the scene lasts until every request has ended.
    """

    name: str
    settings: dict[str, object]
    load: Pattern | None
    busy: int = 0
    stops_replica: bool = False
    freezes: bool = False
    drains: bool = False


CALM: Final = Poisson(rate_per_s=2.0)
MUCH: Final = Poisson(rate_per_s=60.0)
ACTS: Final = (
    Act("calm", {}, CALM),
    Act("too slow", {"max_batch_size": 1}, CALM),
    Act("worked off", {"max_batch_size": 16}, CALM),
    Act("overload", {"max_batch_size": 2, "max_queued_requests": 40}, MUCH),
    Act("large batches", {"max_batch_size": 48, "max_queued_requests": 128}, MUCH),
    Act("backlog", {"max_batch_size": 16, "max_queued_requests": 256}, CALM),
    Act("early", {"formation": "early"}, Poisson(rate_per_s=4.0)),
    Act("continuous", {"formation": "continuous"}, ClosedLoop(users=16)),
    Act("one busy program", {}, ClosedLoop(users=16), busy=1),
    Act("two busy programs", {}, ClosedLoop(users=16), busy=2),
    Act("standstill", {"formation": "late"}, Poisson(rate_per_s=3.0), stops_replica=True),
    Act("frozen", {}, Poisson(rate_per_s=3.0), freezes=True),
    Act("end", {}, None, drains=True),
)


OF_THE_ROW: Final = {
    "queue": r"(\d+) wait",
    "failed_share": r"^([\d.<]+) % (?:failed|refused)",
    "p95_s": r"(?<!then )p95 ([\d.]+) s",
    "requests_per_s": r"^All well: ([\d.]+) ",
}
"""What of a verdict is a figure of the row, by its key."""

OF_THE_CAPACITY: Final = re.compile(
    r"^(?:All well: )?[\d.]+ of (at least )?([\d.]+) requests/s(?! .*\bis full)"  # nor what a change would give
)
"""What a verdict, or the finding of the load's share, says of the capacity."""
OVERLOADED: Final = re.compile(r"^More arrives .* of ([\d.]+)")


class Reading:
    """What the window says at one moment, as texts and as numbers."""

    def __init__(self, batchscope: Batchscope) -> None:
        self._window = batchscope.window
        plots = batchscope.composition.plots
        self.queue = plots.queue_depth.header.readout
        self.latency = plots.latency.header.readout
        self.throughput = plots.throughput.header.readout
        self.capacity = plots.throughput.drawn_capacity
        self.batch_size = plots.batch_size.header.readout
        self.activity = self._window.status.activity.text()
        self.head = [each.text() for each in self._window.batching.findChildren(QLabel) if each.isVisible()]
        self.verdict = self._window.verdict.text
        filters = self._window.requests.findChildren(Segmented)[0]
        tips = (filters.button(name).toolTip() for name in ("all", "waiting", "running", "done"))
        self.counts = dict(zip(("all", "waiting", "running", "done"), map(first_number, tips), strict=True))

    def figure(self, key: str) -> str:
        """The number of a figure, without its unit."""
        return self._window.figures.figure(key).text.split(" ")[0]

    def below(self, key: str) -> str:
        """The line below a figure."""
        return self._window.figures.figure(key).before

    def value(self, key: str) -> float | None:
        return number(self.figure(key))

    def sentences(self) -> list[str]:
        """What the window says in words: labels, the status bar, the rows of the table."""
        said = [each.text() for each in self._window.findChildren(QLabel) if each.isVisible()]
        return [*said, self.activity, *(row.error or "" for row in self._window.requests.model.rows())]


def number(text: str) -> float | None:
    return None if text in ("", UNKNOWN) else float(text)


def first_number(text: str) -> float:
    found = NUMBER.search(text)
    return float(found.group()) if found else 0.0


class Claims:
    """What has to be true in each frame; a claim yields a sentence for each untruth that it finds."""

    def __init__(self, batchscope: Batchscope) -> None:
        self._batchscope = batchscope
        self._history = batchscope.composition.history
        self._frozen: tuple[str, ...] | None = (
            None  # the figures of a place that stands still, from when on they are shown
        )
        self._place_s = self._stands_since_s = 0.0
        self._agreed_s = 0.0  # when a predicted rate was about the capacity
        self._horizons: dict[Settings, tuple[float, float]] = {}  # when a queue has the predicted figures; said since

    def all(self) -> dict[str, Callable[[Reading], Untruth]]:
        return {
            "queue: figure = legend = table": self._queue_agrees,
            "running: legend = table": self._running_agrees,
            "the verdict's numbers are those of the row": self._verdict_agrees,
            "requests wait: sentences = figure": self._sentences_agree,
            "nothing of older settings is left where they have drained": self._drained_is_drained,
            "settings: the version in the panel's head = the status bar's": self._version_agrees,
            "capacity: verdict = finding = line; below its cap at least": self._capacity_agrees,
            "requests/s, tokens/s: figure = legend": self._throughput_agrees,
            "p50, p95, p99: figure = legend, in order": self._latency_agrees,
            "batches: within their cap": self._batches_within_cap,
            "running: within its places": self._running_within_places,
            "vs batch 1: explained where it exceeds the batch": self._gain_is_explained,
            "predicted p95: row = words in the plot, within its band and its course": self._prediction_agrees,
            "predicted: the horizon comes nearer, or is anew": self._horizon_comes_nearer,
            "predicted requests/s of an overload: about the capacity, or anew": self._overload_is_served_at_capacity,
            "no replica is called lost while it lives": self._no_living_replica_is_lost,
            "frozen figures stand still": self._frozen_figures_stand_still,
            "the service's ledger balances": self._ledger_balances,
            "the load generator's ledger balances": self._load_balances,
        }

    def _queue_agrees(self, reading: Reading) -> Untruth:
        if reading.value("queue") is None or "waiting" not in reading.queue:
            return
        legend = first_number(reading.queue["waiting"]) + first_number(reading.queue["formed"])
        said = {"figure": reading.value("queue"), "legend": legend}
        if not self._is_past:  # the table shows the present
            said["table"] = reading.counts["waiting"]
        if len(set(said.values())) > 1:
            yield f"{said}"

    def _running_agrees(self, reading: Reading) -> Untruth:
        if "running" in reading.queue and not self._is_past:
            said = {"legend": first_number(reading.queue["running"]), "table": reading.counts["running"]}
            if len(set(said.values())) > 1:
                yield f"{said}"

    def _verdict_agrees(self, reading: Reading) -> Untruth:
        for key, pattern in OF_THE_ROW.items():
            found = re.search(pattern, reading.verdict)
            if found is not None and found[1] != reading.figure(key):
                yield f"{reading.verdict} beside {key} {reading.figure(key)}"

    def _sentences_agree(self, reading: Reading) -> Untruth:
        for sentence in reading.sentences():
            found = re.search(r"(\d+) requests? waits?\b", sentence)
            if found is not None and found[1] != reading.figure("queue"):
                yield f"{sentence} beside {reading.figure('queue')}"

    def _drained_is_drained(self, reading: Reading) -> Untruth:
        said = reading.sentences()
        drained = [each for each in said if re.search(r"^v\d+ .*drained", each)]
        left = [*(each for each in said if OF_OLDER.search(each)), *OF_OLDER.findall(reading.verdict)]
        if drained and left:
            yield f"{drained[0]!r} beside {left[0]!r}"

    def _version_agrees(self, reading: Reading) -> Untruth:
        heads, facts = (re.compile(pattern) for pattern in (r"^v(\d+)\b", r"^settings v(\d+)$"))
        head = next(filter(None, map(heads.match, reading.head)), None)
        fact = next(filter(None, map(facts.match, reading.sentences())), None)
        if head is not None and fact is not None and head[1] != fact[1]:
            yield f"{head.string!r} beside {fact.string!r}"

    def _capacity_agrees(self, reading: Reading) -> Untruth:
        line = reading.capacity
        said = {} if line is None else {line.levels[-1].words: line.levels[-1].words}
        for sentence in (reading.verdict, *reading.sentences()):
            if found := OF_THE_CAPACITY.search(sentence):
                said[sentence] = f"capacity {'≥ ' if found[1] else ''}{found[2]}"
            elif found := OVERLOADED.search(sentence):
                said[sentence] = f"capacity {found[1]}"
        if len(set(said.values())) > 1:
            yield f"{list(said)}"
        if line is not None and line.seen.is_full:
            largest = self._history.batches.columns["size"].max(initial=0)
            if largest < FULL * line.seen.size:
                yield f"{line.levels[-1].words}, and no batch had more than {largest} of {line.seen.size}"

    def _throughput_agrees(self, reading: Reading) -> Untruth:
        names = {"requests_per_s": "requests/s", "tokens_per_s": f"{self._history.unit}/s"}
        for key, name in names.items():
            if name in reading.throughput and reading.figure(key) != reading.throughput[name]:
                yield f"{name}: figure {reading.figure(key)}, legend {reading.throughput[name]}"

    def _latency_agrees(self, reading: Reading) -> Untruth:
        for name in ("p50", "p95", "p99"):
            if name in reading.latency and reading.figure(f"{name}_s") != reading.latency[name].split(" ")[0]:
                yield f"{name}: figure {reading.figure(f'{name}_s')}, legend {reading.latency[name]}"
        known = [value for name in ("p50_s", "p95_s", "p99_s") if (value := reading.value(name)) is not None]
        if known != sorted(known):
            yield f"out of order: {known}"

    def _batches_within_cap(self, reading: Reading) -> Untruth:
        columns = self._history.batches.columns
        beyond = int((columns["size"] > columns["cap"]).sum())
        if beyond:
            yield f"{beyond} batches are larger than their cap"
        mean, caps = reading.value("mean_batch"), columns["cap"]
        if mean is not None and len(caps) and mean > caps.max() * max(len(self._history.replicas), 1):
            yield f"mean batch {mean}, cap {caps.max()}"

    def _running_within_places(self, reading: Reading) -> Untruth:
        caps = self._history.batches.columns["cap"]
        caps = caps if self._batchscope.composition.recordings.is_viewing else caps[-50:]  # of a recording any is shown
        if "running" in reading.queue and len(caps):
            running, most = first_number(reading.queue["running"]), caps.max() * max(len(self._history.replicas), 1)
            if running > most:
                yield f"{running:.0f} run in {most} places"

    def _gain_is_explained(self, reading: Reading) -> Untruth:
        gain, mean = reading.value("speedup_over_batch_1"), reading.value("mean_batch")
        tip = self._batchscope.window.figures.figure("speedup_over_batch_1").toolTip()
        if gain is not None and mean is not None and gain > mean and "exceeds" not in tip:
            yield f"{gain} times at a mean batch of {mean}"

    def _prediction_agrees(self, reading: Reading) -> Untruth:
        row, levels = reading.below("p95_s"), self._batchscope.composition.plots.latency.ghost
        level = next((each for each in levels if each.words is not None), None)
        is_predicted = row.startswith(("then ", "in ", "later ")) and not row.endswith(UNKNOWN)
        if is_predicted != (level is not None):
            yield f"row {row!r}, plot {level}"
        if level is None or level.words is None:
            return
        said, band = level.words
        if number(row.split(" ")[-1]) != first_number(said.removeprefix("p95 ")):
            yield f"row {row!r}, plot {said!r}"
        if not level.low <= level.value <= level.high:
            yield f"{said} lies outside of {band}"
        if level.course and not (level.course[-1].low <= level.high and level.course[-1].high >= level.low):
            yield f"{said}, {band}, but the course ends at {level.course[-1]}"

    def _horizon_comes_nearer(self, reading: Reading) -> Untruth:
        row, now_s = reading.below("p95_s"), self._history.now_s()
        prediction = self._batchscope.window.figures.prediction
        if prediction is None or not row.startswith("in "):
            return
        left_s = first_number(row)
        horizon_s, since_s = self._horizons.setdefault(prediction.settings, (now_s + left_s, now_s))
        if abs(now_s + left_s - horizon_s) <= LATE_S:
            return
        if left_s >= HORIZON_S - LATE_S and now_s - since_s >= ANEW_S - LATE_S:  # it was predicted anew
            self._horizons[prediction.settings] = now_s + left_s, now_s
        else:
            yield f"{row!r}, {horizon_s - now_s:.1f} s before, said for {now_s - since_s:.1f} s"

    def _overload_is_served_at_capacity(self, reading: Reading) -> Untruth:
        prediction, in_force = self._batchscope.window.figures.prediction, self._history.in_force
        row, line, now_s = reading.below("requests_per_s"), reading.capacity, self._history.now_s()
        is_in_force = prediction is not None and in_force is not None and in_force.settings == prediction.settings
        if not is_in_force or not prediction.saturated or line is None or row.endswith(UNKNOWN):
            self._agreed_s = now_s
            return
        is_of_these = line.seen.is_full and line.seen.size == prediction.settings.max_batch_size
        if not is_of_these or 1 / ABOUT <= number(row.split(" ")[-1]) / line.levels[-1].per_s <= ABOUT:
            self._agreed_s = now_s
        elif now_s - self._agreed_s > ANEW_S:  # what the first batches show is predicted anew by then
            yield f"{row!r} beside {line.levels[-1].words} for {now_s - self._agreed_s:.1f} s"

    def _no_living_replica_is_lost(self, reading: Reading) -> Untruth:
        if self._batchscope.composition.session.state is not LifeCycle.RUNNING:
            return
        if all(psutil.pid_exists(replica.pid) for replica in self._history.replicas):
            yield from dict.fromkeys(said for said in reading.sentences() if LOST.search(said))
            yield from (outage.text for outage in self._history.outages if outage.text.endswith(" lost"))

    def _frozen_figures_stand_still(self, reading: Reading) -> Untruth:
        composition = self._batchscope.composition
        place_s, now_s = composition.plots.view_end_s(), time.monotonic()
        is_moving = composition.plots.is_live or composition.recordings.is_playing
        if is_moving or place_s != self._place_s:
            self._place_s, self._stands_since_s, self._frozen = place_s, now_s, None
        shown_after_s = SHOWN_WITHIN_S if composition.recordings.is_viewing else 0.0
        if not is_moving and now_s - self._stands_since_s >= shown_after_s:
            keys = ("requests_per_s", "tokens_per_s", "p50_s", "p95_s", "p99_s", "mean_batch", "queue")
            shown = tuple(reading.figure(key) for key in keys)
            if self._frozen is not None and shown != self._frozen:
                yield f"{self._frozen} became {shown}"
            self._frozen = shown

    def _ledger_balances(self, _reading: Reading) -> Untruth:
        for replica in self._history.replicas:
            ledger = replica.ledger
            ended = ledger.completed + ledger.failed + ledger.cancelled
            held = replica.waiting + replica.formed + replica.running
            if ledger.received != ledger.refused + ledger.admitted or ledger.admitted != ended + held:
                yield f"{replica.replica}: {ledger}, holds {held}"

    def _load_balances(self, _reading: Reading) -> Untruth:
        load = self._history.load
        if load is not None:
            t = load.totals
            if t.sent != t.ok + t.refused + t.failed + t.cancelled + t.outstanding:
                yield f"{t}"

    @property
    def _is_past(self) -> bool:
        return not self._batchscope.composition.plots.is_live


class Play:
    """Acts out the scenes in the window's own event loop and counts what is untrue."""

    def __init__(self, batchscope: Batchscope, arguments: argparse.Namespace) -> None:
        self._batchscope = batchscope
        self._arguments = arguments
        self._busy = BusyPrograms()
        self._acts = [act for act in ACTS if not arguments.only or act.name in arguments.only]
        self._act: Act | None = None
        self._claims: dict[str, Callable[[Reading], Untruth]] = {}
        self._stopped: psutil.Process | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="honesty-"))
        self.checked: Counter[str] = Counter()
        self.untrue: Counter[tuple[str, str]] = Counter()
        self.examples: dict[tuple[str, str], str] = {}
        self.has_ended = False

    def start(self) -> None:
        composition = self._batchscope.composition
        self._claims = Claims(self._batchscope).all()
        composition.session.life_cycle_changed.connect(self._on_life_cycle_changed)
        composition.frame_clock.painted.connect(self._check)
        composition.start_service()

    def _on_life_cycle_changed(self, state: LifeCycle) -> None:
        if state is LifeCycle.RUNNING:
            self._next()
        elif state is LifeCycle.FAILED:
            print("the service failed", file=sys.stderr)
            self._batchscope.close()
        elif state is LifeCycle.NOT_STARTED and not self._acts:
            self._show_recording()

    def _next(self) -> None:
        if not self._acts:
            self._after_all()
            return
        self._act = act = self._acts.pop(0)
        composition, window = self._batchscope.composition, self._batchscope.window
        composition.set_frozen(act.freezes)
        self._busy.become(act.busy)
        if act.settings:
            in_force = composition.history.in_force
            if in_force is not None:  # as the controls say it, for a prediction
                window.batching.considered.emit(in_force.settings.revised(act.settings), True)
            composition.session.change_settings(act.settings)
        pattern = None if composition.history.load is None else composition.history.load.pattern
        if act.load is None:
            composition.session.stop_load()
        elif act.load != pattern:
            window.load.set_load(act.load, TOKENS)
            if pattern is None:
                window.load.toggle()
            else:
                window.load.load_wanted.emit(window.load.pattern, *window.load.lengths)
        if act.stops_replica:
            self._stop_replica()
        seconds = LONGEST_DRAIN_S if act.drains else self._arguments.seconds
        self._until = QTimer(composition, singleShot=True, interval=round(seconds * 1e3))
        self._until.timeout.connect(self._end_act)
        self._until.start()

    def _stop_replica(self) -> None:
        replicas = self._batchscope.composition.history.replicas
        self._stopped = psutil.Process(replicas[0].pid)
        self._stopped.send_signal(signal.SIGSTOP)
        QTimer.singleShot(round(self._arguments.seconds * 500), self._let_go_on)

    def _let_go_on(self) -> None:
        if self._stopped is not None:
            self._stopped.send_signal(signal.SIGCONT)
            self._stopped = None

    def _end_act(self) -> None:
        assert self._act is not None
        self._until.stop()
        if self._arguments.pictures is not None:
            self._batchscope.window.grab().save(str(self._arguments.pictures / f"{self._act.name}.png"))
        if self._act.drains:
            self._hold_against_ledger()
        self._act = None
        self._next()

    def _hold_against_ledger(self) -> None:
        """At rest the table's counts are those of the service's ledger."""
        reading, ledgers = Reading(self._batchscope), self._ledgers
        said = {"all": reading.counts["all"], "done": reading.counts["done"]}
        counted = {"all": sum(each.received for each in ledgers), "done": sum(each.completed for each in ledgers)}
        self._count("at rest: table = ledger", [] if said == counted else [f"table {said}, ledger {counted}"])

    def _after_all(self) -> None:
        self._busy.become(0)
        path = self._folder / "all.batchscope"
        self._path = path
        recorder = self._batchscope.composition.recorder
        recorder.written.connect(self._batchscope.composition.session.stop)
        recorder.save(path)

    def _show_recording(self) -> None:
        self._act = Act("recording", {}, None)
        composition = self._batchscope.composition
        composition.recordings.changed.connect(self._on_recording_shown)
        composition.recordings.open(self._path)

    def _on_recording_shown(self) -> None:
        recordings = self._batchscope.composition.recordings
        if recordings.is_viewing:
            speeds = next(each for each in recordings.bar.findChildren(Segmented) if each.accessibleName() == "Speed")
            speeds.button("20").click()
            recordings.play_or_pause()  # from its beginning
            QTimer.singleShot(round(self._arguments.seconds * 1e3), self._end)

    def _end(self) -> None:
        if self._arguments.pictures is not None:
            self._batchscope.window.grab().save(str(self._arguments.pictures / "recording.png"))
        self.has_ended = True
        self._batchscope.close()

    def _check(self) -> None:
        if self._act is None:
            return
        if self._act.drains and self._is_at_rest():
            self._end_act()
            return
        reading = Reading(self._batchscope)
        for claim, find in self._claims.items():
            self._count(claim, list(find(reading)))

    def _count(self, claim: str, found: Sequence[str]) -> None:
        assert self._act is not None
        self.checked[claim] += 1
        if found:
            self.untrue[claim, self._act.name] += 1
            self.examples.setdefault((claim, self._act.name), found[0])

    def _is_at_rest(self) -> bool:
        """Whether nothing is under way, neither by the table nor by the ledger that the service has reported last."""
        load = self._batchscope.composition.history.load
        queue = Reading(self._batchscope).counts
        is_over = load is not None and load.pattern is None and not load.totals.outstanding
        return is_over and not queue["waiting"] and not queue["running"] and not any(map(_held, self._ledgers))

    @property
    def _ledgers(self) -> list[Ledger]:
        return [replica.ledger for replica in self._batchscope.composition.history.replicas]


def _held(ledger: Ledger) -> int:
    return ledger.admitted - ledger.completed - ledger.failed - ledger.cancelled


def judge(play: Play) -> bool:
    """Print each claim; returns whether all were true to the end."""
    for claim, checked in play.checked.items():
        wrong = {act: count for (name, act), count in play.untrue.items() if name == claim}
        print(f"{claim}: {sum(wrong.values())} of {checked} frames untrue")
        for act, count in wrong.items():
            print(f"    {act}: {count}, first: {play.examples[claim, act]}")
    if not play.has_ended:
        print("It did not come to its end.")
    return play.has_ended and not play.untrue


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=12.0, help="of each scene (12)")
    parser.add_argument("--only", nargs="*", choices=[act.name for act in ACTS], help="these scenes")
    parser.add_argument("--pictures", type=Path, help="a folder for a picture of each scene")
    arguments = parser.parse_args()
    if arguments.pictures is not None:
        arguments.pictures.mkdir(parents=True, exist_ok=True)
    app = QApplication([])
    app.setQuitOnLastWindowClosed(False)
    start = ServiceStart(ServiceOptions(settings=Settings()))
    batchscope = Batchscope(app, Arguments(theme="dark"), service_start=start)
    batchscope.window.resize(*SIZE)
    play = Play(batchscope, arguments)
    batchscope.completed.connect(play.start)
    batchscope.closed.connect(app.quit)
    print(f"load average before: {', '.join(f'{load:.1f}' for load in os.getloadavg())} on {os.cpu_count()} cores")
    batchscope.show()
    app.exec()
    return 0 if judge(play) else 1


if __name__ == "__main__":
    sys.exit(main())
