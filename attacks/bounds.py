"""Lower bounds on epsilon from how well an attack tells two neighbouring data sets apart.

Pure statistics: scores and coins come in, a bound that holds with a stated probability goes out. Every bound takes
`alpha`, the probability with which it may be above the truth; who takes the largest of several adds theirs up.

* `two_sample`: for any mechanism (Jagielski, Ullman and Oprea 2020, section 4; the threshold is chosen on other trials,
  since the best of all thresholds on the same trials is above the truth too often).
* `one_run`: for any mechanism, whatever its noise on one canary has to do with that on another (Steinke, Nasr and
  Jagielski 2023, theorem 5.2).
* `gaussian_sum`: mu of scores that are Gaussian, exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc, betaincinv, nctdtr, ndtr, ndtri
from scipy.stats import binom

from attacks.metrics import Scores, Truths
from fedgr_secure.errors import require

_CANDIDATES = 400
"""thresholds that are tried"""
_MOST_EPSILON = 100.0
_NO_NOISE = 1e-9
_LARGE_T = 1000.0
"""t statistics from which the noncentral t distribution is taken for its limit"""


@dataclass(frozen=True)
class Rates:
    """What thresholds do at least and at most, each pair of limits with probability 1 - alpha together.

    Attributes:
        tpr: lower limits of P[score >= threshold | the canary is there].
        fpr: upper limits of P[score >= threshold | it is not].
    """

    tpr: NDArray[np.float64]
    fpr: NDArray[np.float64]


def rates(scores: Scores, truth: Truths, thresholds: Scores, *, alpha: float) -> Rates:
    """The rates of each threshold, with one-sided Clopper-Pearson limits at alpha / 2 each.

    Args:
        scores: float64 (n,), one for each independent trial.
        truth: bool (n,), whether the canary was there.
        thresholds: float64 (k,); fixed without a look at these scores.
        alpha: the probability that either limit of one threshold is wrong.
    """
    check_trials(scores, truth)
    hits, trials = _at_least(scores[truth], thresholds), int(truth.sum())
    false, others = _at_least(scores[~truth], thresholds), int((~truth).sum())
    return Rates(_lower(hits, trials, alpha / 2), 1 - _lower(others - false, others, alpha / 2))


def two_sample(found: Rates, delta: float) -> NDArray[np.float64]:
    """The least epsilon of each threshold's rates: of the event, and with the roles swapped of its complement.

    Both directions need the same two limits, so that taking the larger costs nothing.

    >>> two_sample(Rates(np.array([0.5]), np.array([0.1])), 0.0).round(3)
    array([1.609])
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        there = np.log(np.maximum(found.tpr - delta, 0.0) / found.fpr)
        missing = np.log(np.maximum(1 - found.fpr - delta, 0.0) / (1 - found.tpr))
    return np.asarray(np.maximum(0.0, np.fmax(there, missing)))


def gaussian_mu(found: Rates) -> NDArray[np.float64]:
    """The least mu of each threshold's rates: mu = Phi^-1(TPR) - Phi^-1(FPR) (Nasr et al. 2023, section 4.3).

    A mechanism with these rates is not mu'-GDP for any smaller mu'. Its epsilon at a delta follows only if its
    trade-off function is a Gaussian one (Dong, Roth and Su 2022): an assumption that a claim of Gaussian noise makes.
    """
    with np.errstate(invalid="ignore"):
        return np.asarray(np.maximum(0.0, np.nan_to_num(ndtri(found.tpr) - ndtri(found.fpr), nan=0.0, neginf=0.0)))


