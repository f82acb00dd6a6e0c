"""What DP-SGD costs: Renyi accounting of the subsampled Gaussian mechanism, alone and beside other releases.

The accountant is Opacus's (Yousefpour et al. 2021), which knows records that come or go; this module turns its bound
into one for records that are replaced. Opacus is imported when first asked: it takes seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from privacy.errors import check_whole, is_number, require

Replaced = Literal["replace-one", "label"]
"""neighbours that DP-SGD is accounted for; another label is another record at most"""
Curve = NDArray[np.float64]
"""float64 (orders,), Renyi divergence in nats at each of `ORDERS`"""

_WHOLE = (*range(3, 65), *(int(2 ** (step / 4)) for step in range(25, 41)))
"""orders of the bound for a record that comes or goes, as whole numbers, which have a finite sum"""
ORDERS = tuple(k / 2 for k in _WHOLE)
"""orders of the bound for a record that is replaced"""
_PRECISION = 1e-3
_LEAST_NOISE, _LARGEST_NOISE = 1e-3, 1e6


@dataclass(frozen=True)
class DPSGD:
    """One client's DP-SGD over a whole run (Abadi et al. 2016), with Poisson sampling.

    Attributes:
        rate: the probability with which a step takes a record; the number of records is public.
        steps: of one training.
        trainings: in how many the client takes part at most.
        noise_multiplier: standard deviation of the noise over the norm that gradients are clipped to.
        delta: the failure probability of `spent`.
    """

    rate: float
    steps: int
    trainings: int
    noise_multiplier: float
    delta: float

    def __post_init__(self) -> None:
        require(is_number(self.rate) and 0 < self.rate <= 1, f"sampling rate: {self.rate}, allowed: above 0, up to 1")
        check_whole("steps", self.steps, 1, 10**9)
        check_whole("trainings", self.trainings, 1, 10**6)
        noise = self.noise_multiplier
        fits = is_number(noise) and (noise == 0 or _LEAST_NOISE <= noise <= _LARGEST_NOISE)
        require(fits, f"noise multiplier: {noise}, allowed: {_LEAST_NOISE:g} to {_LARGEST_NOISE:g}, or 0 for none")
        require(is_number(self.delta) and 0 < self.delta < 1, f"delta: {self.delta}, allowed: above 0, below 1")

    def curve(self, trainings: int) -> Curve:
        """Renyi divergence after so many trainings."""
        return trainings * self.steps * _replaced(self.rate, self.noise_multiplier)

    def spent(self, trainings: int) -> float:
        """Epsilon at `delta` after so many trainings."""
        return renyi_epsilon(self.curve(trainings), self.delta)


def plan_dpsgd(epsilon: float, delta: float, *, rate: float, steps: int, trainings: int) -> DPSGD:
    """DP-SGD with the least noise, to a thousandth, whose epsilon at delta over all trainings is at most `epsilon`.

    Raises:
        PrivacyError: a rate, a number or a budget that cannot be, or one that needs more noise than is of any use.
    """
    fits = is_number(epsilon) and 0 < epsilon < math.inf
    require(fits, f"epsilon: {epsilon}, allowed: finite, above 0")

    def plan(noise: float) -> DPSGD:
        return DPSGD(rate, steps, trainings, noise, delta)

    high = 1.0
    while plan(high).spent(trainings) > epsilon:
        require(2 * high <= _LARGEST_NOISE, f"epsilon: {epsilon}, allowed: more (no noise of use keeps it)")
        high *= 2
    low = high / 2
    while low > 1e-2 and plan(low).spent(trainings) <= epsilon:
        low, high = low / 2, low
    while high - low > _PRECISION * high:
        middle = (low + high) / 2
        low, high = (low, middle) if plan(middle).spent(trainings) <= epsilon else (middle, high)
    return plan(high)


def renyi_epsilon(curve: Curve, delta: float) -> float:
    """Epsilon at delta of a Renyi curve over `ORDERS` (Balle et al. 2020, theorem 21); 0 where delta covers it."""
    from opacus.accountants.analysis.rdp import get_privacy_spent

    if not np.any(curve):
        return 0.0
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the least order is at an end where a curve is very flat or very steep
        epsilon, _ = get_privacy_spent(orders=list(ORDERS), rdp=list(curve), delta=delta)
    return max(0.0, float(epsilon))


@lru_cache(maxsize=4096)
def _replaced(rate: float, noise_multiplier: float) -> Curve:
    r"""Renyi divergence of one step when a record is replaced by another.

    With R the step without the record, the triangle inequality of Mironov (2017, proposition 11) at p = q = 2 is

        D_a(P || Q) <= (a - 1/2) / (a - 1) D_{2a}(P || R) + D_{2a - 1}(R || Q),

    both of which Mironov, Talwar and Zhang (2019) bound by that of the sampled Gaussian mechanism. At a = k/2 the
    orders on the right are k and k - 1.
    """
    from opacus.accountants.analysis.rdp import compute_rdp

    orders = sorted({order for k in _WHOLE for order in (k, k - 1)})
    found = compute_rdp(q=rate, noise_multiplier=noise_multiplier, steps=1, orders=orders)
    single = dict(zip(orders, np.maximum(np.asarray(found, dtype=np.float64), 0.0), strict=True))
    curve = np.array([(k - 1) / (k - 2) * single[k] + single[k - 1] for k in _WHOLE])
    curve.flags.writeable = False
    return curve
