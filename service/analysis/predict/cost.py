"""What a batch costs: its time as a function of its members, fitted to the batches that the engine executed.

A batch is static: its prompts are read, then each decode step gives every row that is left one token. So

    batch_s = overhead_s + prompt_token_s · prompt tokens + step_s · steps + row_s · tokens

which for requests of one length is the straight line ``a + b · size``. In `continuous` the same holds for any segment
of time, with the steps and tokens in it; the overhead is that of each reading of prompts of requests that join.

Where the engine reports how long the reading of a batch's prompts took, that and the decoding are fitted as two, since
batches of equally long requests do not separate the price of a prompt from that of a step.
The fit takes the residuals relatively (a disturbed machine is slower by a factor), is robust against outliers, and
knows its uncertainty: where all batches had the same size, nothing separates the price of a step from that of a row,
and the error for other sizes is wide.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from importlib import import_module
from typing import Final, NamedTuple

import numpy as np

from service.analysis.observed.batches import CONTINUOUS
from service.analysis.observed.columns import Bools, Floats, Ints
from service.analysis.observed.contention import Contention, contentions, during
from service.analysis.observed.history import History
from service.messages.settings import Formation

MOST_BATCHES: Final = 300
LONGEST_AGO_S: Final = 300.0
SLICE_S: Final = 0.5  # segments of a continuous batch are joined to slices of this run time
LEAST_BATCHES: Final = 3
BEYOND: Final = 0.1  # standard error for each doubling of the largest size, as a share: on 2 cores 3 to 16 gave 0.29
WIDE: Final = 0.25  # the relative standard error beyond which a time counts as unknown
TERMS: Final = ("overhead_s", "prompt_token_s", "step_s", "row_s")
HALF_LIFE_S: Final = 90.0  # of a batch's weight in the fit of the prices
LEVEL_HALF_LIFE_S: Final = 15.0  # of its weight in the speed of the machine as a whole
LEVEL_BATCHES: Final = 4.0  # after which another speed that they show counts half
LEAST_NOISE: Final = 0.01
DRIFT_S: Final = 10.0  # run time over which a mean speed is taken
USUAL_DRIFT: Final = 0.1  # standard deviation of the logarithm: virtual cores at times share a cache, and at times not
DRIFT_SPANS: Final = 3.0  # observed spans that count as much as the usual drift
OUTLIER: Final = 3.0  # times the noise, to which larger residuals are cut down,
HELD_UP: Final = 2.0  # or to this: batches that are held up now and then make the long latencies
# The prior: each term's share of a typical batch's time, and its standard deviation. It decides only what the batches
# leave open: requests of one length do not separate overhead from steps, nor batches of one size steps from rows.
PRIOR_SHARES: Final = np.array([0.0, 0.03, 0.6, 0.3])
PRIOR_WIDTHS: Final = np.array([0.03, 0.1, 1.0, 1.0])
LEAST_SHARES: Final = np.array([0.0, 0.0, 1e-6, 0.0])  # a step is never free, so that no batch is
LEAST_GAIN: Final = 1e-6  # by which a step of the fit has to lower the loss, as a share of it
DRAWN: Final = 64  # prices, of which the first possible ones are taken
MOST_STEPS: Final = 50
MOST_HALVINGS: Final = 10  # of a step that goes too far


def prepare() -> None:
    """Import what the first fit needs, which takes about a second of a core."""
    import_module("scipy.optimize")


@dataclass(frozen=True)
class Executed:
    """Executed batches, one entry each, in order of `finished_s`; segments of `continuous` are joined to half seconds.

    Attributes:
        size: rows, on average over the steps.
        steps: decode steps, as many as a batch's longest completion has tokens.
        tokens: generated for all members. A function's call is one step, with one token for each member.
        pieces: pieces of the members' answers; of text, as many as tokens.
        prompt_tokens: read before the first step, for all members, padding included.
        read_s: until the prompts were read and each member had its first token; 0 where that is not known.
        reads: how often prompts were read; in `continuous` only where requests joined.
        begun: requests that began to run in it.
        is_open: whether others could join.
    """

    size: Floats
    steps: Floats
    tokens: Floats
    pieces: Floats
    prompt_tokens: Floats
    run_s: Floats
    read_s: Floats
    finished_s: Floats
    reads: Floats
    begun: Floats
    is_open: Bools

    def __len__(self) -> int:
        return len(self.size)

    @classmethod
    def of_history(
        cls, history: History, at_s: float | None = None, slowed: Sequence[Contention] | None = None
    ) -> Executed:
        """The last batches that had ended at `at_s` (now), without those during which the engine was `slowed`."""
        latest_s = history.now_s() if at_s is None else at_s
        table = history.batches.columns
        chosen = (table["finished"] <= latest_s) & (table["finished"] > latest_s - LONGEST_AGO_S)
        chosen &= np.isfinite(table["started"]) & (table["tokens"] > 0) & (table["finished"] > table["started"])
        chosen &= table["started"] >= history.service_begun_s(latest_s)  # an earlier service may have had another model
        chosen &= table["started"] >= _places_since_s(history, latest_s)
        slowed = contentions(history, latest_s) if slowed is None else slowed
        chosen &= ~during(slowed, table["started"], table["finished"])
        rows = np.flatnonzero(chosen)
        rows = rows[np.argsort(table["finished"][rows], kind="stable")]
        executed = cls._of_rows(history, rows)._in_slices(table["slot"][rows])
        latest = np.argsort(executed.finished_s, kind="stable")[-MOST_BATCHES:]
        return cls(*(getattr(executed, field.name)[latest] for field in fields(cls)))

    @classmethod
    def _of_rows(cls, history: History, rows: Ints) -> Executed:
        table = history.batches.columns
        names = ("size", "steps", "tokens", "computed", "prompts", "saved")
        column = {name: table[name][rows].astype(float) for name in names}
        pieces = column["tokens"]
        is_open: Bools = table["formation"][rows] == CONTINUOUS
        is_known = column["steps"] > 0  # an engine that reports no work gave each member as many tokens
        steps = np.where(is_known, column["steps"], pieces / column["size"])
        is_call = pieces > (steps + 1) * column["size"]  # more than a step's rows and the prompts can give
        tokens = np.where(is_call, steps * column["size"], pieces)
        prompt_tokens = np.where(is_known, column["computed"] - (tokens - column["size"]), 0.0)
        prompt_tokens = np.where(is_open | (column["prompts"] > 0), column["prompts"], prompt_tokens)
        prompt_tokens += np.maximum(column["saved"], 0.0)  # so that a token costs what one of those to come will cost
        batch = history.requests.columns["batch"] - table.first
        joined = np.bincount(batch[batch >= 0], minlength=len(table))
        finished_s = table["finished"][rows]
        return cls(
            size=column["size"],
            steps=steps,
            tokens=tokens,
            pieces=pieces,
            prompt_tokens=np.maximum(prompt_tokens, 0.0),
            run_s=finished_s - table["started"][rows],
            read_s=np.where(is_open, 0.0, np.nan_to_num(table["prefill_s"][rows])),  # of an open one it is a share
            finished_s=finished_s,
            reads=np.where(is_open, column["prompts"] > 0, 1.0),
            begun=np.where(is_open, joined[rows], column["size"]),
            is_open=is_open,
        )

    @property
    def work(self) -> Floats:
        """What each batch is charged for, in the order of `TERMS`."""
        return np.stack([self.reads, self.prompt_tokens, self.steps, self.tokens], axis=1)

    @property
    def reading(self) -> Floats:
        """The part of `work` that was done when each member had its first token, which takes a step."""
        return np.stack([self.reads, self.prompt_tokens, np.ones(len(self)), self.size], axis=1)

    @property
    def pieces_per_token(self) -> float:
        """Pieces of answers for each token of work: 1, unless a function streams."""
        return float(self.pieces.sum() / self.tokens.sum())

    def _in_slices(self, slot: Ints) -> Executed:
        """Join segments of one engine in a row, since a segment can be as short as a step and is then mostly noise."""
        if not self.is_open.any():
            return self
        number = np.arange(len(self))  # of a slice on its engine; a batch that others could not join is one by itself
        kind = np.where(self.is_open, 2 * slot + (self.reads > 0), -1)  # apart, so that the price of reading shows
        for each in np.unique(kind[self.is_open]):
            mine = kind == each
            number[mine] = (np.cumsum(self.run_s[mine]) - self.run_s[mine] / 2) // SLICE_S
        slices = np.stack([kind, number], axis=1)
        _, slice_of = np.unique(slices, axis=0, return_inverse=True)
        sums = Executed(*(np.bincount(slice_of, getattr(self, field.name)).astype(float) for field in fields(self)))
        finished_s = np.full(len(sums), -np.inf)
        np.maximum.at(finished_s, slice_of, self.finished_s)
        is_open = sums.is_open > 0
        size = np.where(is_open, np.maximum(sums.tokens / sums.steps, 1.0), sums.size)
        return replace(sums, size=size, finished_s=finished_s, is_open=is_open)


@dataclass(frozen=True)
class Capacity:
    """The rates that busy engines reach with full batches."""

    max_batch_size: int
    requests_per_s: float
    tokens_per_s: float


@dataclass(frozen=True)
class CostModel:
    """The four prices, their uncertainty, and averages of the requests they were fitted to.

    Attributes:
        overhead_s, prompt_token_s, step_s, row_s: see the module.
        covariance: of these four, in this order.
        residuals: measured over fitted time of each batch; their spread is that of a single batch.
        run_s: time that each of them took.
        tokens, prompt_tokens: of a request, on average.
        pieces_per_token: as in `Executed`.
        longest_over_mean: tokens of a batch's longest completion over the mean of its members.
        sizes: smallest and largest observed size.
        is_open: whether others join its batches, so that the place of a finished request is taken at once.
    """

    overhead_s: float
    prompt_token_s: float
    step_s: float
    row_s: float
    covariance: Floats
    residuals: Floats
    run_s: Floats
    tokens: float
    prompt_tokens: float
    pieces_per_token: float
    longest_over_mean: float
    sizes: tuple[int, int]
    is_open: bool

    @classmethod
    def of_history(
        cls, history: History, at_s: float | None = None, slowed: Sequence[Contention] | None = None
    ) -> CostModel | None:
        """The model of the batches up to `at_s` (now); ``None`` for fewer than three. See `Executed.of_history`."""
        return cls.of_batches(Executed.of_history(history, at_s, slowed))

    @classmethod
    def of_batches(cls, executed: Executed) -> CostModel | None:
        """The model of these batches; ``None`` for fewer than three.

        >>> size, one = np.array([1.0, 2.0, 4.0, 8.0]), np.ones(4)
        >>> run_s, ends_s = 24 * (0.040 + 0.002 * size), np.arange(4.0)
        >>> zeros, tokens = 0 * one, 24 * size
        >>> batches = Executed(size, 24 * one, tokens, tokens, zeros, run_s, zeros, ends_s, one, size, size < 0)
        >>> cost = CostModel.of_batches(batches)
        >>> round(cost.batch_s(4), 2), round(cost.marginal_s, 3), round(cost.capacity(16).tokens_per_s)
        (1.15, 0.048, 222)
        """
        if len(executed) < LEAST_BATCHES:
            return None
        prices, covariance, residuals = _fit(executed)
        shared = (executed.size > 1) & ~executed.is_open
        longest = executed.steps[shared] * executed.size[shared] / executed.tokens[shared]
        requests = float(executed.begun.sum()) or float(executed.size.sum())
        return cls(
            **dict(zip(TERMS, map(float, prices), strict=True)),
            covariance=covariance,
            residuals=residuals,
            run_s=executed.run_s,
            tokens=float(executed.tokens.sum()) / requests,
            prompt_tokens=float(executed.prompt_tokens.sum()) / requests,
            pieces_per_token=executed.pieces_per_token,
            longest_over_mean=max(float(longest.mean()), 1.0) if len(longest) else 1.0,
            sizes=(int(executed.size.min()), round(executed.size.max())),
            is_open=False,
        )

    def under(self, formation: Formation) -> CostModel:
        """The same prices for batches of that formation."""
        return replace(self, is_open=formation == "continuous")

    def batch_s(self, size: float, tokens: float | None = None) -> float:
        """Time of a batch of `size` requests with `tokens` each (by default the observed average)."""
        return float(self._work(size, tokens) @ self._prices)

    def batch_error_s(self, size: float) -> float:
        """The standard error of `batch_s`."""
        return self._error(self._work(size))

    def longer_error_s(self, size: float) -> float:
        """The same towards longer times: the rows of a batch larger than any that ran may cost more, and never less."""
        beyond = BEYOND * max(math.log2(size / self.sizes[1]), 0.0)
        return math.hypot(self.batch_error_s(size), beyond * self.batch_s(size))

    def is_sure_of(self, size: float) -> bool:
        """Whether the time of a batch of this size is known well enough."""
        return self.batch_error_s(size) <= WIDE * self.batch_s(size)

    @property
    def marginal_s(self) -> float:
        """The time that one more average request adds to its batch."""
        return float(self._one_more @ self._prices)

    @property
    def marginal_error_s(self) -> float:
        return self._error(self._one_more)

    @property
    def spread(self) -> float:
        """The robust standard deviation of a single batch, as a share of its time."""
        return float(np.percentile(np.abs(np.log(self.residuals)), 68.0))

    def capacity(self, max_batch_size: int, replicas: int = 1) -> Capacity:
        """The capacity line at `max_batch_size`, for requests of average length."""
        batch_s = self.batch_s(max_batch_size) * float(self.residuals.mean())
        requests_per_s = replicas * max_batch_size / batch_s
        return Capacity(max_batch_size, requests_per_s, requests_per_s * self.tokens * self.pieces_per_token)

    def drawn(self, random: np.random.Generator) -> CostModel:
        """A model with other likely prices, none of them negative, drawn from their distribution."""
        prices = random.multivariate_normal(self._prices, self.covariance, DRAWN, method="svd")
        least = LEAST_SHARES * self.batch_s(1)
        possible = prices[(prices >= least).all(axis=1)]
        return self._priced(possible[0] if len(possible) else np.maximum(prices[0], least))

    def drifted(self, share: float) -> CostModel:
        """The model of the engine at another time, when it is slower than in this share of all times.

        Its speed changes between spans of `DRIFT_S`. The standard deviation of that is the spread of the spans' mean
        residuals beyond what single batches explain, or a usual value as far as too few were observed. Student's t has
        the tails that so uncertain a deviation gives.
        """
        from scipy.special import stdtrit  # slow to import, and not needed for the window's start

        logs, ends_s = np.log(self.residuals), np.cumsum(self.run_s)
        _, span, counts = np.unique(ends_s // DRIFT_S, return_inverse=True, return_counts=True)
        means = np.bincount(span, logs) / counts
        within = float(((logs - means[span]) ** 2).sum()) / max(len(logs) - len(means), 1)
        beyond = float(((means - means.mean()) ** 2).sum()) - (len(means) - 1) * within * float((1.0 / counts).mean())
        freedom = len(means) - 1 + DRIFT_SPANS
        drift = math.sqrt((max(beyond, 0.0) + DRIFT_SPANS * USUAL_DRIFT**2) / freedom)
        return self.slower(math.exp(drift * stdtrit(freedom, share)))

    def slower(self, factor: float) -> CostModel:
        """The model of an engine that takes `factor` times as long."""
        return self._priced(factor * self._prices)

    def ratios(self, executed: Executed) -> Floats:
        """What each of these batches took over what the model says, outliers and all."""
        result: Floats = executed.run_s / (executed.work @ self._prices)
        return result

    def _priced(self, prices: Floats) -> CostModel:
        return replace(self, **dict(zip(TERMS, prices.tolist(), strict=True)))

    @property
    def _prices(self) -> Floats:
        return np.array([getattr(self, term) for term in TERMS])

    @property
    def _one_more(self) -> Floats:
        return np.array([0.0, self.prompt_tokens, 0.0, self.tokens])

    def _work(self, size: float, tokens: float | None = None) -> Floats:
        each = self.tokens if tokens is None else tokens
        is_padded = size > 1 and tokens is None and not self.is_open
        steps = each * (self.longest_over_mean if is_padded else 1.0)
        return np.array([1.0, size * self.prompt_tokens, steps, size * each])

    def _error(self, work: Floats) -> float:
        return math.sqrt(max(float(work @ self.covariance @ work), 0.0))


def _fit(executed: Executed) -> tuple[Floats, Floats, Floats]:
    """The prices that explain the batches best, their covariance, and each batch's measured over fitted time.

    Recent batches have more weight, and large ones: the engine's speed changes within seconds, and a batch that takes
    as long as twenty others says as much of it. Outliers of the times are cut down.

    The prices are in the order of `TERMS`.
    """
    work = executed.work
    typical = np.median(work, axis=0)
    typical[typical == 0] = max(float(work.max()), 1.0)
    units = np.median(executed.run_s) / typical  # prices at which a term alone takes a typical batch's time
    ages_s = executed.finished_s.max() - executed.finished_s
    lasting = work @ (PRIOR_SHARES * units)  # by its work: one that was held up has no more weight for that
    timed = _timed(executed, np.exp2(-ages_s / HALF_LIFE_S) * lasting / lasting.mean())
    shares, noise = PRIOR_SHARES, np.full(len(timed.run_s), 0.1)
    for _ in range(2):  # the second time with the noise that the first has found
        shares = _solve(timed.work * units, timed.run_s, timed.weights, noise, shares)
        errors = np.abs(np.log(timed.run_s / (timed.work @ (shares * units))))
        for kind in np.unique(timed.kind):
            same = timed.kind == kind
            noise[same] = max(float(np.percentile(errors[same], 68.0)), LEAST_NOISE)
    slopes = timed.work * units / timed.run_s[:, None] * (np.sqrt(timed.weights) / noise)[:, None]
    covariance = np.linalg.inv(slopes.T @ slopes + np.diag(PRIOR_WIDTHS**-2))  # from the prior where slopes are flat
    residuals = executed.run_s / (work @ (shares * units))
    level = _level(residuals, ages_s)
    units = units * level
    spread = max(float(np.percentile(np.abs(np.log(residuals)), 68.0)), LEAST_NOISE)
    most = max(math.exp(OUTLIER * spread), HELD_UP)
    return shares * units, covariance * np.outer(units, units), np.clip(residuals / level, 1 / most, most)


class _Timed(NamedTuple):
    """Spans of time with the work that was done in them, and the `kind` of each span: those of a kind scatter alike."""

    work: Floats
    run_s: Floats
    weights: Floats
    kind: Ints


def _timed(executed: Executed, weights: Floats) -> _Timed:
    """The reading and the decoding of each batch as two spans where both are known, else the whole as one."""
    decoded, decoding_s = executed.work - executed.reading, executed.run_s - executed.read_s
    is_split = (executed.read_s > 0.0) & (decoding_s > 0.0) & (decoded[:, TERMS.index("step_s")] > 0.0)
    parts = (
        (executed.work, executed.run_s, ~is_split),
        (executed.reading, executed.read_s, is_split),
        (decoded, decoding_s, is_split),
    )
    return _Timed(
        work=np.concatenate([work[chosen] for work, _, chosen in parts]),
        run_s=np.concatenate([run_s[chosen] for _, run_s, chosen in parts]),
        weights=np.concatenate([weights[chosen] for _, _, chosen in parts]),
        kind=np.repeat(np.arange(len(parts)), [np.count_nonzero(chosen) for _, _, chosen in parts]),
    )


def _solve(work: Floats, run_s: Floats, weights: Floats, noise: Floats, start: Floats) -> Floats:
    """The shares, none negative; the soft_l1 loss bounds the weight of a disturbed batch.

    Gauss-Newton steps over reweighted, non-negative least squares (Holland and Welsch, "Robust regression using
    iteratively reweighted least-squares", 1977): the minimum that `scipy.optimize.least_squares` finds, in a quarter of
    its time, of which the window has little between two frames.
    """
    from scipy.optimize import nnls  # slow to import, and not needed for the window's start

    roots = np.sqrt(weights) / noise
    prior = np.diag(1.0 / PRIOR_WIDTHS)

    def errors(shares: Floats) -> Floats:
        return np.concatenate([np.log(work @ shares / run_s) * roots, prior @ (shares - PRIOR_SHARES)])

    def loss(errors: Floats) -> float:
        return float((np.sqrt(1.0 + errors**2) - 1.0).sum())

    shares = np.maximum(start, LEAST_SHARES + 1e-3)
    for _ in range(MOST_STEPS):
        now = errors(shares)
        slopes = np.concatenate([work / (work @ shares)[:, None] * roots[:, None], prior])
        trust = (1.0 + now**2) ** -0.25
        aim = nnls(slopes * trust[:, None], (slopes @ (shares - LEAST_SHARES) - now) * trust)[0] + LEAST_SHARES
        candidates = (shares + (aim - shares) / 2**halvings for halvings in range(MOST_HALVINGS))
        better = next((each for each in candidates if loss(errors(each)) < loss(now) * (1.0 - LEAST_GAIN)), None)
        if better is None:
            break
        shares = better
    return shares


def _level(residuals: Floats, ages_s: Floats) -> float:
    """The factor by which the latest batches took longer than the fit; close to 1 for few batches."""
    weights = np.exp2(-ages_s / LEVEL_HALF_LIFE_S)
    order = np.argsort(residuals)
    median = residuals[order][np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)]
    trust = weights.sum() / (weights.sum() + LEVEL_BATCHES)
    return float(median**trust)


def _places_since_s(history: History, at_s: float) -> float:
    """Since when as many batches run at a time as at `at_s`; batches that share an engine have other costs."""
    changes = [each for each in history.changes if each.in_force_s <= at_s]
    others = (each.in_force_s for each in reversed(changes) if each.previous.places != each.settings.places)
    return next(others, -np.inf)
