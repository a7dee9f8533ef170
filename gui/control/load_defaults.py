"""The load that suits the service that runs: a share of its capacity, and users by its places in batches.

Before any load has run the capacity is that of the trial batch, which each replica computes as it starts. Later it is
the capacity line's, of the batches that ran; as long as none was full, the larger of the two. Values move once a start,
before its first load: the load that a user has seen is the one that runs again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from PySide6.QtCore import QObject

from gui.control.scenarios import scenarios
from gui.main_window import MainWindow
from gui.panels.load_knobs import Suited, readable_from
from gui.plots.plot_stack import PlotStack
from gui.session.lifecycle import LifeCycle
from gui.session.session import Session
from service.analysis.findings.facts import SeenCapacity
from service.analysis.observed.contention import LEAST_SHARE
from service.messages.life import TrialBatch
from service.messages.load import LoadFrame, mean
from service.messages.text import counted, per_second, percent, significant

SHARE: Final = 0.6  # of the capacity: batches form, and the queue stays short
CARRIED_PER_S: Final = 250.0
"""Requests that a replica's Python carries over HTTP, however quick its engine: beside an H200 259 to 283 were seen."""

USUAL_PLACES: Final = 16
"""For requests, in a server that does not say how many it has."""
NOT_MEASURED: Final = "their share of the capacity is not measured"
BEYOND: Final = 2.0  # times the capacity, to which a slider and a ramp go; their words say "twice"
USERS_BEYOND: Final = 4  # times the places, to which the slider goes: so that some users wait


@dataclass(frozen=True)
class KnownCapacity:
    """Requests a second that all replicas answer with full batches, and where that is known from, as a sentence.

    Attributes:
        of_what: what was seen to have it. An engine alone has more than the service that hands its answers on.
    """

    per_s: float
    source: str
    of_what: str = "measured here"

    @classmethod
    def of_batches(cls, seen: SeenCapacity) -> KnownCapacity:
        return cls(seen.per_s, f"Capacity {seen.words}, by the batches that ran")

    @classmethod
    def of_trial(cls, trial: TrialBatch, max_batch_size: int, replicas: int, tokens: float) -> KnownCapacity:
        """The capacity for requests of `tokens` tokens, where a step of a smaller batch takes as long as the trial's.

        >>> trial = TrialBatch(size=16, first_token_s=0.1, step_s=0.05)
        >>> KnownCapacity.of_trial(trial, 8, 2, 23).source
        'Capacity 13.3 requests/s of 23 tokens, by a batch of 16 of the engine alone, timed as the service started'

        Beside a quick engine the rest of a replica is the limit:

        >>> quick = KnownCapacity.of_trial(TrialBatch(size=16, first_token_s=0.004, step_s=0.001), 16, 2, 24)
        >>> quick.per_s, quick.source.partition(", ")[2]
        (500.0, 'which is what its Python carries, where the engine is quicker')
        """
        filled = min(max_batch_size / trial.size, 1.0)
        engine_per_s = filled * trial.requests_per_s(tokens)
        per_s = replicas * min(engine_per_s, CARRIED_PER_S)
        timed = f"by a batch of {trial.size} of the engine alone, timed as the service started"
        of_what = "that the engine alone computes"
        if engine_per_s > CARRIED_PER_S:
            timed = "which is what its Python carries, where the engine is quicker"
            of_what = "that Python carries"
        return cls(per_s, f"Capacity {per_second(per_s)} of {tokens:.0f} tokens, {timed}", of_what)


