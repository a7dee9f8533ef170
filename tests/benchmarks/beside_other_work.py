"""How fast the service is beside busy programs of ordinary priority, and how long the window's frames take meanwhile.

python -m tests.benchmarks.beside_other_work [--rounds N] [--seconds S] [--users N] [--formation F] [--threads N]

The real window, offscreen, starts the real service and the real load. In each round it runs alone, beside one and
beside two `while True: pass`, each in a session of its own, in a random order. Reported are medians of the rounds; a
ratio is that of two neighbours in the same round. It ends with 0 if the aims hold.

`--threads` lets the engine compute in so many threads, as it would on so many cores. Other programs on the machine
count as further busy ones: how many cores they took is reported.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Final

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import psutil
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication

from gui.app import Batchscope
from gui.control.arguments import Arguments
from gui.session.lifecycle import LifeCycle
from gui.session.processes.service import ServiceStart
from service.messages.heap import set_heap_aside
from service.messages.load import ClosedLoop, LoadFrame
from service.messages.options import ServiceOptions
from service.messages.settings import Settings
from tests.benchmarks.threads import THREADS

AIMS: Final = {0: 1.0, 1: 0.6, 2: 0.35}  # speed beside so many busy programs, of that alone
MOST_FRAME_MS: Final = 33.0
SIZE: Final = (1440, 900)
TOKENS: Final = 24
WARM_UP_S: Final = 8.0
SETTLE_S: Final = 1.5
BUSY: Final = (sys.executable, "-c", "while True: pass")


@dataclass(frozen=True)
class Figures:
    """Of one stretch of time: `others` is what programs that are not part of the benchmark took, in cores."""

    tokens_per_s: float
    frame_p99_ms: float
    others: float


class BusyPrograms:
    """Programs that compute all the time, as many as wanted."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[bytes]] = []

    def become(self, count: int) -> None:
        while len(self._running) > count:
            self._running[-1].kill()
            self._running.pop().wait()
        while len(self._running) < count:
            self._running.append(subprocess.Popen(BUSY, start_new_session=True))


class Processor:
    """What programs outside of the benchmark take of the processor."""

    def __init__(self) -> None:
        self._own_s: dict[int, float] = {}
        self.start()

    def start(self) -> None:
        self._begun_s = time.monotonic()
        self._note_own()
        self._before_s = self._all_s() - sum(self._own_s.values())

    def others(self) -> float:
        """In cores, since the start."""
        self._note_own()
        spent_s = self._all_s() - sum(self._own_s.values()) - self._before_s
        return max(0.0, spent_s / (time.monotonic() - self._begun_s))

    def _note_own(self) -> None:
        window = psutil.Process()
        for process in (window, *window.children(recursive=True)):
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            self._own_s[process.pid] = times.user + times.system

    def _all_s(self) -> float:
        times = psutil.cpu_times()
        return times.user + times.nice + times.system


