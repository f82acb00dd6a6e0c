"""The mixture from any evidence about losses, and a client's verdict from its own noisy values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
from scipy.optimize import brentq, minimize
from scipy.special import expit

from fedgr_secure.method.evidence import Evidence, NoisyValues, Parameters, Vector
from fedgr_secure.method.sieve import Mixture, MixtureSettings, Verdict

Variances = Literal["free", "tied", "auto"]

_FLOOR = MixtureSettings().reg_covar
_FEWEST = 4
_TINY = 1e-9
_LARGEST_ODDS = float(np.log(99))  # less than a hundredth of the losses is no mode of its own


class _Family(NamedTuple):
    """How far apart two variances may be: their largest ratio, and the prior's deviation of its logarithm."""

    ratio: float
    deviation: float
    name: str


_FAMILIES: dict[Variances, _Family] = {
    "tied": _Family(1.0, 1.0, "tied variances"),
    "auto": _Family(2.0, 0.5, "variances within a factor of 2"),
    "free": _Family(1e4, 1.5, "free variances"),
}


class _Space(NamedTuple):
    """Where a fit may go: bounds of a point, and the prior's middle and precision, each float64 (5,).

    A point is the lower mean, the gap up to the other mean, the log of the lower component's variance above the floor,
    the log ratio of the other's to it, and the log odds of the lower component's weight.
    """

    low: Vector
    high: Vector
    middle: Vector
    precision: Vector


class _Optimum(NamedTuple):
    """Where a climb ended, and minus the log posterior there."""

    point: Vector
    objective: float


def fit_evidence(evidence: Evidence, *, seed: int, variances: Variances = "auto") -> Mixture:
    """The two-component mixture of largest posterior density, or why everything counts as clean.

    The climb starts from several splits of the evidence's outline. Evidence with noise meets a wide prior, scaled by
    the range of the losses, so that noise alone moves the fit to nothing odd; exact evidence meets none. All-clean is
    the answer when fewer than four losses were counted, or when one Gaussian explains the evidence as well (AIC,
    where a parameter that noise hides counts in part).

    Clean losses are skewed towards 0, so the likelihood always prefers a narrow clean component, from which right
    labels with middling losses fall out: AIC and BIC take free variances almost always, and verdicts are worse by up
    to ten points in a hundred than with tied ones. Tied variances are too wide where clean losses are all but 0. So
    "auto" does not ask the likelihood: the variances stay within a factor of 2 (Hathaway, 1985, bounds their
    ratio, since the likelihood of free variances has no maximum), and a prior draws them together under noise.

    >>> from fedgr_secure.method.evidence import RawValues
    >>> losses = np.concatenate([np.linspace(0, 0.6, 60), np.linspace(2, 3, 40)])
    >>> mixture = fit_evidence(RawValues(losses), seed=0)
    >>> [round(mean, 2) for mean in mixture.means], mixture.note
    ([0.3, 2.5], 'variances within a factor of 2')

    Args:
        evidence: exact or noisy losses, or the noisy counts of a histogram of them.
        seed: of one of the starts; equal seeds give equal fits.
        variances: tied, free, or between the two.
    """
    if evidence.size < _FEWEST:
        return _all_clean(0.0, 1.0, f"only {evidence.size:g} losses")
    family = _FAMILIES[variances]
    starts = list(_starts(*evidence.outline(), seed))
    space = _space(evidence, family)
    one = _climb(starts[0], _one(space), evidence)
    begun = sorted((_climb(start, space, evidence, steps=12) for start in starts), key=lambda found: found.objective)
    two = min((_climb(found.point, space, evidence) for found in begun[:2]), key=lambda found: found.objective)
    if _criterion(one, _one(space), evidence) <= _criterion(two, space, evidence):
        mean, variance = _parameters(one.point)[:2, 0]
        return _all_clean(mean, variance, "one mode: a single Gaussian explains the losses as well (AIC)")
    means, spreads, weights = ((float(a), float(b)) for a, b in _parameters(two.point))
    return Mixture(means, spreads, weights, note=family.name)


def noisy_verdict(mixture: Mixture, evidence: NoisyValues) -> Verdict:
    """q and r_k of one client from what the server holds: its noisy values.

    q_i = P(clean | noisy value). r_k is the wrong share under which the client's values are likeliest, the components
    being fixed. (Counting q < 0.5, as with exact values, draws every client towards one side: under much noise most
    values get the more frequent verdict.)
    """
    if mixture.all_clean:
        return Verdict(np.ones(len(evidence.values)), 0.0)
    densities = evidence.log_densities(np.array(mixture.means), np.array(mixture.variances))
    evident = densities[:, 0] - densities[:, 1]
    with np.errstate(divide="ignore"):
        log_odds = float(np.subtract(*np.log(mixture.weights)))
    return Verdict(expit(evident + log_odds), 1.0 - _clean_share(evident))


def _clean_share(evident: Vector) -> float:
    """The weight of largest likelihood from each value's log ratio of densities: the mean posterior equals it."""

    def excess(share: float) -> float:
        return float(np.mean(expit(evident + np.log(share) - np.log1p(-share)))) - share

    low, high = _TINY, 1 - _TINY
    if excess(low) <= 0:
        return 0.0
    return 1.0 if excess(high) >= 0 else float(brentq(excess, low, high, xtol=1e-9))


def _all_clean(mean: float, variance: float, note: str) -> Mixture:
    means, variances = (float(mean),) * 2, (float(variance),) * 2
    return Mixture(means, variances, (1.0, 0.0), all_clean=True, note="all clean: " + note)


