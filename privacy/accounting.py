"""What noise is worth: epsilon and delta of Gaussian, discrete Gaussian and discrete Laplace noise, without sampling.

Pure functions. Everything is computed for the worst pair of neighbouring data sets and composes adaptively: the
releases may depend on each other. No amplification by sampling is claimed. Where a bound is rounded or approximated,
it is the side that promises less: epsilon, delta and scales are never too small.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx, ndtr

from privacy.errors import SCALES, check_scale, check_whole, is_number, require

LATTICE = 1e4
"""sd up to which sums over the integers are added term by term; above, a proved bound is as sharp to a millionth"""
MOST_TAU = 1e-3
"""how far, in nats, sums of discrete Gaussians may be from a discrete Gaussian"""
MOST_SHIFT = 2**53
MOST_VARIABLES = 10**6
ROUNDING = 1 + 1e-9
"""delta is raised by this factor, more than floating point can have taken from it"""


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Delta of the Gaussian mechanism, exactly (Balle and Wang 2018, theorem 8; Dong et al. 2022, corollary 1).

    Args:
        epsilon: nats, from 0.
        mu: sqrt(releases) * L2 sensitivity / sigma; 0 is no release, infinity is no noise.

    >>> round(gaussian_delta(1.0, 1 / 3.731), 7)
    1e-05
    """
    require(_finite(epsilon) and epsilon >= 0, f"epsilon: {epsilon!r}, allowed: finite, from 0")
    require(is_number(mu) and mu >= 0, f"mu: {mu!r}, allowed: from 0")
    return _continuous(float(epsilon), float(mu))


def gaussian_epsilon(delta: float, mu: float) -> float:
    """Epsilon of the Gaussian mechanism at delta; 0 where delta covers the whole distance, infinity without noise.

    Args:
        delta: above 0, below 1.
        mu: as in `gaussian_delta`.
    """
    _check_delta(delta)
    require(is_number(mu) and mu >= 0, f"mu: {mu!r}, allowed: from 0")
    mu = float(mu)
    high = mu * mu / 2 + mu * _tail_quantile(delta)
    if math.isinf(high):
        return math.inf
    if _continuous(0.0, mu) <= delta:
        return 0.0
    return _smallest(lambda epsilon: _continuous(epsilon, mu) <= delta, 0.0, high, 1e-12)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest mu, that is the least noise, with which the Gaussian mechanism has epsilon at delta.

    >>> round(1 / gaussian_mu(1.0, 1e-5), 3)
    3.731
    """
    _check_epsilon(epsilon)
    _check_delta(delta)
    tail = _tail_quantile(delta)
    high = (math.sqrt(tail * tail + 2 * epsilon) + tail) / (
        2 * epsilon
    )  # sigma over sensitivity at which the tail fits
    return 1 / _smallest(lambda ratio: _continuous(epsilon, 1 / ratio) <= delta, 0.0, high, 1e-12)


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Epsilon at delta of rho-zCDP (Canonne, Kamath and Steinke 2020, proposition 12), a little above the least.

    Discrete Gaussian noise of sigma against a move of s is s^2 / (2 sigma^2)-zCDP, and rho adds up: for releases of
    unequal noise, whose sum `discrete_gaussian_epsilon` does not cover. Some 8 percent more than the exact value.

    Args:
        rho: above 0.
        delta: above 0, below 1.
    """
    require(_finite(rho) and rho > 0, f"rho: {rho!r}, allowed: finite, above 0")
    _check_delta(delta)
    orders = 1 + np.logspace(-3, 6, 20_000)
    bounds = rho * orders + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
    return float(max(0.0, bounds.min()))


def zcdp_rho(epsilon: float, delta: float) -> float:
    """The largest rho, that is the least noise, with which rho-zCDP has epsilon at delta."""
    _check_epsilon(epsilon)
    high = 1.0
    while zcdp_epsilon(1 / high, delta) > epsilon:
        high *= 2
    return 1 / _smallest(lambda inverse: zcdp_epsilon(1 / inverse, delta) <= epsilon, 0.0, high, 1e-9)


def zcdp_curve(orders: ArrayLike, rho: float) -> NDArray[np.float64]:
    """Renyi divergence of rho-zCDP at each order above 1: their product (Bun and Steinke 2016, definition 1.1)."""
    return np.asarray(orders, np.float64) * rho


def pure_curve(orders: ArrayLike, epsilon: float) -> NDArray[np.float64]:
    """Renyi divergence of pure epsilon at each order above 1, at most (Bun and Steinke 2016, proposition 3.3)."""
    return np.minimum(zcdp_curve(orders, epsilon**2 / 2), epsilon)


