"""How well scores tell members from others: rates with intervals, and "undefined" where there are too few of either.

A higher score means "member". Rates at a low false positive rate are what counts (Carlini et al. 2022): an average can
look harmless where a few people are found for certain.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from fedgr_secure.errors import require

FALSE_POSITIVE_RATES = (0.1, 0.01, 0.001)
_RESAMPLES = 300

Scores = NDArray[np.float64]
Truths = NDArray[np.bool_]
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Interval:
    """A figure with its 95 % confidence interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True)
class OperatingPoint:
    """The true positive rate at a false positive rate.

    Attributes:
        wanted: the false positive rate that was asked for.
        realised: that of the best threshold within it, with a Clopper-Pearson interval; lower where scores tie or part
            perfectly.
        tpr: with a Clopper-Pearson interval.
    """

    wanted: float
    realised: Interval
    tpr: Interval

    @property
    def better_than_guessing(self) -> bool:
        """Whether the two intervals are apart: more members are found than others taken for members."""
        return self.tpr.low > self.realised.high


@dataclass(frozen=True)
class Metrics:
    """Scores against the truth.

    Attributes:
        members, others: how many of each.
        auc: area under the ROC curve, with a bootstrap interval.
        points: at each of `FALSE_POSITIVE_RATES`; None (undefined) with fewer others than one over the rate.
        balanced_accuracy: of the best threshold, chosen in hindsight.
        advantage: its true minus its false positive rate.
    """

    members: int
    others: int
    auc: Interval
    points: tuple[OperatingPoint | None, ...]
    balanced_accuracy: float
    advantage: float


def evaluate(scores: Scores, member: Truths, *, seed: int = 0) -> Metrics | None:
    """The metrics of an attack's scores; None (undefined) without a member or without another.

    Args:
        scores: float64 (n,), higher for members; minus infinity is allowed.
        member: bool (n,).
        seed: of the bootstrap.

    Raises:
        InputError: other shapes, or a score that is no number.
    """
    check_scores(scores, member)
    members, others = int(member.sum()), int((~member).sum())
    if not members or not others:
        return None
    fpr, tpr = roc(scores, member)
    best = float((tpr - fpr).max())
    return Metrics(
        members=members,
        others=others,
        auc=_auc(scores, member, np.random.default_rng(seed)),
        points=tuple(_point(fpr, tpr, wanted, members, others) for wanted in FALSE_POSITIVE_RATES),
        balanced_accuracy=(1 + best) / 2,
        advantage=best,
    )


def check_scores(scores: Scores, member: Truths) -> None:
    """Refuse scores that cannot be ranked against the truth."""
    fits = scores.ndim == 1 and scores.shape == member.shape and member.dtype == np.bool_
    require(
        fits, f"scores: {list(scores.shape)} for {member.dtype}{list(member.shape)}, allowed: one for each candidate"
    )
    require(not np.isnan(scores).any(), "scores: not a number, allowed: numbers, minus infinity for the least")


def roc(scores: Scores, member: Truths) -> tuple[Scores, Scores]:
    """False and true positive rates of every threshold, rising, from (0, 0) to (1, 1)."""
    from sklearn.metrics import roc_curve

    fpr, tpr, _ = roc_curve(member, np.nan_to_num(scores, neginf=-1e300, posinf=1e300), drop_intermediate=False)
    return fpr, tpr


def clopper_pearson(hits: int, trials: int, *, confidence: float = 0.95) -> Interval:
    """A rate with its exact two-sided interval (Clopper and Pearson 1934).

    >>> print(clopper_pearson(0, 100))
    0.000 [0.000, 0.036]
    """
    require(
        0 <= hits <= trials and trials > 0, f"hits: {hits} of {trials}, allowed: from 0 to the trials, at least one"
    )
    tail = (1 - confidence) / 2
    low = float(beta.ppf(tail, hits, trials - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1 - tail, hits + 1, trials - hits)) if hits < trials else 1.0
    return Interval(hits / trials, low, high)


def share(right: NDArray[np.bool_]) -> Interval | None:
    """The share of right answers with its interval; None without an answer."""
    return clopper_pearson(int(right.sum()), right.size) if right.size else None


def correlation(estimates: Scores, truth: Scores) -> Interval | None:
    """Pearson's correlation with Fisher's interval; None with fewer than four pairs or without spread."""
    from scipy.stats import NearConstantInputWarning, pearsonr

    known = np.isfinite(estimates) & np.isfinite(truth)
    if known.sum() < 4 or np.ptp(estimates[known]) == 0 or np.ptp(truth[known]) == 0:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NearConstantInputWarning)  # one estimate may be 1e38, and hides all others
        found = pearsonr(estimates[known], truth[known])
    low, high = found.confidence_interval(0.95)
    return Interval(float(found.statistic), float(low), float(high))


def _point(fpr: Scores, tpr: Scores, wanted: float, members: int, others: int) -> OperatingPoint | None:
    """The best threshold whose false positive rate is within the wanted one; of equals, the one with fewest others."""
    if others < math.ceil(1 / wanted - 1e-9):
        return None
    within = int(np.searchsorted(fpr, wanted + 1e-12, side="right"))
    at = int(tpr[:within].argmax())
    taken, found = round(float(fpr[at]) * others), round(float(tpr[at]) * members)
    return OperatingPoint(wanted, clopper_pearson(taken, others), clopper_pearson(found, members))


def _auc(scores: Scores, member: Truths, draw: np.random.Generator) -> Interval:
    """The area as a rank statistic, and the middle 95 % of stratified resamples (Efron and Tibshirani 1993)."""
    inside, outside = np.sort(scores[member]), np.sort(scores[~member])
    under, upto = (np.searchsorted(outside, inside, side=side) for side in ("left", "right"))

    def area(times_inside: Counts, times_outside: Counts) -> float:
        """P[a member's score is above another's] + half of the ties, where each score is there so many times."""
        below = np.concatenate([[0], np.cumsum(times_outside)])
        return float(times_inside @ (below[under] + below[upto]) / (2 * times_inside.sum() * times_outside.sum()))

    def resampled(count: int) -> Counts:
        return np.bincount(draw.integers(0, count, count), minlength=count)

    areas = [area(resampled(inside.size), resampled(outside.size)) for _ in range(_RESAMPLES)]
    low, high = np.quantile(areas, [0.025, 0.975])
    return Interval(area(np.ones_like(under), np.ones(outside.size, np.int64)), float(low), float(high))
