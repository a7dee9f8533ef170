"""The stages of a start, reported as they begin, go on and end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from service.messages.life import ServiceState, Stage, StageName, StageProgress, Unit
from service.messages.workload import TEXT

REPORT_INTERVAL_S: Final = 0.1
UNCHANGED_INTERVAL_S: Final = 1.0

ABOUT_S: Final[dict[StageName, float]] = {"check": 0.1, "convert": 25, "ray": 4, "serve": 4, "load": 10, "answer": 1}
ABOUT_FUNCTIONS_S: Final[dict[StageName, float]] = ABOUT_S | {"load": 4}


def stages_to(
    model: str, pending: tuple[StageName, ...], *, is_local: bool, workload: str = TEXT.name
) -> tuple[Stage, ...]:
    """What lies ahead of a start with `model`, of which `pending` is still to be had, or with another workload."""
    is_text = workload == TEXT.name
    titles: dict[StageName, str] = {
        "check": "Check ports and memory",
        "fetch": f"Fetch {model}",
        "convert": "Convert the model",
        "ray": "Start Ray" if is_local else "Connect to Ray",
        "serve": "Start Ray Serve",
        "load": "Load the model" if is_text else f"Load {workload}",
        "answer": "Answer a first request",
    }
    return tuple(
        Stage(name=name, title=title, about_s=(ABOUT_S if is_text else ABOUT_FUNCTIONS_S).get(name))
        for name, title in titles.items()
        if name in pending or name not in ("fetch", "convert")
    )


class StageReporter:
    """Reports where a start is; a stage ends when the next begins."""

    def __init__(self, emit: Callable[[ServiceState], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._emit = emit
        self._clock = clock
        self._name: StageName | None = None
        self._began_s = 0.0
        self._told_s = 0.0
        self._done: float | None = None
        self._total: float | None = None
        self._unit: Unit | None = None
        self._told: tuple[float | None, float | None, Unit | None] = (None, None, None)

    def begin(self, name: StageName) -> None:
        self.finish()
        self._name, self._began_s = name, self._clock()
        self._done = self._total = self._unit = None
        self._tell()

    def progress(self, done: float, total: float | None, unit: Unit | None) -> None:
        """Report how far the stage is, at most every `REPORT_INTERVAL_S`, and less often while nothing changes."""
        self._done, self._total, self._unit = done, total, unit
        is_news = (done, total, unit) != self._told
        if self._clock() - self._told_s >= (REPORT_INTERVAL_S if is_news else UNCHANGED_INTERVAL_S):
            self._tell()

    def model_progress(self, name: StageName, done: float, total: float | None) -> None:
        """A `service.engine.model.report.Report`: one call goes through several stages."""
        if name != self._name:
            self.begin(name)
        self.progress(done, total, "bytes" if name == "fetch" else None)

    def finish(self) -> None:
        if self._name is not None:
            self._tell(finished=True)
            self._name = None

    @contextmanager
    def running(self, name: StageName) -> Iterator[None]:
        """Covers the stage's duration; a stage that raises is never reported finished."""
        self.begin(name)
        yield
        self.finish()

    def _tell(self, *, finished: bool = False) -> None:
        assert self._name is not None
        self._told_s, self._told = self._clock(), (self._done, self._total, self._unit)
        progress = StageProgress(
            name=self._name,
            elapsed_s=round(self._told_s - self._began_s, 3),
            done=self._done,
            total=self._total,
            unit=self._unit,
            finished=finished,
        )
        self._emit(progress)
