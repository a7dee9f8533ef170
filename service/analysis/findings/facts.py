"""The interface of the rules: a rule reads `Facts`, each computed once, and returns a `Finding` or ``None``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, Literal, TypeAlias

import numpy as np

from service.analysis.findings.recent import MOMENTS, Queues, RecentBatches, queues, recent_batches
from service.analysis.observed.batches import Regime
from service.analysis.observed.columns import Bools, Floats, Ints
from service.analysis.observed.contention import Contention, contentions
from service.analysis.observed.history import History
from service.analysis.observed.requests import STATE_CODES
from service.analysis.observed.rolling import WINDOW_S
from service.analysis.predict.cost import CostModel
from service.messages.load import Burst, ClosedLoop, OnOff
from service.messages.settings import Settings, setting_text
from service.messages.text import counted, per_second, seconds

Severity: TypeAlias = Literal["warning", "check", "info"]

LEAST_BATCHES: Final = 5
LEAST_SLOW: Final = 2  # batches that suffice where they ran for `WINDOW_S` together
FARTHEST_S: Final = 120.0  # slow batches are looked for no longer ago
LONG_S: Final = 30.0  # for facts that need more than ten seconds, as the rate of arrivals
MOSTLY: Final = 0.8
WORTH_IT: Final = 1.05
FELT_S: Final = 0.01
FELT_SHARE: Final = 0.1  # of the median latency
FULL: Final = 0.9  # of the cap: batches that say what full ones answer; in `continuous` a place is empty for a step
Z_90: Final = 1.645  # standard errors to either side that hold nine of ten


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
        change: the settings that mend it, which `Settings.revised` takes; ``None`` where no setting does.
        expected: what that is expected to give, as a sentence, and on what this rests.
        undoes: the version of the settings that the change takes back, or ``None``.
    """

    rule: str
    severity: Severity
    title: str
    evidence: str = field(kw_only=True)
    data: Mapping[str, float] = field(kw_only=True, default_factory=dict)
    advice: str = field(kw_only=True, default="")
    control: str | None = field(kw_only=True, default=None)
    change: Mapping[str, object] | None = field(kw_only=True, default=None)
    expected: str = field(kw_only=True, default="")
    undoes: int | None = field(kw_only=True, default=None)

    @property
    def action(self) -> str:
        """What a button says that makes the change; empty where there is none.

        >>> Finding("r", "warning", "t", evidence="", change={"max_batch_size": 8, "formation": "late"}).action
        'Apply max_batch_size 8, late'
        >>> Finding("r", "info", "t", evidence="", change={"max_batch_size": 8}, undoes=3).action
        'Undo v3'
        """
        if self.change is None:
            return ""
        if self.undoes is not None:
            return f"Undo v{self.undoes}"
        values = (f"{name} {setting_text(value)}".removeprefix("formation ") for name, value in self.change.items())
        return f"Apply {', '.join(values)}"

    @property
    def observed(self) -> Finding:
        """What was seen, without what to do about it and what that is expected to give.

        >>> slow = Finding("r", "warning", "Slow", evidence="p95 2 s.", advice="Use late.", expected="p95 1 s")
        >>> slow.observed.evidence, slow.observed.advice, slow.observed.expected
        ('p95 2 s.', '', '')
        """
        return replace(self, advice="", control=None, change=None, expected="", undoes=None)


@dataclass(frozen=True)
class Rate:
    """Requests a second, and the interval that holds nine of ten."""

    per_s: float
    low_per_s: float
    high_per_s: float

    @property
    def words(self) -> str:
        """
        >>> Rate(14.5, 13.2, 15.81).words, Rate(14.5, 14.46, 14.53).words
        ('14.5 requests/s (13.2 to 15.8)', '14.5 requests/s')
        """
        low, high = (f"{rate:.1f}" for rate in (self.low_per_s, self.high_per_s))
        return per_second(self.per_s) + (f" ({low} to {high})" if high != low else "")