def discrete_gaussian_curve(
    orders: ArrayLike, *, sigma: float, shift: int, coordinates: int, summands: int = 1
) -> NDArray[np.float64]:
    """Renyi divergence, at each order above 1, of what `discrete_gaussian_delta` describes, at most.

    With the notation there: the pmf of the noise is e^(n max h) that of N(V)^n at most, and e^(n min h) at least, where
    max h - min h <= tau and min h <= 0. Hence D_a <= (a max h + (1 - a) min h) n / (a - 1) + a n d^2 / 2V, and the
    first term is at most a A / (a - 1). The second is that of N(V) (Canonne, Kamath and Steinke 2020, proposition 5).
    """
    _check_noise(sigma, shift, coordinates, summands)
    single, _ = _taus(sigma, coordinates, summands)
    order = np.asarray(orders, np.float64)
    return order / (order - 1) * single + zcdp_curve(order, coordinates * shift**2 / (2 * summands * sigma**2))


def laplace_epsilon(l1_sensitivity: int, scale: float, releases: int) -> float:
    """Epsilon, at delta 0, of discrete Laplace noise: the pmf falls by exactly exp(-1 / scale) a step.

    Args:
        l1_sensitivity: by how much one release moves, in grid units, summed over its coordinates.
        scale: of the noise, in grid units.
        releases: of the same data, each with fresh noise.
    """
    check_scale("scale", scale)
    return _laplace_steps(l1_sensitivity, releases) / scale


def laplace_scale(epsilon: float, l1_sensitivity: int, releases: int) -> float:
    """The smallest scale that is accepted and with which `laplace_epsilon` is at most `epsilon`."""
    _check_epsilon(epsilon)
    steps = _laplace_steps(l1_sensitivity, releases)
    scale = max(steps / float(epsilon), SCALES[0])
    while steps / scale > epsilon:
        scale = math.nextafter(scale, math.inf)
    check_scale(f"scale for epsilon {epsilon}", scale)
    return scale


def discrete_gaussian_delta(epsilon: float, *, sigma: float, shift: int, coordinates: int, summands: int = 1) -> float:
    r"""An upper bound on delta of integer noise that is a sum of `summands` discrete Gaussians.

    Args:
        epsilon: nats, above 0.
        sigma: scale of each discrete Gaussian, in grid units.
        shift: the most that one coordinate moves between neighbouring data sets, in grid units.
        coordinates: that move, over all releases together.
        summands: independent discrete Gaussians that are added on each coordinate, such as one of each client.

    Raises:
        PrivacyError: sigma is so small that a sum of discrete Gaussians is no discrete Gaussian any more.

    Write d = shift, n = coordinates, m = summands, V = m sigma^2, N(v) for the discrete Gaussian with pmf proportional
    to exp(-x^2 / 2v).

    1. The worst move. Sums of discrete Gaussians are log-concave, so that the likelihood ratio of a shifted pair is
       monotone and a smaller move of a coordinate is dominated by d; dominated pairs compose, also adaptively. Signs
       do not matter: the noise is symmetric.
    2. Sums (Kairouz, Liu and Steinke 2021). Adding N(k sigma^2) and N(sigma^2) and completing the square, the ratio of
       the pmf at z to that of N((k+1) sigma^2) is K theta(c z), where theta(x) = 1 + 2 sum_j q^(j^2) cos(2 pi j x),
       q = exp(-2 pi^2 sigma^2 k/(k+1)), by Poisson summation. By the triple product theta is largest at 0 and smallest
       at 1/2, so log(theta) varies by at most log((1+q) / (1-q) / (1-2q)) <= 5q for q <= 0.2. By induction the log
       ratio h of a sum of m to N(m sigma^2) has max h - min h <= tau(m, sigma) = 5 sum_{k<m} q_k, and
       min h <= 0 <= max h since both are pmfs. (Half of the 10 of the paper: both directions share one variation.)
    3. Each coordinate. Let A = n tau(m, sigma). The joint pmf is at most e^(n max h) times that of N(V)^n for one data
       set and at least e^(n min h) times for the other. Hence delta(epsilon) <= e^A delta_1(epsilon - A), where
       delta_1 is that of n coordinates with N(V). A is 0 for one summand.
    4. All coordinates. For N(V)^n the loss at z is (d/V)(u + nd/2), linear in the sum u of the noise, whose pmf is at
       most e^B times that of N(nV), B = tau(n, sqrt(V)). What is summed below is not negative, so that
           delta_1(e) <= e^B sum_{u > t} g(u) (1 - exp(-(d/V)(u - t))) = e^B (P[N > t] - e^e P[N > t + nd])
       with t = eV/d - nd/2 and g the pmf of N(nV): the hockey stick of one discrete Gaussian that moves by nd.

    >>> f"{discrete_gaussian_delta(1.0, sigma=11.8, shift=1, coordinates=10):.3g}"
    '9.96e-06'
    """
    _check_epsilon(epsilon)
    _check_noise(sigma, shift, coordinates, summands)
    return _discrete(epsilon, sigma, shift, coordinates, summands)