def best_threshold(
    scores: Scores, truth: Truths, bound: Callable[[Rates], NDArray[np.float64]], *, alpha: float
) -> float:
    """The threshold with the largest bound on these trials, where it is too large: measure on others."""
    ordered = np.unique(scores)
    ends = np.geomspace(1, ordered.size, _CANDIDATES // 4).astype(np.int64) - 1
    evenly = np.linspace(0, ordered.size - 1, _CANDIDATES // 2).astype(np.int64)
    thresholds = ordered[np.unique(np.concatenate([ends, ordered.size - 1 - ends, evenly]))]
    return float(thresholds[np.argmax(bound(rates(scores, truth, thresholds, alpha=alpha)))])


def one_run_p_value(*, canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """How likely so many right guesses are at most under (epsilon, delta), whatever the mechanism.

    Steinke, Nasr and Jagielski 2023, theorem 5.2, in the form of their appendix D: with W binomial of r tries that
    succeed with probability e^epsilon / (1 + e^epsilon), P[W >= v] + 2 m delta max over i of P[v > W >= v - i] / i.

    Args:
        canaries: m, each in or out by its own fair coin.
        guesses: r, how many are guessed; fixed beforehand.
        right: v.
        epsilon, delta: of the hypothesis.
    """
    require(0 <= right <= guesses <= canaries, f"right guesses: {right} of {guesses} on {canaries} canaries")
    success = 1 / (1 + math.exp(-epsilon))
    value = float(bdtrc(right - 1, guesses, success))
    if delta and right:
        below = np.cumsum(binom.pmf(np.arange(right - 1, -1, -1), guesses, success))
        value += 2 * canaries * delta * float((below / np.arange(1, right + 1)).max())
    return min(value, 1.0)


def one_run(scores: Scores, truth: Truths, *, guesses: int, delta: float, alpha: float) -> float:
    """The least epsilon of one run with a canary for each score, guessing the most extreme ones.

    Args:
        scores: float64 (m,), around 0; far above: there, far below: not.
        truth: bool (m,), fair independent coins.
        guesses: how many of each side together; fixed without a look at the scores.
        delta: of the claim.
        alpha: the probability that the bound is above the truth.
    """
    check_trials(scores, truth)
    order, half = np.argsort(scores, kind="stable"), guesses // 2
    right = int((~truth[order[:half]]).sum() + truth[order[scores.size - half :]].sum())

    def refuted(epsilon: float) -> bool:
        p_value = one_run_p_value(canaries=scores.size, guesses=2 * half, right=right, epsilon=epsilon, delta=delta)
        return p_value <= alpha

    return largest(refuted, _MOST_EPSILON)


def gaussian_sum(scores: Scores, truth: Truths, *, alpha: float) -> float:
    """The least mu of Gaussian scores of one unknown spread: by how many spreads the two means differ.

    The sum of Gaussian scores is Gaussian, and the difference of the means over the pooled spread a noncentral t
    variable, so the test is exact for Gaussian rows (a discrete Gaussian of sd 1 or more has their moments to 1e-7).
    It assumes what `gaussian_mu` assumes, and independent noise on each canary; it needs no threshold and no split.
    """
    check_trials(scores, truth)
    there, missing = scores[truth], scores[~truth]
    freedom = scores.size - 2
    pooled = math.sqrt((there.size * there.var() + missing.size * missing.var()) / freedom)
    apart = float(there.mean() - missing.mean())
    if pooled <= _NO_NOISE * abs(apart):
        return 0.0  # scores without noise are not Gaussian
    root = math.sqrt(there.size * missing.size / scores.size)
    t = apart / pooled * root
    return largest(lambda mu: _above(t, freedom, mu * root) <= alpha, max(t, 0.0) / root)


def largest(refuted: Callable[[float], bool], high: float, low: float = 0.0) -> float:
    """The end of the values from `low` to `high` that are refuted, from below, by bisection; `low` if none is."""
    for _ in range(40):
        middle = (low + high) / 2
        if refuted(middle):
            low = middle
        else:
            high = middle
    return low


def check_trials(scores: Scores, truth: Truths) -> None:
    """Refuse trials that no bound can be taken from."""
    fits = scores.ndim == 1 and scores.shape == truth.shape and truth.dtype == np.bool_
    require(fits, f"scores: {list(scores.shape)} for {truth.dtype}{list(truth.shape)}, allowed: one for each trial")
    require(bool(np.isfinite(scores).all()), "scores: not finite, allowed: finite numbers")
    least = min(int(truth.sum()), int((~truth).sum()))
    require(least >= 2, f"trials: {least} of one kind, allowed: at least 2 of each")


def _at_least(scores: Scores, thresholds: Scores) -> NDArray[np.int64]:
    return scores.size - np.searchsorted(np.sort(scores), thresholds, side="left")


def _lower(hits: NDArray[np.int64], trials: int, alpha: float) -> NDArray[np.float64]:
    """One-sided lower limits of rates (Clopper and Pearson 1934)."""
    limits = betaincinv(np.maximum(hits, 1), trials - hits + 1, alpha)
    return np.where(hits > 0, limits, 0.0)


def _above(t: float, freedom: int, shift: float) -> float:
    """P[T > t] of a noncentral t variable; far out by the normal limit (Johnson and Welch 1940)."""
    if t < _LARGE_T:
        return 1 - float(nctdtr(freedom, shift, t))
    return float(ndtr((shift - t) / math.sqrt(1 + t * t / (2 * freedom))))
