"""Noise that may back a claim: losses on an integer grid, and discrete Laplace and Gaussian noise on the integers.

Floating-point noise leaks its input through the low-order bits of the sum (Mironov 2012; Haney et al. 2022), so
everything here is an integer from the grid on. What the noise is worth is said by `privacy.accounting`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privacy.errors import check_scale, check_whole, is_number, require

Kind = Literal["laplace", "gaussian"]
MOST_STEPS = 2**20
MOST_DRAWS = 2**31
CHUNK = 2**16
"""numbers asked of OpenDP at a time: it answers with a Python list"""


@dataclass(frozen=True)
class Grid:
    """Losses in nats as integers from 0 to `steps`: the largest move of one loss is `steps`, whatever comes in.

    Attributes:
        largest: the loss in nats that the last grid point stands for; all above are clipped to it.
        steps: grid intervals between 0 and `largest`.

    >>> Grid(largest=4.0, steps=8).indices([0.6, 2.0, 99.0, float("nan")])
    array([1, 4, 8, 8])
    """

    largest: float
    steps: int = 1024

    def __post_init__(self) -> None:
        fits = is_number(self.largest) and 0 < self.largest <= sys.float_info.max
        require(fits, f"largest loss of the grid: {self.largest!r}, allowed: finite nats above 0")
        check_whole("steps of the grid", self.steps, 1, MOST_STEPS)

    @property
    def step(self) -> float:
        """Nats between two grid points."""
        return self.largest / self.steps

    def indices(self, losses: ArrayLike) -> NDArray[np.int64]:
        """The nearest grid points.

        Args:
            losses: float64 (n,) in nats. NaN and +inf are the worst loss, -inf and everything negative is 0.

        Returns:
            int64 (n,), from 0 to `steps`.
        """
        clipped = np.clip(np.nan_to_num(np.asarray(losses, np.float64), nan=np.inf), 0.0, self.largest)
        return np.rint(clipped / self.largest * self.steps).astype(np.int64)

    def values(self, indices: ArrayLike) -> NDArray[np.float64]:
        """The losses in nats that integers stand for, also those that noise has moved off the grid.

        Args:
            indices: integers (n,).
        """
        whole = np.asarray(indices)
        require(
            np.issubdtype(whole.dtype, np.integer) or not whole.size,
            f"indices of the grid: of type {whole.dtype}, allowed: integers",
        )
        return whole / self.steps * self.largest


class NoiseSource(Protocol):
    """Where independent discrete noise comes from."""

    secure: bool
    """whether a claim may rest on it"""

    def laplace(self, scale: float, size: int) -> NDArray[np.int64]:
        """int64 (size,), each with probability proportional to exp(-abs(x) / scale)."""

    def gaussian(self, sigma: float, size: int) -> NDArray[np.int64]:
        """int64 (size,), each with probability proportional to exp(-x**2 / (2 sigma**2))."""


class SystemNoise:
    """OpenDP's exact samplers (Canonne, Kamath and Steinke 2020), fed by the operating system; some 50,000 a second.

    The only source for a claim. Nothing repeats it: it has no seed.
    """

    secure = True

    def laplace(self, scale: float, size: int) -> NDArray[np.int64]:
        """int64 (size,) from the discrete Laplace distribution."""
        return _exact("laplace", scale, size)

    def gaussian(self, sigma: float, size: int) -> NDArray[np.int64]:
        """int64 (size,) from the discrete Gaussian distribution."""
        return _exact("gaussian", sigma, size)


class InsecureSeededNoise:
    """Noise that anybody who knows the seed can subtract: nothing it makes may back a claim. For simulations and tests.

    Args:
        rng: the seeded generator that all draws come from, in order.
    """

    secure = False

    def __init__(self, rng: np.random.Generator) -> None:
        fits = isinstance(rng, np.random.Generator)
        require(fits, f"generator of insecure noise: a {type(rng).__name__}, allowed: a numpy Generator")
        self._rng = rng

    def laplace(self, scale: float, size: int) -> NDArray[np.int64]:
        """int64 (size,) from the discrete Laplace distribution, as the difference of two geometric variables."""
        _check_draw(scale, size)
        stop = -math.expm1(-1.0 / scale)
        return self._rng.geometric(stop, size) - self._rng.geometric(stop, size)

    def gaussian(self, sigma: float, size: int) -> NDArray[np.int64]:
        """int64 (size,) from the discrete Gaussian, by rejection from the Laplace (Canonne et al. 2020, alg. 3)."""
        _check_draw(sigma, size)
        width = math.floor(sigma) + 1
        drawn = np.empty(0, np.int64)
        while drawn.size < size:
            tried = self.laplace(width, 2 * (size - drawn.size) + 16)
            distance = (np.abs(tried) - sigma**2 / width) / sigma
            kept = tried[self._rng.random(tried.size) < np.exp(-0.5 * distance**2)]
            drawn = np.concatenate([drawn, kept])
        return drawn[:size]

    def __repr__(self) -> str:
        return "InsecureSeededNoise(...)"


@dataclass(frozen=True)
class Noise:
    """Discrete noise on the integers.

    Attributes:
        kind: "laplace" or "gaussian".
        scale: in grid units: b of the Laplace, sigma of the Gaussian.

    >>> Noise("laplace", 3.0).draw(4, InsecureSeededNoise(np.random.default_rng(0))).dtype
    dtype('int64')
    """

    kind: Kind
    scale: float

    def __post_init__(self) -> None:
        require(self.kind in ("laplace", "gaussian"), f"kind of noise: {self.kind!r}, allowed: laplace or gaussian")
        check_scale(f"scale of {self.kind} noise", self.scale)

    @property
    def variance(self) -> float:
        """Of one draw, in squared grid units: exact for the Laplace; for the Gaussian scale**2, an upper bound.

        The discrete Gaussian falls short of scale**2 by less than one part in a million from scale 1 on.
        """
        if self.kind == "gaussian":
            return self.scale**2
        return 2 * math.exp(-1 / self.scale) / math.expm1(-1 / self.scale) ** 2

    def draw(self, size: int, source: NoiseSource) -> NDArray[np.int64]:
        """int64 (size,) of independent noise."""
        sample = source.laplace if self.kind == "laplace" else source.gaussian
        return sample(self.scale, size)


def _check_draw(scale: float, size: int) -> None:
    """Refuse a scale or a number of draws that no source can serve."""
    check_scale("scale of noise", scale)
    check_whole("size of noise", size, 0, MOST_DRAWS)


def _exact(kind: Kind, scale: float, size: int) -> NDArray[np.int64]:
    """int64 (size,) from OpenDP, in chunks."""
    _check_draw(scale, size)
    measurement = _measurement(kind, float(scale))
    drawn = np.empty(size, np.int64)
    for start in range(0, size, CHUNK):
        part = drawn[start : start + CHUNK]
        part[:] = measurement([0] * part.size)
    return drawn


@lru_cache(maxsize=256)
def _measurement(kind: Kind, scale: float) -> Callable[[list[int]], Any]:
    """OpenDP's measurement that adds the noise to a vector. OpenDP takes seconds to import, so it is imported here."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    if kind == "laplace":
        return dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=scale)
    return dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=scale)
