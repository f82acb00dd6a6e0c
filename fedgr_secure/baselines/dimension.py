"""The local intrinsic dimension of a client's predictions (Amsaleg et al. 2015), which wrong labels raise."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

_ROWS = 512


def intrinsic_dimensions(points: NDArray[np.float32], neighbours: int) -> NDArray[np.float64]:
    """The estimate at each point, -1 / mean_i log(r_i / r_k) over its k nearest others (maximum likelihood).

    Where a neighbour is at distance 0 it is 0; where all k are equally far the points say nothing, and it is NaN.

    Args:
        points: float (n, d).
        neighbours: k, at most the n - 1 that there are.
    """
    count = len(points)
    k, found = min(neighbours, count - 1), np.full(count, np.nan)
    if k < 1:
        return found
    places = torch.from_numpy(points).double()
    for start in range(0, count, _ROWS):
        part = places[start : start + _ROWS]
        far = torch.cdist(part, places, compute_mode="donot_use_mm_for_euclid_dist")
        far[torch.arange(len(part)), torch.arange(start, start + len(part))] = torch.inf
        near = far.topk(k, largest=False).values.sort(dim=1).values.numpy()
        with np.errstate(divide="ignore", invalid="ignore"):
            means = np.log(near / near[:, -1:]).mean(1)
            found[start : start + _ROWS] = np.where(near[:, 0] == 0, 0.0, np.where(means < 0, -1 / means, np.nan))
    return found


def mean_dimension(points: NDArray[np.float32], neighbours: int) -> float:
    """The mean of the estimates that there are; 0, the least, where there is none."""
    found = intrinsic_dimensions(points, neighbours)
    known = found[np.isfinite(found)]
    return float(known.mean()) if len(known) else 0.0