def discrete_gaussian_epsilon(delta: float, *, sigma: float, shift: int, coordinates: int, summands: int = 1) -> float:
    """The epsilon at delta of what `discrete_gaussian_delta` describes; 0 where delta covers the whole distance."""
    _check_delta(delta)
    _check_noise(sigma, shift, coordinates, summands)

    def holds(epsilon: float) -> bool:
        return _discrete(epsilon, sigma, shift, coordinates, summands) <= delta

    if holds(0.0):
        return 0.0
    high = max(gaussian_epsilon(delta, shift / sigma * math.sqrt(coordinates / summands)), MOST_TAU)
    while not holds(high):
        high *= 1.1
    return _smallest(holds, 0.0, high, 1e-9)


def discrete_gaussian_sigma(epsilon: float, delta: float, *, shift: int, coordinates: int, summands: int = 1) -> float:
    """The smallest sigma, to a ten-millionth, for which `discrete_gaussian_delta` at epsilon is at most delta.

    Use the value that comes back, not a larger one without asking `discrete_gaussian_delta`: where the privacy loss
    takes few values, that is where shift / (summands sigma^2) is not small against epsilon, delta rises again here and
    there with a larger sigma. (It never rises with more summands: they are post-processing.)
    """
    _check_epsilon(epsilon)
    _check_delta(delta)
    _check_counts(shift, coordinates, summands)

    def holds(sigma: float) -> bool:
        return _discrete(epsilon, sigma, shift, coordinates, summands) <= delta

    low = _smallest_sigma(coordinates, summands)
    if holds(low):
        return low
    high = max(low, shift * math.sqrt(coordinates / summands) / gaussian_mu(epsilon, delta))
    while not holds(high):
        high *= 1.1
    check_scale(f"sigma for epsilon {epsilon}", high)
    return _smallest(holds, low, high, 1e-7)


def _finite(value: float) -> bool:
    """Whether `value` is a finite real number."""
    return is_number(value) and abs(value) <= sys.float_info.max


def _check_epsilon(epsilon: float) -> None:
    """Refuse what no budget can be."""
    require(_finite(epsilon) and epsilon > 0, f"epsilon: {epsilon!r}, allowed: finite, above 0")


def _check_delta(delta: float) -> None:
    """Refuse what no failure probability of a claim can be."""
    require(is_number(delta) and 0 < delta < 1, f"delta: {delta!r}, allowed: above 0, below 1")


def _check_counts(shift: int, coordinates: int, summands: int) -> None:
    """Refuse counts that are none."""
    check_whole("shift", shift, 1, MOST_SHIFT)
    check_whole("coordinates", coordinates, 1, MOST_VARIABLES)
    check_whole("summands", summands, 1, MOST_VARIABLES)


def _check_noise(sigma: float, shift: int, coordinates: int, summands: int) -> None:
    """Refuse noise for which the bound is not proved to be sharp."""
    check_scale("sigma", sigma)
    _check_counts(shift, coordinates, summands)
    least = _smallest_sigma(coordinates, summands)
    require(
        sigma >= least,
        f"sigma: {sigma!r}, allowed: at least {math.ceil(least * 1e4) / 1e4} grid units with {coordinates} coordinates "
        f"and {summands} summands",
    )


def _laplace_steps(l1_sensitivity: int, releases: int) -> int:
    """Grid units that all releases move together."""
    check_whole("l1_sensitivity", l1_sensitivity, 1, MOST_SHIFT)
    check_whole("releases", releases, 1, MOST_VARIABLES)
    return int(l1_sensitivity) * int(releases)


def _smallest(holds: Callable[[float], bool], low: float, high: float, precision: float) -> float:
    """The point above `low` from which a condition that holds at `high` holds, from above, by bisection."""
    while high - low > precision * high and low < (middle := (low + high) / 2) < high:
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


def _tail_quantile(delta: float) -> float:
    """y with P[normal > y] <= exp(-y^2 / 2) = delta."""
    return math.sqrt(-2 * math.log(delta))


def _continuous(epsilon: float, mu: float) -> float:
    """`gaussian_delta`: P[normal > x] - e^epsilon P[normal > x + mu], x = epsilon/mu - mu/2, free of cancellation.

    With P[normal > x] = exp(-x^2/2) erfcx(x/sqrt(2)) / 2 the factor e^epsilon cancels exactly.
    """
    if mu == 0:
        return 0.0
    cut = epsilon / mu - mu / 2
    peak = math.exp(-cut * cut / 2) / 2
    far = float(erfcx((epsilon / mu + mu / 2) / math.sqrt(2)))
    if cut < 0:
        return max(0.0, float(ndtr(-cut)) - peak * far)
    return max(0.0, peak * (float(erfcx(cut / math.sqrt(2))) - far))


