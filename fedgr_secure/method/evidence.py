"""What a server may know of loss proxies: exact values, values with noise, or counts of a histogram with noise.

One interface for all three: how likely is the evidence under a two-component mixture, and how that changes with its
parameters. `fedgr_secure.method.fit` fits the mixture to any of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from fedgr_secure.errors import require
from fedgr_secure.method.densities import bin_probabilities, normal, normal_laplace

Vector = NDArray[np.float64]
Parameters = Vector
"""float64 (3, 2): means, variances and weights of the two components; losses in nats"""

_TINY = 1e-12  # of an expected count: a bin that no component reaches is unlikely, not impossible


class Evidence(Protocol):
    """What the fit asks of evidence about losses."""

    @property
    def size(self) -> float:
        """Number of independent samples that the evidence is worth, noise apart."""

    @property
    def exact(self) -> bool:
        """Whether the evidence carries no noise at all."""

    def log_likelihood(self, means: Vector, variances: Vector, weights: Vector) -> float:
        """Of a mixture, each argument float64 (2,); up to a constant of the evidence, in nats."""

    def slopes(self, parameters: Parameters) -> tuple[float, Parameters]:
        """The log likelihood and its derivatives by the means, variances and weights, float64 (3, 2)."""

    def outline(self) -> tuple[Vector, Vector]:
        """Rising losses and how much each counts, roughly without the noise: where a fit may start."""

    def reach(self) -> tuple[float, float]:
        """The smallest and the largest loss that there may be."""


@dataclass(frozen=True)
class NoisyValues:
    """Each proxy with independent noise of known size.

    Attributes:
        values: float64 (m,), proxy plus noise, nats.
        sd: standard deviation of each value's noise, nats: one number, or float64 (m,).
        kind: the noise's distribution; where sd is 0 there is none.
        bounds: what the proxies were clipped to before the noise, if that is known: it tells apart what noise hides.
    """

    values: Vector
    sd: Vector | float
    kind: Literal["gaussian", "laplace"] = "gaussian"
    bounds: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        sd = np.asarray(self.sd, dtype=np.float64)
        require(np.ndim(self.values) == 1, f"values: shape {np.shape(self.values)}, allowed: one vector")
        require(sd.shape in ((), self.values.shape), f"sd: shape {sd.shape}, allowed: () or {self.values.shape}")
        unfit = int(np.sum(~np.isfinite(self.values)))
        require(unfit == 0, f"values: {unfit} of {len(self.values)} not finite, allowed: finite numbers")
        require(bool(np.all(np.isfinite(sd) & (sd >= 0))), f"sd: {_worst(sd)}, allowed: finite numbers from 0")
        require(self.kind in ("gaussian", "laplace"), f"kind: {self.kind!r}, allowed: gaussian, laplace")
        low, high = self.bounds or (0.0, 1.0)
        require(bool(np.isfinite(high - low)) and low < high, f"bounds: {self.bounds}, allowed: two rising numbers")

    @property
    def size(self) -> float:
        """The number of values."""
        return float(len(self.values))

    @property
    def exact(self) -> bool:
        """Whether no value carries noise."""
        return not np.any(self.sd)

    def log_densities(self, means: Vector, variances: Vector) -> Vector:
        """Of each value under each component with its noise: float64 (m, 2)."""
        return self._densities(means, variances)[0]

    def log_likelihood(self, means: Vector, variances: Vector, weights: Vector) -> float:
        """Of a mixture, each argument float64 (2,), in nats."""
        return self.slopes(np.array([means, variances, weights]))[0]

    def slopes(self, parameters: Parameters) -> tuple[float, Parameters]:
        """The log likelihood and its derivatives by the means, variances and weights, float64 (3, 2)."""
        log_density, by_mean, by_variance = self._densities(parameters[0], parameters[1])
        with np.errstate(divide="ignore"):
            log_joint = log_density + np.log(parameters[2])
        total = np.logaddexp(log_joint[:, 0], log_joint[:, 1])
        share = np.exp(log_joint - total[:, None])
        by_weight = np.exp(np.minimum(log_density - total[:, None], 700))
        return float(total.sum()), np.stack(
            [(share * by_mean).sum(axis=0), (share * by_variance).sum(axis=0), by_weight.sum(axis=0)]
        )

    def outline(self) -> tuple[Vector, Vector]:
        """The values drawn together around their mean, until their variance is what the noise leaves over."""
        values = np.sort(self.values)
        spread = float(values.var())
        left = max(spread - float(np.mean(np.square(self.sd))), 0.05 * spread)
        if not self.exact:
            values = values.mean() + (values - values.mean()) * np.sqrt(left / (spread or 1.0))
        return np.clip(values, *self.bounds) if self.bounds else values, np.ones(len(values))

    def reach(self) -> tuple[float, float]:
        """The bounds, or else the ends of the outline."""
        losses = self.outline()[0]
        return self.bounds or (float(losses[0]), float(losses[-1]))

    def _densities(self, means: Vector, variances: Vector) -> tuple[Vector, Vector, Vector]:
        """Log densities and their derivatives by each component's mean and variance: three float64 (m, 2)."""
        sd = np.asarray(self.sd, dtype=np.float64)
        offset = self.values[:, None] - means
        if self.kind == "gaussian" or self.exact:
            return normal(offset, variances + np.square(sd)[..., None])
        laplace = normal_laplace(offset, variances, np.maximum(sd, 1e-9)[..., None] / np.sqrt(2))
        if sd.ndim == 0 or sd.all():
            return laplace
        bare, there = normal(offset, np.broadcast_to(variances, offset.shape)), sd[:, None] > 0
        density, by_mean, by_variance = np.where(there, laplace, bare)
        return density, by_mean, by_variance


