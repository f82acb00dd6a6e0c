"""The histogram channel: noisy counts of the proxies, of which the server sees the sum over the cohort alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privacy.accounting import (
    discrete_gaussian_curve,
    discrete_gaussian_epsilon,
    discrete_gaussian_sigma,
    zcdp_curve,
    zcdp_epsilon,
    zcdp_rho,
)
from privacy.budget import Budget, Schedule
from privacy.channels.channel import Losses, Memory, Upload
from privacy.claims import PrivacyClaim, no_privacy
from privacy.mechanisms import NoiseSource

_WIDE = 4.0
"""sigma from which a sum of discrete Gaussians is one but for 1e-60, in however many bins"""
_FAR = 15
"""standard deviations of the noise that a count may be beyond the records of a client; beyond it is cut off"""


@dataclass(frozen=True)
class HistogramProxies:
    """Every client counts its running-mean losses in public bins and adds its share of discrete Gaussian noise.

    The counts are integers and travel under a secure sum (Bonawitz et al. 2017), in which the shares of at least
    `honest` clients that do not collude add up to the noise that the budget needs (Kairouz, Liu and Steinke 2021). A
    client whose releases are used up adds noise to empty bins.

    Attributes:
        budget: over all releases.
        edges: nats, rising, from 0 to the largest loss; a loss on an inner edge is in the bin above.
        honest: the fewest clients that neither vanish nor collude in any sum that is opened.
        schedule: the rounds of the releases.
        insecure: the noise comes from the run's seed (a simulation), so that nothing may be claimed.
    """

    budget: Budget
    edges: tuple[float, ...]
    honest: int
    schedule: Schedule
    insecure: bool = False
    name: ClassVar[str] = "histogram"
    private: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _ = self.sigma  # a budget that no noise can keep is refused here

    @property
    def largest(self) -> float:
        """Nats; the last edge."""
        return self.edges[-1]

    @property
    def bins(self) -> int:
        """How many."""
        return len(self.edges) - 1

    @property
    def _moves(self) -> int:
        """Counts of one release that differ between neighbours: a record leaves one bin and enters another."""
        return 1 if self.budget.adjacency == "add-remove" else 2

    @cached_property
    def sigma(self) -> float:
        """Standard deviation of one client's share of the noise, in counts.

        A whole client of n records can move any number of bins, by sqrt(2) n in all (L2): zero-concentrated privacy of
        n^2 over the honest clients' variance a release (Canonne, Kamath and Steinke 2020, theorem 4).
        """
        budget = self.budget
        if budget.adjacency == "client":
            rho = zcdp_rho(budget.epsilon, budget.delta) / budget.releases
            return max(budget.largest / math.sqrt(rho * self.honest), _WIDE)
        return discrete_gaussian_sigma(
            budget.epsilon,
            budget.delta,
            shift=budget.units,
            coordinates=self._moves * budget.releases,
            summands=self.honest,
        )

    @property
    def largest_count(self) -> int:
        """The public range of a client's noisy count."""
        return self.budget.largest + math.ceil(_FAR * self.sigma)

    def variance(self, contributors: int) -> float:
        """Of the noise in each count of a sum over so many clients."""
        return contributors * self.sigma**2

    def spent(self, releases: int) -> float | None:
        """Epsilon at the budget's delta after so many releases of one client; None for noise that claims nothing."""
        return None if self.insecure else self.epsilon_of(self.sigma, releases)

    def epsilon_of(self, sigma: float, releases: int) -> float:
        """Epsilon at the budget's delta of so many releases, if each client's share of the noise is sigma."""
        if releases == 0:
            return 0.0
        if self.budget.adjacency == "client":
            return zcdp_epsilon(self._rho(sigma, releases), self.budget.delta)
        return discrete_gaussian_epsilon(
            self.budget.delta,
            sigma=sigma,
            shift=self.budget.units,
            coordinates=self._moves * releases,
            summands=self.honest,
        )

    def _rho(self, sigma: float, releases: int) -> float:
        """Of a whole client's releases."""
        return releases * self.budget.largest**2 / (self.honest * sigma**2)

    def curve(self, orders: ArrayLike, releases: int) -> NDArray[np.float64]:
        """Renyi divergence at each order above 1 after so many releases of one client."""
        if self.insecure:
            return np.full(np.shape(orders), np.inf)
        if releases == 0:
            return np.zeros(np.shape(orders))
        if self.budget.adjacency == "client":
            return zcdp_curve(orders, self._rho(self.sigma, releases))
        return discrete_gaussian_curve(
            orders,
            sigma=self.sigma,
            shift=self.budget.units,
            coordinates=self._moves * releases,
            summands=self.honest,
        )

    def due(self, round: int) -> bool:
        """Whether this is a round of a release."""
        return self.schedule.due(round)

    def count(self, proxies: NDArray[np.float64]) -> NDArray[np.int64]:
        """Proxies per bin, int64 (bins,); those beyond the edges are in the outermost bins."""
        inside = np.clip(proxies, 0.0, self.largest)
        return np.histogram(inside, np.asarray(self.edges))[0].astype(np.int64)

    def encode(self, losses: Losses, memory: Memory, noise: NoiseSource) -> tuple[Upload, Memory]:
        """Client side: the noisy counts, int64 (bins,), for the secure sum."""
        left = memory.releases < self.budget.releases
        counts = self.count(losses.mean) if left else np.zeros(self.bins, np.int64)
        noisy = counts + noise.gaussian(self.sigma, self.bins)
        limit = self.largest_count
        return {"counts": np.clip(noisy, -limit, limit)}, Memory(memory.releases + left, memory.total)

    def claims(self) -> tuple[PrivacyClaim, ...]:
        """Epsilon over all releases, with all that it depends on."""
        budget = self.budget
        words = (
            f"The server sees the sum of noisy counts in {self.bins} bins over a cohort, at most {budget.releases} "
            f"times a client, if at least {self.honest} of its clients are honest and stay; for any fixed sequence of "
            "models."
        )
        if budget.adjacency == "add-remove":
            words += " The sum of the weights tells the total number of records."
        if self.insecure:
            return (
                no_privacy("loss proxies", self.name, f"A simulation: the noise comes from the run's seed. {words}"),
            )
        return (
            PrivacyClaim(
                subject="loss proxies",
                channel=self.name,
                mechanism=f"a sum of discrete Gaussians, sigma {self.sigma:.3g} a client",
                epsilon=budget.epsilon,
                delta=budget.delta,
                adjacency=budget.adjacency,
                sampling="none assumed; the server chooses the cohorts",
                statement=words,
            ),
        )
