"""LiRA, the likelihood ratio attack (Carlini et al. 2022, "Membership inference attacks from first principles").

Shadow models, some trained with a candidate and some without, say how confident a model is in the candidate's label in
either case; both are taken to be normal on the logit scale (algorithm 1). The variances are by default common to all
candidates, about each one's own mean: the paper finds that better with few shadows, up to about 64.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from fedgr_secure.errors import require

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Variance = Literal["global", "candidate"]

LEAST_VARIANCE = 1e-12
"""Below it nothing is told apart; equal confidences have none."""


def logit_confidence(log_probabilities: Array, labels: NDArray[np.int64]) -> Array:
    """log p_y - log of the sum of the others' p: the logit of p_y, finite where p_y rounds to 1.

    Args:
        log_probabilities: float64 (..., n, classes), log-softmax.
        labels: int64 (n,), the candidates' given labels y.

    Returns:
        float64 (..., n).

    Raises:
        InputError: shapes that do not fit, a label that is no class, or a log-probability that is not finite.

    >>> logit_confidence(np.log([[0.8, 0.1, 0.1]]), np.array([0])).round(4)  # log(0.8 / 0.2)
    array([1.3863])
    """
    log_p = np.asarray(log_probabilities, np.float64)
    own = label_column(log_p, labels)
    others = log_p.copy()
    np.put_along_axis(others, _rows(log_p, labels), -np.inf, axis=-1)
    return own - logsumexp(others, axis=-1)


def label_column(log_probabilities: Array, labels: NDArray[np.int64]) -> Array:
    """log p_y, float64 (..., n): minus the loss."""
    log_p = np.asarray(log_probabilities, np.float64)
    fits = log_p.ndim >= 2 and log_p.shape[-1] >= 2 and labels.shape == log_p.shape[-2:-1]
    require(
        fits,
        f"log_probabilities: {list(log_p.shape)} for labels {list(labels.shape)}, allowed: (..., labels, classes), "
        "from 2 classes",
    )
    outside = labels[(labels < 0) | (labels >= log_p.shape[-1])]
    require(outside.size == 0, f"labels: {outside[:1].tolist()}, allowed: from 0 to {log_p.shape[-1] - 1}")
    require(bool(np.isfinite(log_p).all()), "log_probabilities: not all finite, allowed: finite numbers (log-softmax)")
    column: Array = np.take_along_axis(log_p, _rows(log_p, labels), axis=-1)[..., 0]
    return column


def _rows(log_p: Array, labels: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.broadcast_to(labels[:, None], (*log_p.shape[:-1], 1))


def lira_online(target: Array, shadows: Array, inside: Mask, *, variance: Variance = "global") -> Array:
    """log N(target; in) - log N(target; out), from shadows with and without each candidate (algorithm 1).

    A candidate that was in no shadow, or out of none, gets the mean of its other side, moved by what being in moves
    the others' by on average. With `variance` "candidate", one with fewer than two shadows on a side gets the common
    variance there.

    Args:
        target: float64 (n,), `logit_confidence` under the attacked model.
        shadows: float64 (shadows, n), under each shadow model.
        inside: bool (shadows, n), whether the shadow was trained with the candidate.
        variance: one for all candidates, or each its own.

    Returns:
        float64 (n,), finite, higher for members.

    Raises:
        InputError: shapes that do not fit, a confidence that is not finite, or too few shadows for means or variances.
    """
    _check(target, shadows, inside)
    mean_in, var_in, seen_in = _fit(shadows, inside, "in", variance)
    mean_out, var_out, seen_out = _fit(shadows, ~inside, "out", variance)
    both = seen_in & seen_out
    require(
        bool(both.any()),
        f"shadows: {len(shadows)}, of which no candidate is in one and out of another, allowed: at least one such",
    )
    gain = (mean_in - mean_out)[both].mean()
    mean_in, mean_out = np.where(seen_in, mean_in, mean_out + gain), np.where(seen_out, mean_out, mean_in - gain)
    return _log_normal(target, mean_in, var_in) - _log_normal(target, mean_out, var_out)


def lira_offline(target: Array, shadows: Array, inside: Mask, *, variance: Variance = "global") -> Array:
    """How many deviations the target is above the shadows without the candidate.

    The paper's offline score, the normal probability of a lower confidence, is a monotone function of it that ties near
    1. A candidate that is out of no shadow is compared with the mean of all others'. Where no candidate is out of two
    shadows, and so no spread is known, the deviation is taken to be 1, which ranks alike.

    Args, Returns, Raises: as `lira_online`; only shadows without a candidate say anything about it.
    """
    _check(target, shadows, inside)
    outside = ~inside
    known = bool((outside.sum(axis=0) >= 2).any())
    mean, spread, seen = _fit(shadows, outside, "out", variance) if known else _means(shadows, outside)
    require(bool(seen.any()), "shadows: every candidate is in all of them, allowed: at least one out of one")
    mean = np.where(seen, mean, mean[seen].mean())
    return (target - mean) / np.sqrt(spread)


def _fit(shadows: Array, chosen: Mask, side: str, variance: Variance) -> tuple[Array, Array, Mask]:
    """Means, variances and whether there is a mean, each (n,), over each candidate's chosen shadows."""
    mean, _, seen = _means(shadows, chosen)
    count = chosen.sum(axis=0)
    squares = np.where(chosen, (shadows - mean) ** 2, 0.0).sum(axis=0)
    freedom = int((count - seen).sum())
    require(
        freedom > 0, f"shadows: {len(shadows)}, no candidate is {side} of two, allowed: at least one, for a variance"
    )
    spread = np.full(mean.shape, squares.sum() / freedom)
    if variance == "candidate":
        spread = np.where(count >= 2, squares / np.maximum(count - 1, 1), spread)
    return mean, np.maximum(spread, LEAST_VARIANCE), seen


def _means(shadows: Array, chosen: Mask) -> tuple[Array, Array, Mask]:
    """Means, variances of 1, and whether there is a mean."""
    count = chosen.sum(axis=0)
    mean = np.where(chosen, shadows, 0.0).sum(axis=0) / np.maximum(count, 1)
    return mean, np.ones(mean.shape), count > 0


def _log_normal(x: Array, mean: Array, variance: Array) -> Array:
    """Up to the constant."""
    return -0.5 * (np.log(variance) + (x - mean) ** 2 / variance)


def _check(target: Array, shadows: Array, inside: Mask) -> None:
    check_shadows("confidences", target, shadows, inside)
    finite = bool(np.isfinite(target).all() and np.isfinite(shadows).all())
    require(finite, "confidences: not all finite, allowed: finite numbers (logit_confidence)")


def check_shadows(name: str, target: Array, shadows: Array, inside: Mask) -> None:
    """Refuse a target, shadows and memberships that do not belong together."""
    fits = target.ndim == 1 and shadows.ndim == 2 and shadows.shape[1:] == target.shape and len(shadows) > 0
    require(
        fits and inside.shape == shadows.shape and inside.dtype == np.bool_,
        f"{name}: target {list(target.shape)}, shadows {list(shadows.shape)}, inside {inside.dtype}"
        f"{list(inside.shape)}, allowed: (n,), (shadows, n), bool of that shape, from one shadow",
    )