@dataclass(frozen=True)
class RawValues(NoisyValues):
    """Exact proxies, float64 (m,), nats: values whose noise is 0."""

    sd: Vector | float = field(default=0.0, init=False)
    kind: Literal["gaussian", "laplace"] = field(default="gaussian", init=False)
    bounds: tuple[float, float] | None = field(default=None, init=False)


@dataclass(frozen=True)
class NoisyCounts:
    """A histogram of proxies whose counts carry independent noise of known variance.

    The outermost bins take everything beyond them. A bin with probability p has the expected count `total` p, and the
    variance `sampling` `total` p + noise. The likelihood is that of a Poisson count with this mean and variance: the
    count divided by `sampling`, plus a constant equal to the noise's variance there (the shifted Poisson of Snyder,
    Hammoud and White, 1993, for cameras whose counts carry read-out noise). Without noise it is the multinomial's,
    with much noise the Gaussian's; empty bins without noise have a likelihood too, which the Gaussian's would lack.

    Attributes:
        edges: float64 (B + 1,), rising, nats.
        counts: float64 (B,); noise may make them negative or broken.
        variance: of the noise of each count: one number, or float64 (B,).
        total: the number of samples that were counted, which is public.
        sampling: how much of a multinomial's variance the counts have: 1 for the counts of one round, less for a
            decayed sum of rounds.
    """

    edges: Vector
    counts: Vector
    variance: Vector | float
    total: float
    sampling: float = 1.0

    def __post_init__(self) -> None:
        rising = np.ndim(self.edges) == 1 and len(self.edges) > 2 and bool(np.all(np.diff(self.edges) > 0))
        require(rising and bool(np.isfinite(self.edges).all()), f"edges: {self.edges}, allowed: three or more, rising")
        bins, variance = len(self.edges) - 1, np.asarray(self.variance, dtype=np.float64)
        require(np.shape(self.counts) == (bins,), f"counts: shape {np.shape(self.counts)}, allowed: ({bins},)")
        require(bool(np.isfinite(self.counts).all()), f"counts: {_worst(self.counts)}, allowed: finite numbers")
        require(variance.shape in ((), (bins,)), f"variance: shape {variance.shape}, allowed: () or ({bins},)")
        sound = bool(np.all(np.isfinite(variance) & (variance >= 0)))
        require(sound, f"variance: {_worst(variance)}, allowed: finite numbers from 0")
        require(bool(np.isfinite(self.total)) and self.total >= 0, f"total: {self.total}, allowed: from 0, finite")
        require(0 < self.sampling <= 1, f"sampling: {self.sampling}, allowed: above 0, at most 1")

    @property
    def size(self) -> float:
        """The number of samples of one round whose counts would vary as much."""
        return self.total / self.sampling

    @property
    def exact(self) -> bool:
        """Whether no count carries noise."""
        return not np.any(self.variance)

    def log_likelihood(self, means: Vector, variances: Vector, weights: Vector) -> float:
        """Of a mixture, each argument float64 (2,), in nats below that of a histogram which fits the counts exactly."""
        return self.slopes(np.array([means, variances, weights]))[0]

    def slopes(self, parameters: Parameters) -> tuple[float, Parameters]:
        """The log likelihood and its derivatives by the means, variances and weights, float64 (3, 2)."""
        bins, by_mean, by_variance = bin_probabilities(self.edges, parameters[0], parameters[1])
        shift = np.asarray(self.variance) / self.sampling**2 + _TINY
        observed = np.maximum(self.counts / self.sampling + shift, 0.0)
        expected = self.size * (bins @ parameters[2]) + shift
        ratio = observed / expected
        log_likelihood = np.sum(observed * np.log(np.maximum(ratio, 1e-300))) - observed.sum() + expected.sum()
        slope = self.size * (ratio - 1)
        by_parameters = [slope @ by_mean * parameters[2], slope @ by_variance * parameters[2], slope @ bins]
        return -float(log_likelihood), np.stack(by_parameters)

    def outline(self) -> tuple[Vector, Vector]:
        """The bins' middles, and the counts that stand out of their noise."""
        counts = np.maximum(self.counts - np.sqrt(self.variance), 0.0)
        if not counts.any():
            counts = np.ones(len(counts))
        return (self.edges[1:] + self.edges[:-1]) / 2, counts

    def reach(self) -> tuple[float, float]:
        """The outermost edges."""
        return float(self.edges[0]), float(self.edges[-1])