@dataclass(frozen=True)
class SeenCapacity:
    """What busy engines answer with full batches; where none was full yet, with the largest so far, so at least.

    Attributes:
        size: requests in each batch.
        is_full: whether that is the cap.
        tokens: of an answer, on average; of a function, its pieces.
    """

    size: int
    is_full: bool
    rate: Rate
    tokens: float

    @property
    def per_s(self) -> float:
        """Requests a second: the rate of full batches, else the lower end of the interval of the largest so far."""
        return self.rate.per_s if self.is_full else self.rate.low_per_s

    @property
    def words(self) -> str:
        """
        >>> rate = Rate(14.5, 13.2, 15.81)
        >>> SeenCapacity(16, True, rate, 24.0).words, SeenCapacity(3, False, rate, 24.0).words
        ('14.5 requests/s', 'at least 13.2 requests/s')
        """
        return per_second(self.per_s) if self.is_full else f"at least {per_second(self.per_s)}"


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

        Never before the settings were in force or the engine was slowed last, or longer ago than `FARTHEST_S`.
        """
        batches = self._batches_since(max(self.at_s - FARTHEST_S, self._judged_since_s))
        since_s, next_formed_s = max(self.at_s - WINDOW_S, self._judged_since_s), self.at_s
        ended_s = np.where(np.isnan(batches.finished), self.at_s, batches.finished)
        latest = slice(-1, -LEAST_BATCHES - 1, -1)
        for formed_s, end_s in zip(batches.formed[latest].tolist(), ended_s[latest].tolist(), strict=True):
            if next_formed_s - end_s > WINDOW_S:
                break
            since_s, next_formed_s = min(since_s, formed_s), formed_s
        return since_s

    @property
    def _judged_since_s(self) -> float:
        """Since when the settings are in force and nothing slowed the engine, unless something still does."""
        ends_s = [each.end_s for each in self.contentions if each.end_s is not None]
        return max([self.regime.start_s, *ends_s])

    @cached_property
    def contentions(self) -> tuple[Contention, ...]:
        """The stretches of the last minutes in which the engine was slowed."""
        return contentions(self.history, self.at_s)

    @property
    def disturbance(self) -> Contention | None:
        """The last of them, where it lasts or ended less than ten seconds ago: findings are then withheld."""
        return next((c for c in self.contentions[-1:] if c.overlaps(self.at_s - WINDOW_S, self.at_s)), None)

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
    def chunk_tokens(self) -> int:
        """Tokens of joining prompts that a step reads at most."""
        replicas = self.history.replicas
        return self.settings.chunk_tokens(replicas[0].device if replicas else "cpu")

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
        return self._batches_since(min(max(self.at_s - LONG_S, self._judged_since_s), self.since_s))

    def _batches_since(self, since_s: float) -> RecentBatches:
        return recent_batches(self.history, self.regime.number, since_s, self.at_s, self.settings.formation)

    @cached_property
    def previous_batches(self) -> RecentBatches | None:
        """The batches of the last ten seconds of the settings before."""
        before = self.history.batches.regime_before(self.regime)
        if before is None:
            return None
        end_s = self.history.batches.end_s(before)
        if any(contention.overlaps(end_s - WINDOW_S, end_s) for contention in self.contentions):
            return None
        formation = before.settings.formation if before.settings is not None else None
        return recent_batches(self.history, before.number, end_s - WINDOW_S, end_s, formation)

    @property
    def has_batches(self) -> bool:
        """Whether there are enough to judge by; two slow ones say as much as five, those that still run included."""
        count = len(self.batches)
        return count >= LEAST_BATCHES or (count >= LEAST_SLOW and float(self.batches.run_s.sum()) >= WINDOW_S)

    @property
    def full_share(self) -> float:
        """The share of full batches, or in `continuous` of the time in which all rows were taken."""
        return self.batches.share(self.batches.is_full)

    @cached_property
    def cost(self) -> CostModel | None:
        """The cost of recent batches; of another server's, whose members are not known, there is none."""
        if self.history.server:
            return None
        cost = CostModel.of_history(self.history, self.at_s, self.contentions)
        return None if cost is None else cost.under(self.settings.formation)

    @cached_property
    def capacity(self) -> SeenCapacity | None:
        """The capacity under the settings in force, of batches as large as those that ran."""
        if self.cost is None:
            return None
        largest = self.cost.sizes[1]
        is_full = largest >= FULL * self.cap
        size = self.cap if is_full else largest
        rate = self.rate(self.settings.revised({"max_batch_size": size}))
        tokens = self.cost.tokens * self.cost.pieces_per_token
        return None if rate is None else SeenCapacity(size, is_full, rate, tokens)

    def rate(self, settings: Settings) -> Rate | None:
        """What busy engines answer under these settings with full batches, where that is known well enough.

        Also where no batch was that large, for what a change may give; what is in force has its `capacity`.
        """
        if self.cost is None:
            return None
        cost, size = self.cost.under(settings.formation), settings.max_batch_size
        if not cost.is_sure_of(size):
            return None
        per_s = cost.capacity(size, self.replicas * settings.places).requests_per_s
        longer, shorter = (
            Z_90 * error_s / cost.batch_s(size) for error_s in (cost.longer_error_s(size), cost.batch_error_s(size))
        )
        return Rate(per_s, per_s / (1 + longer), per_s / (1 - shorter))

    @cached_property
    def memory_rows(self) -> int | None:
        """The rows that memory held at once, where it did not hold those of every batch."""
        batches = self.earlier_batches
        split = batches.splits > 0
        if not split.any():
            return None
        # What waits in `continuous` does so beside all rows that memory holds; elsewhere parts are about equal.
        parts = 1 if batches.is_open else batches.splits[split] + 1
        return int(np.min(np.ceil(batches.size[split] / parts)))

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

    @property
    def waited(self) -> str:
        """What `waiting` says, in words: it is no figure of now."""
        span_s = (self.at_s - self.since_s) / 5
        return f"{counted(self.waiting, 'request')} or more waited during half of the last {seconds(span_s)}"

    @cached_property
    def begun(self) -> Ints:
        """The places in the table of the requests that began to run."""
        started = self.history.requests.columns["started"]
        return np.flatnonzero((started > self.since_s) & (started <= self.at_s))

    @cached_property
    def latencies_s(self) -> Floats:
        """Of the requests that were answered under the settings in force."""
        samples = self.history.requests.samples
        finished = samples["finished"]
        within = (finished > self.since_s) & (finished <= self.at_s) & (samples["regime"] == self.regime.number)
        latencies_s: Floats = samples["latency"][within]
        return latencies_s

    @property
    def latency_p50_s(self) -> float | None:
        return float(np.median(self.latencies_s)) if len(self.latencies_s) else None

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
        """The last change of settings or load, or the end of what slowed the engine, at most half a minute ago."""
        changed = [since_s for since_s, _ in self.history.statuses.patterns if since_s <= self.at_s]
        first_s = self.history.first_s if self.history.first_s is not None else -np.inf
        return max([self.at_s - LONG_S, self._judged_since_s, first_s, *changed[-1:]])

    @cached_property
    def steady_arrivals(self) -> int:
        """The number of arrivals since `steady_since_s`."""
        return self._arrivals_since(self.steady_since_s)

    def _arrivals_since(self, since_s: float) -> int:
        columns = self.history.requests.columns
        arrived = np.minimum(columns["intended"], columns["received"])
        return int(np.count_nonzero((arrived > since_s) & (arrived <= self.at_s)))

    @property
    def arriving_per_s(self) -> float:
        """The declared rate, or what arrived in the last five seconds."""
        if self.declared_per_s is not None:
            return self.declared_per_s
        return self._arrivals_since(self.at_s - WINDOW_S / 2) / (WINDOW_S / 2)

    @property
    def offered_per_s(self) -> float | None:
        """The declared rate, or arrivals since `steady_since_s`; ``None`` where that is less than five seconds ago."""
        return None if self.offered is None else self.offered.per_s

    @property
    def offered(self) -> Rate | None:
        """The same with the error of counting: n arrivals by chance are n ± √n.

        Of a ramp, steps or a trace, those of the last ten seconds alone, where they are not as many as before.
        """
        if self.declared_per_s is not None:
            return Rate(self.declared_per_s, self.declared_per_s, self.declared_per_s)
        span_s, count = self.at_s - self.steady_since_s, self.steady_arrivals
        if span_s < WINDOW_S / 2:
            return None
        lately, fair = self._arrivals_since(self.at_s - WINDOW_S), count * WINDOW_S / span_s
        if span_s > WINDOW_S and abs(lately - fair) > Z_90 * math.sqrt(max(fair, 1.0)):
            span_s, count = WINDOW_S, lately
        error = Z_90 * math.sqrt(count)
        return Rate(count / span_s, max(count - error, 0.0) / span_s, (count + error) / span_s)

    @cached_property
    def refused(self) -> tuple[int, int]:
        """How many requests were refused, and of how many that came."""
        columns = self.history.requests.columns
        states = columns["state"][(columns["received"] > self.since_s) & (columns["received"] <= self.at_s)]
        return int(np.count_nonzero(states == STATE_CODES["refused"])), len(states)

    @cached_property
    def is_idle(self) -> bool:
        """Whether nothing is under way and nothing has come for a while, or the load that came has stopped."""
        columns = self.history.requests.columns
        begun = np.minimum(columns["sent"], columns["received"])
        ended = np.minimum(columns["finished"], columns["client_finished"])
        known = begun <= self.at_s
        if (ended[known] > self.at_s).any():
            return False
        return not known.any() or self.at_s - float(begun[known].max()) > WINDOW_S / 2


def share(which: Bools) -> float:
    return float(which.mean()) if len(which) else 0.0
