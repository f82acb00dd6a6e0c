"""The noisy channel: FedGR's upload of one number per sample, with discrete noise on each, in the clear."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privacy.accounting import (
    discrete_gaussian_epsilon,
    discrete_gaussian_sigma,
    laplace_epsilon,
    laplace_scale,
    pure_curve,
    zcdp_curve,
    zcdp_epsilon,
    zcdp_rho,
)
from privacy.budget import Budget, Schedule
from privacy.channels.channel import Losses, Memory, Rows, Upload, UploadError, describe
from privacy.claims import PrivacyClaim, no_privacy
from privacy.errors import PrivacyError
from privacy.mechanisms import Grid, Noise, NoiseSource

Noising = Literal["once", "per_loss", "diagonal", "fresh_on_mean"]
"""once: one release of the running mean; per_loss: every new loss is noised once, and the server averages; diagonal:
the same with less noise on the first losses; fresh_on_mean: fresh noise on every mean, which is worse by sqrt(T)"""

_FAR = 80
"""scales of the noise that a sum of noised losses may be beyond what its losses can be"""


@dataclass(frozen=True)
class NoisyProxies:
    """Losses on an integer grid with exact discrete noise, released by one of four plans.

    Attributes:
        budget: over all releases of a client; afterwards it sends its last release again.
        grid: the clip and the steps.
        noising: the plan.
        mechanism: of the noise.
        schedule: the rounds in which uploads are asked for.
        insecure: the noise comes from the run's seed (a simulation), so that nothing may be claimed.
    """

    budget: Budget
    grid: Grid
    noising: Noising
    mechanism: Literal["laplace", "gaussian"]
    schedule: Schedule
    insecure: bool = False
    name: ClassVar[str] = "noisy"
    private: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.budget.adjacency == "add-remove":
            raise PrivacyError(
                "adjacency: add-remove, allowed with the noisy channel: replace-one, label or client (it uploads a "
                "number for each record, and so how many there are)"
            )
        if self.noising == "once" and self.budget.releases != 1:
            raise PrivacyError(f"releases: {self.budget.releases}, allowed with the plan once: 1")
        if self.noising == "diagonal" and self.mechanism != "gaussian":
            raise PrivacyError(f"mechanism: {self.mechanism}, allowed with the plan diagonal: gaussian")
        _ = self.noises  # a budget that no noise can keep is refused here

    @property
    def largest(self) -> float:
        """Nats; the clip C."""
        return self.grid.largest

    @cached_property
    def noises(self) -> tuple[Noise, ...]:
        """The noise of each release of a client, in steps of the grid; replacing a record moves each by C at most."""
        budget, steps = self.budget, self.grid.steps
        count = budget.releases
        if self.mechanism == "laplace":
            scale = laplace_scale(budget.epsilon, steps * budget.units, count)
            return (Noise("laplace", scale),) * count
        if self.noising == "diagonal":
            # the sum of 1 / sigma_s^2 is 2 rho / C^2, shared in proportion to w_s^2 = sqrt(sum over t >= s of 1 / t^2)
            rho = zcdp_rho(budget.epsilon, budget.delta) / budget.units
            tails = np.cumsum((1.0 / np.arange(count, 0, -1)) ** 2)[::-1]
            shares = np.sqrt(tails) / np.sqrt(tails).sum()
            return tuple(Noise("gaussian", float(steps / math.sqrt(2 * rho * share))) for share in shares)
        sigma = discrete_gaussian_sigma(
            budget.epsilon, budget.delta, shift=steps, coordinates=count * budget.units, summands=1
        )
        return (Noise("gaussian", sigma),) * count

    def spent(self, releases: int) -> float | None:
        """Epsilon at the budget's delta (at 0 for Laplace) after so many releases; None in a simulation."""
        if self.insecure:
            return None
        if self.noising != "diagonal" or releases == 0:
            return self.epsilon_of(self.noises[0].scale, releases)
        return zcdp_epsilon(self._rho(releases), self.budget.delta)

    def _rho(self, releases: int) -> float:
        """Of so many releases with Gaussian noise (Canonne, Kamath and Steinke 2020, theorem 4)."""
        return self.budget.units * sum((self.grid.steps / noise.scale) ** 2 for noise in self.noises[:releases]) / 2

    def curve(self, orders: ArrayLike, releases: int) -> NDArray[np.float64]:
        """Renyi divergence at each order above 1 after so many releases of one client."""
        if self.insecure:
            return np.full(np.shape(orders), np.inf)
        if self.mechanism == "laplace":
            return pure_curve(orders, self.epsilon_of(self.noises[0].scale, releases))
        return zcdp_curve(orders, self._rho(releases))

    def epsilon_of(self, scale: float, releases: int) -> float:
        """Epsilon of so many releases, if each has noise of the same scale, in steps of the grid."""
        budget, steps = self.budget, self.grid.steps
        if releases == 0:
            return 0.0
        if self.mechanism == "laplace":
            return laplace_epsilon(steps * budget.units, scale, releases)
        return discrete_gaussian_epsilon(
            budget.delta, sigma=scale, shift=steps, coordinates=releases * budget.units, summands=1
        )

    def due(self, round: int) -> bool:
        """Whether uploads are asked for; those of old releases cost nothing."""
        return self.schedule.due(round)

    @property
    def _averages(self) -> bool:
        return self.noising in ("per_loss", "diagonal")

    def encode(self, losses: Losses, memory: Memory, noise: NoiseSource) -> tuple[Upload, Memory]:
        """Client side: the sum of its noised losses by sample in steps, int64 (n,), and how many losses it holds."""
        if memory.releases < self.budget.releases:
            values = self.grid.indices(losses.newest if self._averages else losses.mean)
            noised = values + self.noises[memory.releases].draw(len(values), noise)
            total = memory.total + noised if self._averages and memory.releases else noised
            memory = Memory(memory.releases + 1, total)
        held = memory.releases if self._averages else 1
        return {"total": memory.total, "losses": np.array([held])}, memory

    def rows(self, client: int, upload: Upload) -> Rows:
        """Server side: the mean of each sample's noised losses, and its noise.

        Raises:
            UploadError: the upload holds anything but the two arrays that `encode` makes.
        """
        total, held = upload.get("total"), upload.get("losses")
        fits = (
            set(upload) == {"total", "losses"}
            and total is not None
            and held is not None
            and (total.dtype, total.ndim, held.dtype, held.shape) == (np.int64, 1, np.int64, (1,))
            and len(total) > 0
        )
        if not fits or total is None or held is None:
            raise UploadError(
                f"client {client}: upload {describe(upload)}, allowed: int64 vectors named total, not empty, and "
                "losses, of one number"
            )
        count, most = int(held[0]), self.budget.releases if self._averages else 1
        if not 1 <= count <= most:
            raise UploadError(f"client {client}: a sum of {count} losses, allowed: from 1 to {most}")
        used = self.noises[:count] if self._averages else self.noises[:1]
        limit = count * self.grid.steps + math.ceil(_FAR * sum(noise.scale for noise in used))
        beyond = total[(total < -limit) | (total > limit)]
        if len(beyond):
            raise UploadError(f"client {client}: a sum of {beyond[0]} steps, allowed: from -{limit} to {limit}")
        sd = math.sqrt(sum(noise.variance for noise in used)) / count * self.grid.step
        return Rows(self.grid.values(total) / count, sd, "laplace" if self._is_laplace(count) else "gaussian")

    def _is_laplace(self, count: int) -> bool:
        """One Laplace draw is one; a mean of several is nearer to a Gaussian."""
        return self.mechanism == "laplace" and count == 1

    def claims(self) -> tuple[PrivacyClaim, ...]:
        """Epsilon over all releases, with all that it depends on."""
        budget = self.budget
        words = (
            f"The server sees a noisy number per training sample ({self.noising}, at most {budget.releases} releases a "
            "client, after which the last is sent again); for any fixed sequence of models."
        )
        if self.insecure:
            return (
                no_privacy("loss proxies", self.name, f"A simulation: the noise comes from the run's seed. {words}"),
            )
        scales = [noise.scale * self.grid.step for noise in self.noises]
        spread = f"{scales[0]:.3g}" if len(set(scales)) == 1 else f"{min(scales):.3g} to {max(scales):.3g}"
        return (
            PrivacyClaim(
                subject="loss proxies",
                channel=self.name,
                mechanism=f"discrete {self.mechanism.title()}, scale {spread} nats on losses clipped at "
                f"{self.grid.largest:.3g}",
                epsilon=budget.epsilon,
                delta=0.0 if self.mechanism == "laplace" else budget.delta,
                adjacency=budget.adjacency,
                sampling="none assumed; the server chooses the cohorts",
                statement=words,
            ),
        )