class Benchmark:
    """Runs in the window's own event loop; `figures` has a dict a round, keyed by busy programs."""

    def __init__(self, batchscope: Batchscope, arguments: argparse.Namespace) -> None:
        self._batchscope = batchscope
        self._arguments = arguments
        self._busy = BusyPrograms()
        self._processor = Processor()
        self._tokens: Counter[str] = Counter()
        self._ahead: list[int] = []
        self.figures: list[dict[int, Figures]] = []

    def start(self) -> None:
        session = self._batchscope.composition.session
        session.load_changed.connect(self._on_load_changed)
        session.died.connect(self._on_died)
        session.life_cycle_changed.connect(self._on_life_cycle_changed)
        self._batchscope.composition.start_service()

    def _on_life_cycle_changed(self, state: LifeCycle) -> None:
        if state is not LifeCycle.RUNNING:
            return
        self._batchscope.window.load.set_load(ClosedLoop(users=self._arguments.users), TOKENS)
        self._batchscope.window.load.toggle()
        set_heap_aside()
        self._after(WARM_UP_S, self._next)

    def _on_load_changed(self, frame: LoadFrame) -> None:
        self._tokens.update({request.id: request.tokens - self._tokens[request.id] for request in frame.requests})

    def _on_died(self, sentence: str) -> None:
        print(sentence, file=sys.stderr)
        self._end()

    def _next(self) -> None:
        if not self._ahead:
            if len(self.figures) == self._arguments.rounds:
                self._end()
                return
            self.figures.append({})
            self._ahead = random.sample(list(AIMS), len(AIMS))
        count = self._ahead.pop()
        self._busy.become(count)
        self._after(SETTLE_S, lambda: self._measure(count))

    def _measure(self, count: int) -> None:
        meter = self._batchscope.composition.meter
        meter.reset()
        self._processor.start()
        begun_s, before = time.monotonic(), self._tokens.total()

        def end() -> None:
            rate = (self._tokens.total() - before) / (time.monotonic() - begun_s)
            figures = Figures(rate, meter.times().p99_ms or 0.0, self._processor.others())
            self.figures[-1][count] = figures
            print(f"round {len(self.figures)}  {formatted(count, figures)}", flush=True)
            self._next()

        self._after(self._arguments.seconds, end)

    def _after(self, seconds: float, do: Callable[[], None]) -> None:
        QTimer.singleShot(round(seconds * 1e3), do)

    def _end(self) -> None:
        self._busy.become(0)
        self._batchscope.close()


def formatted(count: int, figures: Figures) -> str:
    return (
        f"beside {count} busy: {figures.tokens_per_s:5.0f} tokens/s   frames p99 {figures.frame_p99_ms:6.1f} ms   "
        f"other programs took {figures.others:.2f} cores"
    )


def judge(rounds: list[dict[int, Figures]]) -> bool:
    """Print what came out; returns whether the aims hold."""
    if not rounds or len(rounds[-1]) < len(AIMS):
        return False
    all_hold = True
    for count, aim in AIMS.items():
        ratio = median(each[count].tokens_per_s / max(each[0].tokens_per_s, 1e-9) for each in rounds)
        frame_ms = median(each[count].frame_p99_ms for each in rounds)
        holds = ratio >= aim and frame_ms <= MOST_FRAME_MS
        all_hold &= holds
        rate = median(each[count].tokens_per_s for each in rounds)
        others = median(each[count].others for each in rounds)
        print(
            f"beside {count} busy: {rate:5.0f} tokens/s, {ratio:.2f} of alone (at least {aim:.2f})   frames p99 "
            f"{frame_ms:.1f} ms (at most {MOST_FRAME_MS:.0f})   other programs {others:.2f} cores   "
            f"{'holds' if holds else 'MISSED'}"
        )
    return all_hold


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each measurement (6)")
    parser.add_argument("--users", type=int, default=16, help="each asks again when answered (16)")
    parser.add_argument("--formation", default="late", choices=("late", "early", "continuous"))
    parser.add_argument("--threads", type=int, help="that the engine computes in (one a core)")
    return parser.parse_args()


def main() -> int:
    arguments = parse()
    extra: tuple[str, ...] = ()
    if arguments.threads is not None:
        os.environ[THREADS] = str(arguments.threads)
        extra = ("--app=tests.benchmarks.threads:build",)
    options = ServiceOptions(settings=Settings(formation=arguments.formation))
    app = QApplication([])
    app.setQuitOnLastWindowClosed(False)
    batchscope = Batchscope(app, Arguments(theme="dark"), service_start=ServiceStart(options, extra=extra))
    batchscope.window.resize(*SIZE)
    benchmark = Benchmark(batchscope, arguments)
    batchscope.completed.connect(benchmark.start)
    batchscope.closed.connect(app.quit)
    print(f"load average before: {', '.join(f'{load:.1f}' for load in os.getloadavg())} on {os.cpu_count()} cores")
    batchscope.show()
    app.exec()
    return 0 if judge(benchmark.figures) else 1


if __name__ == "__main__":
    sys.exit(main())