def suited_by(capacity: KnownCapacity | None, places: int) -> Mapping[str, Suited]:
    """By the name of each number of the load what suits a service whose batches have `places` places together.

    >>> suited = suited_by(KnownCapacity(12.5, "Capacity 12.5 requests/s"), 16)
    >>> {field: (each.value, each.end) for field, each in suited.items()}
    {'users': (16, 80.0), 'rate_per_s': (7.5, 25.0), 'rate_to_per_s': (25.0, 25.0)}
    """
    filled = f"{counted(places, 'request')} fill the batches of all replicas."
    users_end = f"he slider ends at about {USERS_BEYOND} times as many."
    users = f"{filled}\nThere are as many users until you set a number; t{users_end}"
    suited = {"users": Suited(places, readable_from(USERS_BEYOND * places), users, f"{filled}\nT{users_end}")}
    if capacity is None:
        return suited
    end = readable_from(BEYOND * capacity.per_s)
    value = significant(SHARE * capacity.per_s)
    words = (
        f"{capacity.source}.\nThe value is {percent(SHARE)} of it until you set one; the slider ends at about twice it."
    )
    words_if_set = f"{capacity.source}.\nThe slider ends at about twice it."
    ramp = f"{capacity.source}.\nThe value is about twice it until you set one."
    return suited | {
        "rate_per_s": Suited(value, end, words, words_if_set),
        "rate_to_per_s": Suited(end, end, ramp, f"{capacity.source}."),
    }


def _was_held_up(trial: TrialBatch) -> bool:
    """Whether the engine was slowed meanwhile, so that the trial says nothing of another time."""
    return trial.processor_share is not None and trial.processor_share < LEAST_SHARE


class LoadDefaults(QObject):
    """Hands the load panel what suits the service, at its start and after each load."""

    def __init__(self, window: MainWindow, plots: PlotStack, session: Session) -> None:
        super().__init__(window)
        self._window = window
        self._plots = plots
        self._session = session
        self._drawn: tuple[int, SeenCapacity] | None = None
        self._has_run = False
        session.life_cycle_changed.connect(self._on_life_cycle_changed)
        session.load_changed.connect(self._on_load_changed)

    def follow(self) -> None:
        """Look whether something else suits the service; once a second."""
        panel, history = self._window.load, self._session.history
        if self._session.state is not LifeCycle.RUNNING or panel.is_running or not self._plots.is_live:
            return
        settings = self._window.batching.settings if history.in_force is None else history.in_force.settings
        replicas = max(len(history.replicas), 1)
        places = (settings.max_batch_size if history.knows_cap else USUAL_PLACES) * replicas
        capacity = self.capacity(settings.max_batch_size, replicas)
        panel.suit(suited_by(capacity, places), moves=not self._has_run)
        ready = self._session.ready
        generates = ready is None or ready.workload.generates
        full_per_s = None if capacity is None else capacity.per_s
        of_what = NOT_MEASURED if capacity is None else f"shares of the {per_second(capacity.per_s)} {capacity.of_what}"
        offered = scenarios(full_per_s, places, mean(panel.max_tokens) if generates else None)
        self._window.notice.ready.show_scenarios(offered, f"A click runs one; {of_what}")
        panel.offer(offered)

    def capacity(self, max_batch_size: int, replicas: int) -> KnownCapacity | None:
        """What the plots draw, or have drawn last for as many places; by the trial where no batch was full."""
        history, ready, line = self._session.history, self._session.ready, self._plots.throughput.capacity
        places = max_batch_size * replicas
        if line is not None and line.since_s >= history.service_begun_s(history.now_s()):
            self._drawn = places, line.seen
        known = []
        if self._drawn is not None and self._drawn[0] == places:
            seen = self._drawn[1]
            known.append(KnownCapacity.of_batches(seen))
            if seen.is_full:
                return known[0]
        if ready is not None and ready.trial is not None and not _was_held_up(ready.trial):
            tokens = mean(self._window.load.max_tokens)
            known.append(KnownCapacity.of_trial(ready.trial, max_batch_size, replicas, tokens))
        return max(known, key=lambda each: each.per_s, default=None)

    def _on_load_changed(self, frame: LoadFrame) -> None:
        self._has_run = self._has_run or frame.pattern is not None

    def _on_life_cycle_changed(self, state: LifeCycle) -> None:
        self._drawn = None
        if state is LifeCycle.RUNNING:
            self._has_run = False
            self.follow()
