"""The interface of the rules: a rule reads `Facts`, each computed once, and returns a `Finding` or ``None``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal, TypeAlias

import numpy as np

from service.analysis.findings.recent import MOMENTS, Queues, RecentBatches, queues, recent_batches
from service.analysis.observed.batches import Regime
from service.analysis.observed.columns import Bools, Ints
from service.analysis.observed.history import History
from service.analysis.observed.rolling import WINDOW_S
from service.analysis.predict.cost import Capacity, CostModel
from service.messages.load import Burst, ClosedLoop, OnOff
from service.messages.settings import BOUNDS, Settings
from service.messages.text import per_second

Severity: TypeAlias = Literal["warning", "check", "info"]

LEAST_BATCHES: Final = 5
FARTHEST_S: Final = 120.0  # slow batches are looked for no longer ago
LONG_S: Final = 30.0  # for facts that need more than ten seconds, as the rate of arrivals
MOSTLY: Final = 0.8
WORTH_IT: Final = 1.05
FELT_S: Final = 0.01
FELT_SHARE: Final = 0.1  # of the median latency


@dataclass(frozen=True)
class Finding:
    """A sentence with its evidence.

    Attributes:
        rule: stable name of the rule that found it.
        severity: "warning" is to be changed, "check" is as it should be, "info" is good to know.
        evidence: a sentence with the numbers.
        data: the numbers, with their units in their names.
        advice: what to do, as a sentence; empty where nothing need be done.
        control: the setting that would change it, or ``None``.
    """

    rule: str
    severity: Severity
    title: str
    evidence: str = field(kw_only=True)
    data: Mapping[str, float] = field(kw_only=True, default_factory=dict)
    advice: str = field(kw_only=True, default="")
    control: str | None = field(kw_only=True, default=None)


@dataclass(frozen=True)
class Facts:
    """The service at one moment of a history; each fact is computed when the first rule asks for it.

    By default a fact is of the time since `since_s`, about the last ten seconds.

    Attributes:
        settings: in force at that moment.
    """

    history: History
    at_s: float
    regime: Regime
    settings: Settings

    @classmethod
    def at(cls, history: History, at_s: float) -> Facts | None:
        """The facts of a moment; ``None`` before any batch has run, or while the service has failed."""
        regime = history.batches.regime_at(at_s)
        if regime is None or history.in_force is None or history.outages.has_failed_at(at_s):
            return None
        return cls(history, at_s, regime, regime.settings or history.in_force.settings)

    @cached_property
    def since_s(self) -> float:
        """Ten seconds ago, or as long ago as `LEAST_BATCHES` were formed with no pause between them.

        Never before the settings were in force, or longer ago than `FARTHEST_S`.
        """
        batches = self._batches_since(max(self.at_s - FARTHEST_S, self.regime.start_s))
        since_s, next_formed_s = max(self.at_s - WINDOW_S, self.regime.start_s), self.at_s
        ended_s = np.where(np.isnan(batches.finished), self.at_s, batches.finished)
        latest = slice(-1, -LEAST_BATCHES - 1, -1)
        for formed_s, end_s in zip(batches.formed[latest].tolist(), ended_s[latest].tolist(), strict=True):
            if next_formed_s - end_s > WINDOW_S:
                break
            since_s, next_formed_s = min(since_s, formed_s), formed_s
        return since_s

    # ------------------------------------------------------------------------------------------------------ settings

    @property
    def cap(self) -> int:
        return self.settings.max_batch_size

    @property
    def is_late(self) -> bool:
        return self.settings.formation == "late"

    @property
    def is_continuous(self) -> bool:
        """Whether requests join and leave between two steps."""
        return self.settings.formation == "continuous"

    @property
    def timeout_s(self) -> float:
        """How long a free engine waits for a batch to fill; 0 where another setting decides when it leaves."""
        settings = self.settings
        return settings.batch_wait_timeout_s if settings.allow_small_batch and not settings.stride_s else 0.0

    @property
    def replicas(self) -> int:
        return max(int(np.count_nonzero(self.queues.is_present)), 1)

    @property
    def places(self) -> int:
        """Batches that all replicas together run at a time."""
        return self.replicas * self.settings.places

    # ------------------------------------------------------------------------------------------------------- batches

    @cached_property
    def batches(self) -> RecentBatches:
        return self._batches_since(self.since_s)

    @cached_property
    def earlier_batches(self) -> RecentBatches:
        """The batches of the last half minute or longer, for facts about whole batches, however long they take."""
        return self._batches_since(min(max(self.at_s - LONG_S, self.regime.start_s), self.since_s))

    def _batches_since(self, since_s: float) -> RecentBatches:
        return recent_batches(self.history, self.regime.number, since_s, self.at_s, self.settings.formation)

    @cached_property
    def previous_batches(self) -> RecentBatches | None:
        """The batches of the last ten seconds of the settings before."""
        before = self.history.batches.regime_before(self.regime)
        if before is None:
            return None
        end_s = self.regime.start_s
        formation = before.settings.formation if before.settings is not None else None
        return recent_batches(self.history, before.number, end_s - WINDOW_S, end_s, formation)

    @property
    def has_batches(self) -> bool:
        return len(self.batches) >= LEAST_BATCHES

    @property
    def full_share(self) -> float:
        """The share of full batches, or in `continuous` of the time in which all rows were taken."""
        return self.batches.share(self.batches.is_full)

    @cached_property
    def cost(self) -> CostModel | None:
        """The cost of recent batches."""
        cost = CostModel.of_history(self.history, self.at_s)
        return None if cost is None else cost.under(self.settings.formation)

    def capacity(self, size: int) -> Capacity | None:
        """The rates of all replicas when every batch holds `size` requests, where they are known well enough."""
        if self.cost is None or not self.cost.is_sure_of(size):
            return None
        return self.cost.capacity(size, self.places)

    def capacity_per_s(self, size: int) -> float | None:
        """The same in requests a second."""
        capacity = self.capacity(size)
        return None if capacity is None else capacity.requests_per_s

    @cached_property
    def busy_share(self) -> float:
        """The share of time that all places for batches were taken."""
        columns = self.history.batches.columns
        begun, ended = columns["started"], np.minimum(columns["finished"], self.at_s)
        ran = (ended > self.since_s) & (begun <= self.at_s)
        busy_s = float((ended[ran] - np.maximum(begun[ran], self.since_s)).sum())
        span_s = self.at_s - self.since_s
        return min(busy_s / (span_s * self.places), 1.0) if span_s > 0 else 0.0

    # ------------------------------------------------------------------------------------------------------ requests

    @cached_property
    def queues(self) -> Queues:
        return queues(self.history, self.since_s, self.at_s)

    @cached_property
    def steady_queues(self) -> Queues:
        """The queues since `steady_since_s`."""
        return queues(self.history, self.steady_since_s, self.at_s)

    @property
    def waiting(self) -> int:
        """The median number of requests in the queue or in sealed batches over the last fifth of the time.

        The last number alone would be too low: the service often reports when a batch has just emptied the queue.
        """
        return int(np.median(self.queues.total[-(MOMENTS // 5) :]))

    @cached_property
    def begun(self) -> Ints:
        """The places in the table of the requests that began to run."""
        started = self.history.requests.columns["started"]
        return np.flatnonzero((started > self.since_s) & (started <= self.at_s))

    @cached_property
    def latency_p50_s(self) -> float | None:
        samples = self.history.requests.samples
        finished = samples["finished"]
        within = (finished > self.since_s) & (finished <= self.at_s) & (samples["regime"] == self.regime.number)
        return float(np.median(samples["latency"][within])) if within.any() else None

    def is_felt(self, wait_s: float) -> bool:
        """Whether a wait is a considerable part of the latency; false where no latency is known."""
        return self.latency_p50_s is not None and wait_s >= max(FELT_S, FELT_SHARE * self.latency_p50_s)

    # ---------------------------------------------------------------------------------------------------------- load

    @cached_property
    def is_bounded_load(self) -> bool:
        """Whether the queue can't grow for ever: users that wait for answers, a burst, or a load with pauses."""
        return isinstance(self.history.statuses.pattern_at(self.at_s), ClosedLoop | Burst | OnOff)

    @cached_property
    def declared_per_s(self) -> float | None:
        """The rate that the load generator aims at, where it has one."""
        if self.history.statuses.pattern_at(self.at_s) is None:
            return None
        offered = reversed(self.history.load_timeline.offered)
        return next((rate for since_s, rate in offered if since_s <= self.at_s), None)

    @cached_property
    def steady_since_s(self) -> float:
        """The last change of settings or load, at most half a minute ago."""
        changed = [since_s for since_s, _ in self.history.statuses.patterns if since_s <= self.at_s]
        first_s = self.history.first_s if self.history.first_s is not None else -np.inf
        return max([self.at_s - LONG_S, self.regime.start_s, first_s, *changed[-1:]])

    @cached_property
    def steady_arrivals(self) -> int:
        """The number of arrivals since `steady_since_s`."""
        columns = self.history.requests.columns
        arrived = np.minimum(columns["intended"], columns["received"])
        return int(np.count_nonzero((arrived > self.steady_since_s) & (arrived <= self.at_s)))

    @property
    def offered_per_s(self) -> float | None:
        """The declared rate, or arrivals since `steady_since_s`; ``None`` where that is less than five seconds ago."""
        if self.declared_per_s is not None:
            return self.declared_per_s
        span_s = self.at_s - self.steady_since_s
        return self.steady_arrivals / span_s if span_s >= WINDOW_S / 2 else None


def share(which: Bools) -> float:
    return float(which.mean()) if len(which) else 0.0


def advise_larger_cap(facts: Facts) -> tuple[str, str | None]:
    """The advice for full batches and the setting that it names, which is ``None`` if a larger cap gains little."""
    larger = min(2 * facts.cap, int(BOUNDS["max_batch_size"].high))
    now_per_s, then_per_s = facts.capacity_per_s(facts.cap), facts.capacity_per_s(larger)
    if larger == facts.cap or (now_per_s and then_per_s and then_per_s <= WORTH_IT * now_per_s):
        return "Send less, add replicas or take a smaller model: a larger batch would gain little.", None
    if now_per_s is None or then_per_s is None:
        advice = "Raise max_batch_size and watch whether throughput grows; else send less or add replicas."
    else:
        gain = f"{per_second(then_per_s)}, not {now_per_s:.1f}"
        advice = f"Raise max_batch_size: with {larger} the engine would answer {gain}."
    return advice, "max_batch_size"
