"""The robust fit behind the cost model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from service.analysis.observed.columns import Floats
from service.analysis.predict.executed import Executed

TERMS: Final = ("overhead_s", "prompt_token_s", "step_s", "row_s")
HALF_LIFE_S: Final = 90.0  # what is known of the prices fades,
LEVEL_HALF_LIFE_S: Final = 15.0  # and faster how fast the machine is as a whole
LEVEL_BATCHES: Final = 4.0  # so many batches are believed half when they say that the machine has changed
LEAST_NOISE: Final = 0.01
OUTLIER: Final = 3.0  # residuals beyond so many times the noise are cut down to that

# Shares of a typical batch's time that each term is thought to have, and how sure that is, before any batch is seen.
# It decides only what the batches leave open: requests of one length can't tell overhead from steps, and batches of
# one size can't tell steps from rows.
PRIOR_SHARES: Final = np.array([0.0, 0.03, 0.6, 0.3])
PRIOR_WIDTHS: Final = np.array([0.03, 0.1, 1.0, 1.0])


@dataclass(frozen=True)
class Fit:
    """Prices in the order of `TERMS`, their covariance, and measured over fitted time of each batch, outliers cut."""

    prices: Floats
    covariance: Floats
    residuals: Floats


def fit_cost(executed: Executed) -> Fit:
    """The prices that explain the batches best, where recent ones count more."""
    begins = np.where(executed.is_open, 0.0, 1.0)  # a piece of what goes on is not begun
    work = np.stack([begins, executed.prompt_tokens, executed.steps, executed.tokens], axis=1)
    units = _units(work, executed.run_s)
    ages_s = executed.finished_s.max() - executed.finished_s
    weights = np.exp2(-ages_s / HALF_LIFE_S)
    shares, noise = PRIOR_SHARES, 0.1
    for _ in range(2):  # the second time with the noise that the first has found
        shares = _solve(work * units, executed.run_s, weights, noise, shares)
        residuals = executed.run_s / (work @ (shares * units))
        noise = max(float(np.percentile(np.abs(np.log(residuals)), 68.0)), LEAST_NOISE)
    covariance = _covariance(work * units, executed.run_s, weights, noise)
    level = _level(residuals, ages_s)
    units = units * level
    most = np.exp(OUTLIER * noise)
    return Fit(shares * units, covariance * np.outer(units, units), np.clip(residuals / level, 1 / most, most))


def _units(work: Floats, run_s: Floats) -> Floats:
    """The price at which a term alone would take a typical batch's time; makes shares of prices."""
    typical = np.median(work, axis=0)
    typical[typical == 0] = max(float(work.max()), 1.0)
    units: Floats = np.median(run_s) / typical
    return units


def _solve(work: Floats, run_s: Floats, weights: Floats, noise: float, start: Floats) -> Floats:
    """The shares, none negative; soft_l1 lets a batch that was disturbed pull as hard as any other, but no harder."""
    from scipy.optimize import least_squares  # takes long to import, which a window that starts need not wait for

    roots = np.sqrt(weights) / noise

    def errors(shares: Floats) -> Floats:
        return np.concatenate([np.log(work @ shares / run_s) * roots, (shares - PRIOR_SHARES) / PRIOR_WIDTHS])

    def slopes(shares: Floats) -> Floats:
        return np.concatenate([work / (work @ shares)[:, None] * roots[:, None], np.diag(1.0 / PRIOR_WIDTHS)])

    lowest = np.array([0.0, 0.0, 1e-6, 0.0])  # a step is never free, so that no batch is
    begin = np.maximum(start, lowest + 1e-3)
    solution: Floats = least_squares(errors, begin, slopes, bounds=(lowest, np.inf), loss="soft_l1").x
    return solution


def _covariance(work: Floats, run_s: Floats, weights: Floats, noise: float) -> Floats:
    """Of the shares: from how steeply the batches' times depend on them, and from the prior where they do not."""
    slopes = work / run_s[:, None] * np.sqrt(weights)[:, None] / noise
    covariance: Floats = np.linalg.inv(slopes.T @ slopes + np.diag(PRIOR_WIDTHS**-2))
    return covariance


def _level(residuals: Floats, ages_s: Floats) -> float:
    """By what factor the latest batches took longer than the fit says; 1 as long as few say so."""
    weights = np.exp2(-ages_s / LEVEL_HALF_LIFE_S)
    order = np.argsort(residuals)
    median = residuals[order][np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)]
    trust = weights.sum() / (weights.sum() + LEVEL_BATCHES)
    return float(median**trust)
