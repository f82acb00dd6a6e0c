"""The sieve: a two-component mixture over loss proxies, and the verdicts from it (docs/method.md, step 2)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class MixtureSettings:
    """How scikit-learn's GaussianMixture is fitted; the paper's values."""

    max_iter: int = 50
    tol: float = 1e-2
    reg_covar: float = 5e-4
    tied: bool = False
    """both components share one variance (not the paper's)"""


@dataclass(frozen=True)
class Mixture:
    """Two Gaussians over losses in nats; component 0, with the smaller mean, is the clean one.

    Attributes:
        means, variances, weights: one value per component.
        all_clean: the losses did not separate, so every sample counts as clean (q = 1).
        note: why, or a warning of the fit.
    """

    means: tuple[float, float]
    variances: tuple[float, float]
    weights: tuple[float, float]
    all_clean: bool = False
    note: str | None = None

    def __post_init__(self) -> None:
        numbers = np.array([self.means, self.variances, self.weights], dtype=float)
        if numbers.shape != (3, 2) or not np.isfinite(numbers).all():
            raise ValueError(f"mixture: {numbers.tolist()}, allowed: three pairs of finite numbers")
        if (numbers[1] <= 0).any() or (numbers[2] < 0).any() or abs(numbers[2].sum() - 1) > 1e-6:
            raise ValueError(
                f"mixture: variances {self.variances}, weights {self.weights}, allowed: variances above 0 and "
                "weights from 0 that sum to 1"
            )
        if self.means[0] > self.means[1]:
            raise ValueError(f"mixture: means {self.means}, allowed: the clean (smaller) mean first")

    def clean_probability(self, proxies: Vector) -> Vector:
        """q_i = P(clean | proxy): float64 (n,) from proxies in nats, float64 (n,).

        A proxy that is not finite, or so far from both components that neither has a density there, has no verdict and
        counts as wrong (q = 0), unless everything counts as clean.
        """
        if self.all_clean:
            return np.ones(len(proxies))
        finite = np.isfinite(proxies)
        values = np.where(finite, proxies, 0.0)[:, None]
        means, variances, weights = (np.asarray(v) for v in (self.means, self.variances, self.weights))
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            log_joint = np.log(weights) - 0.5 * (np.log(variances) + (values - means) ** 2 / variances)
            q = np.exp(log_joint[:, 0] - np.logaddexp(log_joint[:, 0], log_joint[:, 1]))
        return np.where(finite & ~np.isnan(q), q, 0.0)


@dataclass(frozen=True)
class Verdict:
    """What a client knows of its own labels.

    Attributes:
        q: float64 (n,), P(clean) per sample.
        noise_rate: r_k, the share of the client's samples with q < 0.5.
    """

    q: Vector
    noise_rate: float

    @classmethod
    def of(cls, q: Vector) -> Verdict:
        """The verdict that counts the samples with q < 0.5."""
        return cls(q, float(np.mean(q < 0.5)))


def nothing_known() -> Mixture:
    """Before the first fit: every sample counts as clean."""
    return Mixture((0.0, 0.0), (1.0, 1.0), (1.0, 0.0), all_clean=True, note="all clean: no mixture yet")


def judge(mixture: Mixture, proxies: Vector) -> Verdict:
    """q and r_k of one client from the mixture's parameters and the client's own proxies."""
    return Verdict.of(mixture.clean_probability(proxies))


def fit_mixture(proxies: Vector, *, seed: int, settings: MixtureSettings | None = None) -> Mixture:
    """Fit the two-component mixture by scikit-learn's EM, or say why everything counts as clean.

    Non-finite proxies are left out. All-clean is the answer when fewer than four finite values remain, when they are
    (nearly) constant, or when one Gaussian explains them as well: by Akaike's criterion, with both fits converged,
    since the paper's tolerance stops the EM too early to compare likelihoods. (The stricter Bayesian criterion calls
    cohorts of a thousand overlapping losses single-mode that separate well.)

    Args:
        proxies: float64 (m,), nats.
        seed: for the k-means start; equal seeds give equal fits.
        settings: of the EM; default the paper's.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    settings = settings or MixtureSettings()
    values = proxies[np.isfinite(proxies)]
    left_out = len(proxies) - len(values)
    suffix = f"; {left_out} non-finite losses left out" if left_out else ""
    if len(values) < 4:
        return _all_clean(values, f"only {len(values)} finite losses" + suffix)
    if np.ptp(values) < 1e-6 * max(1.0, abs(float(values.mean()))):
        return _all_clean(values, "constant losses" + suffix)
    column = values[:, None]

    def fit(components: int, how: MixtureSettings) -> GaussianMixture:
        """scikit-learn's EM on these losses."""
        return GaussianMixture(
            components,
            covariance_type="tied" if how.tied else "full",
            max_iter=how.max_iter,
            tol=how.tol,
            reg_covar=how.reg_covar,
            random_state=seed,
        ).fit(column)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        two = fit(2, settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        converged = replace(settings, max_iter=500, tol=1e-5)
        single_mode = fit(1, converged).aic(column) <= fit(2, converged).aic(column)
    if single_mode:
        return _all_clean(values, "one mode: a single Gaussian explains the losses as well (AIC)" + suffix)
    order = np.argsort(two.means_[:, 0])
    weights = two.weights_[order] / two.weights_.sum()
    unsettled = [str(w.message).split(".")[0] for w in caught if issubclass(w.category, ConvergenceWarning)]
    return Mixture(
        means=_pair(two.means_[order, 0]),
        variances=_pair(np.broadcast_to(two.covariances_, (2, 1, 1))[order, 0, 0]),
        weights=_pair(weights),
        note="; ".join(unsettled) + suffix if unsettled else suffix.removeprefix("; ") or None,
    )


def _pair(values: Vector) -> tuple[float, float]:
    return float(values[0]), float(values[1])


def _all_clean(values: Vector, note: str) -> Mixture:
    mean = float(values.mean()) if len(values) else 0.0
    variance = max(float(values.var()), 1e-12) if len(values) else 1.0
    return Mixture((mean, mean), (variance, variance), (1.0, 0.0), all_clean=True, note="all clean: " + note)
