"""The facts that the rules read: the last seconds under the settings in force, computed once and shared."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from service.analysis.findings.recent import MOMENTS, Queues, RecentBatches, queues, recent_batches
from service.analysis.observed.batches import Regime
from service.analysis.observed.columns import Bools, Floats, Ints
from service.analysis.observed.history import History
from service.analysis.observed.requests import STATE_CODES
from service.analysis.observed.rolling import WINDOW_S
from service.analysis.predict.cost import Capacity, CostModel
from service.messages.load import Burst, ClosedLoop, OnOff
from service.messages.settings import BOUNDS, Settings
from service.messages.text import per_second
from service.messages.workload import TEXT

LEAST_BATCHES: Final = 5
LONG_S: Final = 30.0  # what some facts need, as the rate of arrivals
MOSTLY: Final = 0.8
WORTH_IT: Final = 1.05


@dataclass(frozen=True)
class Facts:
    """The service at one moment of a history; each fact is computed when the first rule asks for it.

    Attributes:
        settings: in force then.
        since_s: the beginning of the last ten seconds, or of the settings if that is later.
    """

    history: History
    at_s: float
    regime: Regime
    settings: Settings

    @classmethod
    def at(cls, history: History, at_s: float) -> Facts | None:
        """``None`` where nothing can be said: nothing has run yet, or the service had failed."""
        regime = history.batches.regime_at(at_s)
        if regime is None or history.in_force is None or history.outages.has_failed_at(at_s):
            return None
        return cls(history, at_s, regime, regime.settings or history.in_force.settings)

    @property
    def is_continuous(self) -> bool:
        """Whether requests join and leave between two steps."""
        return self.settings.formation == "continuous"

    @property
    def generates(self) -> bool:
        """Whether requests are generated token by token, so that others can join in between."""
        return self.history.unit == TEXT.unit

    @property
    def since_s(self) -> float:
        return max(self.at_s - WINDOW_S, self.regime.start_s)

    @property
    def span_s(self) -> float:
        return self.at_s - self.since_s

    @property
    def timeout_s(self) -> float:
        """How long a free engine waits for a batch to fill; 0 where something else decides when it leaves."""
        settings = self.settings
        return settings.batch_wait_timeout_s if settings.allow_small_batch and not settings.stride_s else 0.0

    @property
    def places(self) -> int:
        """Batches that all replicas together run at a time."""
        return self.replicas * self.settings.places

    # ------------------------------------------------------------------------------------------------------- batches

    @cached_property
    def batches(self) -> RecentBatches:
        return recent_batches(self.history, self.regime.number, self.since_s, self.at_s, self.settings.formation)

    @cached_property
    def earlier_batches(self) -> RecentBatches:
        """Of the last half minute, for what can be told of whole batches only, however long they take."""
        since_s = max(self.at_s - LONG_S, self.regime.start_s)
        return recent_batches(self.history, self.regime.number, since_s, self.at_s, self.settings.formation)

    @cached_property
    def previous_batches(self) -> RecentBatches | None:
        """The last ten seconds of the settings before."""
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
        """Of the batches, or in `continuous` of the time, how much could hold no more."""
        return self.batches.share(self.batches.is_full)

    @cached_property
    def cost(self) -> CostModel | None:
        """What batches cost lately."""
        cost = CostModel.of_history(self.history, self.at_s)
        return None if cost is None else cost.under(self.settings.formation)

    def batch_s(self, size: float) -> float | None:
        """The time of a batch of that size, where it is known well enough."""
        return self.cost.batch_s(size) if self.cost is not None and self.cost.is_sure_of(size) else None

    def capacity(self, size: int) -> Capacity | None:
        """What all replicas reach if every batch holds so many, where that is known well enough."""
        if self.cost is None or not self.cost.is_sure_of(size):
            return None
        return self.cost.capacity(size, self.places)

    def capacity_per_s(self, size: int) -> float | None:
        """The same in requests a second."""
        capacity = self.capacity(size)
        return None if capacity is None else capacity.requests_per_s

    @cached_property
    def busy_share(self) -> float:
        """Of the time of all places where batches can run, how much they were taken."""
        columns = self.history.batches.columns
        begun, ended = columns["started"], np.minimum(columns["finished"], self.at_s)
        ran = (ended > self.since_s) & (begun <= self.at_s)
        busy_s = float((ended[ran] - np.maximum(begun[ran], self.since_s)).sum())
        return min(busy_s / (self.span_s * self.places), 1.0) if self.span_s > 0 else 0.0

    # ------------------------------------------------------------------------------------------------------ requests

    @cached_property
    def queues(self) -> Queues:
        return queues(self.history, self.since_s, self.at_s)

    @cached_property
    def steady_queues(self) -> Queues:
        """Since neither settings nor load have changed."""
        return queues(self.history, self.steady_since_s, self.at_s)

    @property
    def waiting(self) -> int:
        """In the queue or in sealed batches, mostly, in the last fifth of the time.

        Not at one moment: what is known last was often told because a batch began, which is when the fewest wait.
        """
        return int(np.median(self.queues.total[-(MOMENTS // 5) :]))

    @cached_property
    def _received(self) -> Bools:
        received = self.history.requests.columns["received"]
        within: Bools = (received > self.since_s) & (received <= self.at_s)
        return within

    @property
    def received(self) -> int:
        return int(np.count_nonzero(self._received))

    @cached_property
    def begun(self) -> Ints:
        """The places in the table of the requests that began to run."""
        started = self.history.requests.columns["started"]
        places: Ints = np.flatnonzero((started > self.since_s) & (started <= self.at_s))
        return places

    @cached_property
    def refused(self) -> int:
        state = self.history.requests.columns["state"]
        return int(np.count_nonzero(self._received & (state == STATE_CODES["refused"])))

    @cached_property
    def latencies_s(self) -> Floats:
        samples = self.history.requests.samples
        finished = samples["finished"]
        within = (finished > self.since_s) & (finished <= self.at_s) & (samples["regime"] == self.regime.number)
        latencies: Floats = samples["latency"][within]
        return latencies

    @cached_property
    def lag_s(self) -> Floats:
        """How late each request was sent whose sender we know."""
        columns = self.history.requests.columns
        sent = columns["sent"]
        within = (sent > self.since_s) & (sent <= self.at_s)
        lag: Floats = sent[within] - columns["intended"][within]
        return lag

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
        return next(
            (rate for since_s, rate in reversed(self.history.load_timeline.offered) if since_s <= self.at_s), None
        )

    @cached_property
    def steady_since_s(self) -> float:
        """Since when neither settings nor load have changed, at most half a minute ago."""
        changed = [since_s for since_s, _ in self.history.statuses.patterns if since_s <= self.at_s]
        first_s = self.history.first_s if self.history.first_s is not None else -np.inf
        return max([self.at_s - LONG_S, self.regime.start_s, first_s, *changed[-1:]])

    @cached_property
    def measured_per_s(self) -> float | None:
        """Arrivals a second since settings and load last changed; ``None`` where that is too short to tell."""
        span_s = self.at_s - self.steady_since_s
        return self.steady_arrivals / span_s if span_s >= WINDOW_S / 2 else None

    @cached_property
    def steady_arrivals(self) -> int:
        """Since neither settings nor load have changed."""
        columns = self.history.requests.columns
        arrived = np.minimum(columns["intended"], columns["received"])
        return int(np.count_nonzero((arrived > self.steady_since_s) & (arrived <= self.at_s)))

    @property
    def offered_per_s(self) -> float | None:
        return self.measured_per_s if self.declared_per_s is None else self.declared_per_s

    @property
    def replicas(self) -> int:
        return max(int(np.count_nonzero(self.queues.is_present)), 1)


def share(which: Bools) -> float:
    return float(which.mean()) if len(which) else 0.0


@dataclass(frozen=True)
class LargerCap:
    """
    Attributes:
        helps: also where nothing is known of it.
        advice: the sentence.
    """

    helps: bool
    advice: str

    @property
    def control(self) -> str | None:
        return "max_batch_size" if self.helps else None


def larger_cap(facts: Facts) -> LargerCap:
    cap = facts.settings.max_batch_size
    larger = min(2 * cap, int(BOUNDS["max_batch_size"].high))
    now_per_s, then_per_s = facts.capacity_per_s(cap), facts.capacity_per_s(larger)
    if larger == cap or (now_per_s and then_per_s and then_per_s <= WORTH_IT * now_per_s):
        return LargerCap(False, "Send less, add replicas or take a smaller model: a larger batch would gain little.")
    if now_per_s is None or then_per_s is None:
        advice = "Raise max_batch_size and watch whether throughput grows; else send less or add replicas."
        return LargerCap(True, advice)
    return LargerCap(
        True,
        f"Raise max_batch_size: with {larger} the engine would answer {per_second(then_per_s)}, not {now_per_s:.1f}.",
    )
