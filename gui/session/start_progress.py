"""The stages of a start as lines to show: done, present and ahead."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from msgspec.structs import replace

from service.messages.life import Stage, StageName, StageProgress, Starting

LineState: TypeAlias = Literal["done", "present", "ahead"]

ALMOST: Final = 0.97  # where a bar that only knows about how long a stage takes waits for its end
ONCE: Final = ("fetch", "convert")  # stages of the first start alone
MEGABYTE: Final = 1e6


@dataclass(frozen=True)
class StageLine:
    """One stage of a start.

    Attributes:
        detail: its duration, its progress, or its expected duration.
        fraction: the progress of the present stage, where it is known.
    """

    title: str
    state: LineState
    detail: str
    fraction: float | None = None


class StartProgress:
    """Gathers the messages of a service that starts; between two of them its stage runs on by the clock given here."""

    def __init__(self, usual_s: Mapping[str, float] | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """`usual_s` holds how long stages took at the last start on this machine, by their names."""
        self._usual_s = usual_s or {}
        self._clock = clock
        self._heard_s = clock()
        self._instance: str | None = None
        self._why_model = ""
        self._stages: tuple[Stage, ...] = ()
        self._latest: dict[StageName, StageProgress] = {}
        self._earliest: dict[StageName, StageProgress] = {}

    def take(self, message: Starting | StageProgress) -> None:
        self._heard_s = self._clock()
        if isinstance(message, Starting):
            self._stages = tuple(
                replace(stage, about_s=self._usual_s.get(stage.name, stage.about_s)) for stage in message.stages
            )
            is_new = message.instance != self._instance
            self._instance, self._why_model = message.instance, message.why_model
            ended = {} if is_new else {name: each for name, each in self._latest.items() if each.finished}
            self._latest = ended
            self._earliest.clear()
        else:
            self._latest[message.name] = message
            self._earliest.setdefault(message.name, message)

    def lines(self) -> tuple[StageLine, ...]:
        present = self._present()
        return tuple(self._line(stage, stage is present) for stage in self._stages)

    @property
    def durations_s(self) -> dict[str, float]:
        """How long the stages took that every start has, by their names; those that have ended."""
        ended = (latest for latest in self._latest.values() if latest.finished and latest.name not in ONCE)
        return {latest.name: round(latest.elapsed_s, 1) for latest in ended}

    @property
    def lead(self) -> str:
        """Under the heading: the expected duration, and that the model is another one, where it is."""
        other, has_reason, _reason = self._why_model.partition(". ")  # a narrow window has no room for the reason
        return " ".join(filter(None, (self._expected, f"{other}. The log says why." if has_reason else other)))

    @property
    def _expected(self) -> str:
        usual = sum(stage.about_s or 0.0 for stage in self._stages if stage.name not in ONCE)
        if any(stage.name in ONCE for stage in self._stages):
            return f"Fetching the model happens once; the next start takes about {usual:.0f} s." if usual else ""
        return f"It takes about {usual:.0f} s." if usual else ""

    @property
    def summary(self) -> str:
        """The present stage in one line, for the status bar."""
        present = self._present()
        if present is None:
            return "Starting"
        line = self._line(present, is_present=True)
        return f"{line.title}: {line.detail}" if line.detail else line.title

    def _present(self) -> Stage | None:
        under_way = (s for s in self._stages if s.name in self._latest and not self._latest[s.name].finished)
        first_ahead = (s for s in self._stages if s.name not in self._latest)
        return next(under_way, None) or next(first_ahead, None)

    def _line(self, stage: Stage, is_present: bool) -> StageLine:
        latest = self._latest.get(stage.name)
        if latest is not None and latest.finished:
            return StageLine(stage.title, "done", f"{latest.elapsed_s:.1f} s")
        if not is_present:
            return StageLine(stage.title, "ahead", _about(stage.about_s))
        rate = self._rate(latest) if latest is not None else None
        now = self._as_of_now(stage, latest)
        return StageLine(stage.title, "present", _detail(stage, now, rate), _fraction(stage, now))

    def _as_of_now(self, stage: Stage, latest: StageProgress | None) -> StageProgress:
        """What was reported last, as long ago as it is; a stage without a report began when the one before ended."""
        known = latest or StageProgress(name=stage.name, elapsed_s=0.0)
        return replace(known, elapsed_s=known.elapsed_s + self._clock() - self._heard_s)

    def _rate(self, latest: StageProgress) -> float | None:
        """Bytes a second since the first report, without those that a resumed fetch found."""
        earliest = self._earliest[latest.name]
        seconds = latest.elapsed_s - earliest.elapsed_s
        if seconds <= 0 or latest.done is None:
            return None
        return (latest.done - (earliest.done or 0.0)) / seconds


def _detail(stage: Stage, now: StageProgress, rate: float | None) -> str:
    if now.done is None or now.unit != "bytes":
        return _counted(now) or _elapsed(stage, now)
    return " · ".join(_present_parts(now, rate))


def _present_parts(latest: StageProgress, rate: float | None) -> Iterable[str]:
    done = latest.done or 0.0
    yield f"{done / MEGABYTE:.0f} of {latest.total / MEGABYTE:.0f} MB" if latest.total else f"{done / MEGABYTE:.0f} MB"
    if rate:
        yield f"{rate / MEGABYTE:.0f} MB/s" if rate >= 10 * MEGABYTE else f"{rate / MEGABYTE:.1f} MB/s"
        if latest.total:
            yield f"{max(0.0, latest.total - done) / rate:.0f} s left"


def _counted(latest: StageProgress) -> str:
    if latest.done is None or latest.total is None or latest.unit is None:
        return ""
    return f"{latest.done:.0f} of {latest.total:.0f} {latest.unit} · {latest.elapsed_s:.0f} s"


def _elapsed(stage: Stage, latest: StageProgress) -> str:
    elapsed = f"{latest.elapsed_s:.0f} s"
    return f"{elapsed} of {_about(stage.about_s)}" if stage.about_s else elapsed


def _fraction(stage: Stage, latest: StageProgress) -> float | None:
    guessed = min(ALMOST, latest.elapsed_s / stage.about_s) if stage.about_s else None
    if latest.done is None or not latest.total:
        return guessed
    counted = min(1.0, latest.done / latest.total)
    if latest.unit in (None, "bytes") or guessed is None:
        return counted
    return max(min(ALMOST, counted), guessed)  # what is counted is only a part of the stage


def _about(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"about {seconds:.0f} s" if seconds >= 1 else f"about {seconds:.1f} s"