def _tau(variables: int, sigma: float) -> float:
    """How far the log ratio of a sum of discrete Gaussians to one discrete Gaussian varies, at most; nats."""
    k = np.arange(1.0, variables)
    return 5 * float(np.exp(-2 * math.pi**2 * sigma**2 * k / (k + 1)).sum())


def _taus(sigma: float, coordinates: int, summands: int) -> tuple[float, float]:
    """A and B of `discrete_gaussian_delta`."""
    return coordinates * _tau(summands, sigma), _tau(coordinates, sigma * math.sqrt(summands))


def _smallest_sigma(coordinates: int, summands: int) -> float:
    """The scale from which sums of discrete Gaussians are near enough to one; any scale for a single variable."""
    return _smallest(lambda sigma: sum(_taus(sigma, coordinates, summands)) <= MOST_TAU, 1e-3, 4.0, 1e-6)


def _discrete(epsilon: float, sigma: float, shift: int, coordinates: int, summands: int) -> float:
    """`discrete_gaussian_delta`, unchecked, also at epsilon 0."""
    single, joint = _taus(sigma, coordinates, summands)
    sd, move = float(sigma) * math.sqrt(coordinates * summands), int(coordinates) * int(shift)
    return min(1.0, ROUNDING * math.exp(single + joint) * _hockey_stick(float(epsilon) - single, sd, move))


def _hockey_stick(epsilon: float, sd: float, move: int) -> float:
    """Of a discrete Gaussian that moves by `move`. Delta has a slope of at least -1 in an epsilon below 0."""
    if (epsilon / move * sd) - move / sd / 2 > 39:
        return 0.0  # the tail is below the smallest number of float64
    exact = _over_the_lattice if sd <= LATTICE else _over_the_line
    return exact(max(epsilon, 0.0), sd, move) + max(-epsilon, 0.0)


def _over_the_lattice(epsilon: float, sd: float, move: int) -> float:
    """Adds sum_{u > t} g(u) (1 - exp(-(d/V)(u - t))) term by term, and what lies beyond 9 sd as a geometric series."""
    cut = epsilon * sd / move * sd - move / 2
    reach = math.ceil(9 * sd)
    start = max(math.floor(cut) + 1, -reach)
    stop = max(start, 0) + reach + 1
    u = np.arange(start, stop, dtype=np.float64)
    terms = np.exp(-((u / sd) ** 2) / 2) * -np.expm1(-(move / sd) * ((u - cut) / sd))
    beyond = _geometric_tail(stop, sd) + (_geometric_tail(reach + 1, sd) if start == -reach else 0.0)
    return (float(terms.sum()) + beyond) / _mass(sd)


def _geometric_tail(start: int, sd: float) -> float:
    """At least the sum over u >= start > 0 of exp(-u^2 / 2 sd^2): a step divides by exp(start / sd^2) or more."""
    return math.exp(-((start / sd) ** 2) / 2) / -math.expm1(-start / sd / sd)


def _mass(sd: float) -> float:
    """The sum over all integers of exp(-u^2 / 2 sd^2): the better of two lower bounds, exact to 1e-20."""
    return max(math.sqrt(2 * math.pi) * sd, float(np.exp(-((np.arange(-40, 41) / sd) ** 2) / 2).sum()))


def _over_the_line(epsilon: float, sd: float, move: int) -> float:
    """The same sum for a large sd: at most the integral over the line plus a sixteenth of the variation of f'.

    With P(x) = ({x}^2 - {x}) / 2 + 1/16, which is in [-1/16, 1/16], integrating by parts twice gives
    sum f(u) = integral f - integral P df'. Here f = g k, k = 1 - exp(-a(u - t)) on u > t and 0 before, a = move / sd^2,
    and g is at most the normal density, since the mass of the lattice is at least sqrt(2 pi) sd (Poisson). The
    variation of f' is at most the jump a g(t) and the integral over u > t of |g''| + 2a |g'| + a^2 g, by 0 <= k <= 1,
    k' <= a and |k''| <= a^2. With x = t / sd and Q the normal tail these are, times sd^2,
    mu phi(x),  2 Q(x) + x phi(x),  2 mu (integral over y > x of |y| phi(y)),  mu^2 Q(x).
    """
    mu = move / sd
    x = epsilon / mu - mu / 2
    density, tail = math.exp(-x * x / 2) / math.sqrt(2 * math.pi), float(ndtr(-x))
    first_moment = density if x >= 0 else 0.8
    variation = (2 * tail + x * density + mu * (density + 2 * first_moment + mu * tail)) / sd**2
    return _continuous(epsilon, mu) + variation / 16