def _worst(values: Vector) -> float:
    """The value to name in an error: one that is not finite, or else the smallest."""
    broken = values[~np.isfinite(values)]
    return float(broken[0] if broken.size else values.min())


def combine(old: NoisyCounts | None, new: NoisyCounts, decay: float) -> NoisyCounts:
    """Fold a newly released histogram into a decayed sum of earlier ones.

    With n_j samples j rounds ago, the sum has the expected counts p sum_j decay^j n_j and, as rounds vary
    independently, the sampling variance p sum_j decay^(2j) n_j: `sampling` is the ratio of the two. (A cohort that
    returns with the same losses varies less independently than that.)

    Args:
        old: the sum so far; None at the start.
        new: the newest histogram.
        decay: what an earlier round counts for, from 0 (only the newest) to 1 (all alike).

    Raises:
        InputError: decay is outside [0, 1], or the histograms have other edges.
    """
    require(0 <= decay <= 1, f"decay: {decay}, allowed: from 0 to 1")
    if old is None:
        return new
    require(np.array_equal(old.edges, new.edges), f"edges: {new.edges}, allowed: those of the sum so far, {old.edges}")
    total = decay * old.total + new.total
    spread = decay**2 * old.sampling * old.total + new.sampling * new.total
    return NoisyCounts(
        new.edges,
        decay * old.counts + new.counts,
        decay**2 * np.asarray(old.variance) + np.asarray(new.variance),
        total,
        spread / total if total else 1.0,
    )
