"""RMIA, the robust membership inference attack (Zarifzadeh, Liu and Shokri 2024, "Low-cost high-power", section 3).

A candidate x is compared with every point z of a population that no model was trained on:

    LR(x, z) = [Pr(x | model) / Pr(x)] / [Pr(z | model) / Pr(z)],    score(x) = share of z with LR(x, z) >= gamma,

where Pr(. | model) is the probability that the model gives to the label, and Pr(.) its mean over models that were as
often trained with the point as without it. Online, shadows of both kinds are there; offline, what a shadow with the
point would say is approximated by a line, Pr_in = a Pr_out + 1 - a, so that Pr(x) = ((1 + a) Pr_out + 1 - a) / 2.

The score is a step function of Pr(x | model) / Pr(x): the population decides where the steps are, and m points leave
candidates tied on m + 1 levels. With gamma at its least, 1, fewest are tied at 0: online no ratio reaches 2.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from attacks.lira import Array, Mask, check_shadows
from fedgr_secure.errors import require

_LEAST = 1e-30
"""A smaller mean probability is taken to be this, so that no ratio is infinite."""


class Population(NamedTuple):
    """The points z: float64 (m,) under the attacked model and (shadows, m) under the shadows, none trained on them."""

    target: Array
    shadows: Array


def rmia_online(
    target: Array, shadows: Array, inside: Mask, population: Population, *, gamma: float = 1.0, a: float = 0.3
) -> Array:
    """The score with shadows that were trained with each candidate and shadows that were not.

    A candidate that was in no shadow, or out of none, gets the other side's mean from the line of the offline attack.

    Args:
        target: float64 (n,), the attacked model's probability of each candidate's given label.
        shadows: float64 (shadows, n), the shadows'.
        inside: bool (shadows, n), whether the shadow was trained with the candidate.
        population: the points z; for Pr(z) their mean over all shadows is taken.
        gamma: how far x has to dominate z; at least 1.
        a: slope of the line, above 0 up to 1.

    Returns:
        float64 (n,), from 0 to 1, higher for members.

    Raises:
        InputError: shapes that do not fit, no point z, or a number outside its range.
    """
    _check(target, shadows, inside, population, gamma=gamma, a=a)
    without = _mean_out(shadows, inside, a)
    within = np.where(inside.any(axis=0), _mean(shadows, inside), a * without + 1 - a)
    return _dominated(target, (within + without) / 2, population, population.shadows.mean(axis=0), gamma)


def rmia_offline(
    target: Array, shadows: Array, inside: Mask, population: Population, *, gamma: float = 1.0, a: float = 0.3
) -> Array:
    """The score from shadows without the candidate alone, and the line; the same for z.

    A candidate that is out of no shadow gets Pr_out from the line read backwards.

    Args, Returns, Raises: as `rmia_online`.
    """
    _check(target, shadows, inside, population, gamma=gamma, a=a)
    mean = ((1 + a) * _mean_out(shadows, inside, a) + 1 - a) / 2
    mean_z = ((1 + a) * population.shadows.mean(axis=0) + 1 - a) / 2
    return _dominated(target, mean, population, mean_z, gamma)


def _mean(shadows: Array, chosen: Mask) -> Array:
    """Over each candidate's chosen shadows; 0 where there is none."""
    return np.where(chosen, shadows, 0.0).sum(axis=0) / np.maximum(chosen.sum(axis=0), 1)


def _mean_out(shadows: Array, inside: Mask, a: float) -> Array:
    backwards = np.maximum(shadows.mean(axis=0) - (1 - a), 0.0) / a
    return np.where(inside.all(axis=0), backwards, _mean(shadows, ~inside))


def _dominated(target: Array, mean: Array, population: Population, mean_z: Array, gamma: float) -> Array:
    """The share of the points z whose ratio, times gamma, is no higher than each candidate's."""
    ratio = target / np.maximum(mean, _LEAST)
    ratios_z = np.sort(gamma * (population.target / np.maximum(mean_z, _LEAST)))
    return np.searchsorted(ratios_z, ratio, side="right") / len(ratios_z)


def _check(target: Array, shadows: Array, inside: Mask, population: Population, *, gamma: float, a: float) -> None:
    check_shadows("candidates", target, shadows, inside)
    z, z_shadows = population
    require(
        z.ndim == 1 and len(z) > 0 and z_shadows.shape == (len(shadows), len(z)),
        f"population: {list(z.shape)} and {list(z_shadows.shape)}, allowed: (m,) and ({len(shadows)}, m), from 1 point",
    )
    for name, array in {"target": target, "shadows": shadows, "population": z, "its shadows": z_shadows}.items():
        inside_range = bool(((array >= 0) & (array <= 1)).all())
        require(inside_range, f"{name}: not all from 0 to 1, allowed: probabilities")
    require(1 <= gamma <= 1e6, f"gamma: {gamma}, allowed: from 1 to 1e6")
    require(0 < a <= 1, f"a: {a}, allowed: above 0 up to 1")