def _parameters(point: Vector) -> Parameters:
    """Means, variances and weights at a point, float64 (3, 2)."""
    mean, gap, log_variance, log_ratio, log_odds = point
    variances = _FLOOR + np.exp([log_variance, log_variance + log_ratio])
    return np.array([[mean, mean + gap], variances, expit([log_odds, -log_odds])])


def _slopes(point: Vector, evidence: Evidence) -> tuple[float, Vector]:
    """The log likelihood at a point, and its derivatives by the point's coordinates."""
    parameters = _parameters(point)
    log_likelihood, (mean, variance, weight) = evidence.slopes(parameters)
    variance = variance * (parameters[1] - _FLOOR)
    odds = parameters[2].prod() * (weight[0] - weight[1])
    return log_likelihood, np.array([mean.sum(), mean[1], variance.sum(), variance[1], odds])


def _climb(start: Vector, space: _Space, evidence: Evidence, steps: int = 300) -> _Optimum:
    """The top of the posterior density above a start, or how far some steps lead."""

    def objective(point: Vector) -> tuple[float, Vector]:
        """Minus the log posterior and its slopes, for a minimiser."""
        log_likelihood, slopes = _slopes(point, evidence)
        off = point - space.middle
        return 0.5 * float(space.precision @ (off * off)) - log_likelihood, space.precision * off - slopes

    found = minimize(
        objective,
        np.clip(start, space.low, space.high),
        jac=True,
        method="L-BFGS-B",
        bounds=list(zip(space.low, space.high, strict=True)),
        options={"maxiter": steps, "ftol": 1e-10, "gtol": 1e-6},
    )
    return _Optimum(found.x, float(found.fun))


def _criterion(found: _Optimum, space: _Space, evidence: Evidence) -> float:
    """Half of Akaike's criterion of a penalised likelihood: its parameters count as far as the evidence settles them.

    A parameter counts the share of its curvature that is the likelihood's and not the prior's (Gray, 1992),
    so all of it without a prior. Counted in full, the parameters that noise hides would make every cohort one mode.
    """
    free = space.low < space.high
    if evidence.exact:
        return float(free.sum()) + found.objective
    steps = 1e-4 * np.eye(5)[free]
    rows = [_slopes(found.point - step, evidence)[1] - _slopes(found.point + step, evidence)[1] for step in steps]
    curvature = np.array(rows)[:, free] / 2e-4
    unit = 1 / np.sqrt(np.maximum(space.precision[free], _TINY))
    likelihood = np.maximum(np.linalg.eigvalsh((curvature + curvature.T) / 2 * np.outer(unit, unit)), 0.0)
    return float(np.sum(likelihood / (1 + likelihood))) + found.objective


def _space(evidence: Evidence, family: _Family) -> _Space:
    """Bounds and prior, scaled by the range of the losses.

    The prior of noisy evidence: the lower mean in the lower third or so of the range, the gap about half of it, each
    deviation between a twentieth and a quarter of it (95 %), weights between 5 and 95 %.
    """
    bottom, top = evidence.reach()
    span = max(top - bottom, 0.1)
    apart = np.log(family.ratio)
    middle = [bottom + 0.15 * span, 0.5 * span, 2 * np.log(span / 8), 0.0, 0.0]
    deviation = [0.3 * span, 0.3 * span, 0.7, family.deviation, 1.5]
    return _Space(
        low=np.array([bottom - 0.25 * span, 0.0, np.log(_FLOOR) - 3, -apart, -_LARGEST_ODDS]),
        high=np.array([top + 0.25 * span, span, 2 * np.log(2 * span), apart, _LARGEST_ODDS]),
        middle=np.array(middle),
        precision=np.zeros(5) if evidence.exact else np.square(1 / np.array(deviation)),
    )


def _one(space: _Space) -> _Space:
    """The space in which both components are the same Gaussian, anywhere in the range of the losses."""
    low, high, middle = (part.copy() for part in space[:3])
    low[[1, 3, 4]] = high[[1, 3, 4]] = 0.0
    middle[0] = (low[0] + high[0]) / 2
    return _Space(low, high, middle, space.precision * [0.36, 0, 1, 0, 0])


def _starts(losses: Vector, counts: Vector, seed: int) -> Iterator[Vector]:
    """Points from splits of the outline in two: where two means fit best, at three quantiles, and at one drawn."""
    cumulative = np.cumsum(counts)
    shares = np.array([0.25, 0.5, 0.75, np.random.default_rng(seed).uniform(0.1, 0.9)])
    cuts = np.searchsorted(cumulative, shares * cumulative[-1])
    for cut in dict.fromkeys(np.clip([_two_means(losses, counts), *cuts], 1, len(losses) - 1).tolist()):
        lower, upper = _moments(losses[:cut], counts[:cut]), _moments(losses[cut:], counts[cut:])
        odds = np.log(lower[2] / upper[2])
        yield np.array([lower[0], upper[0] - lower[0], lower[1], upper[1] - lower[1], odds])


def _moments(losses: Vector, counts: Vector) -> tuple[float, float, float]:
    """Mean, log of the variance above the floor, and count of one part of an outline."""
    counts = counts + _TINY
    mean = np.average(losses, weights=counts)
    variance = np.average(np.square(losses - mean), weights=counts)
    return float(mean), float(np.log(max(variance - _FLOOR, _FLOOR))), float(counts.sum())


def _two_means(losses: Vector, counts: Vector) -> int:
    """How many of the sorted losses belong to the lower of two means, by the smallest sum of squares."""
    below, moment = np.cumsum(counts)[:-1], np.cumsum(counts * losses)[:-1]
    total, whole = counts.sum(), counts @ losses
    between = np.square(moment - below * whole / total) / np.maximum(below * (total - below), _TINY)
    return int(np.argmax(between)) + 1
