"""Class centroids as RoFL exchanges and moves them (Yang et al. 2022), as `rofl` tells it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from fedgr_secure.errors import InputError, require
from fedgr_secure.wire import Array, Weights

Values = NDArray[Any]


@dataclass(frozen=True)
class TrainNear:
    """Server to client: train from these weights, with these global centroids (of shape (0, 0) before the first)."""

    round: int
    weights: Weights
    values: Array
    present: Array

    def __post_init__(self) -> None:
        check_centroids(self.values, self.present)


@dataclass(frozen=True)
class AskCentroids:
    """Server to client: send the centroids that your training ended with."""

    round: int


@dataclass(frozen=True)
class Centroids:
    """Client to server: float32 (C, d) class centroids, 0 for an absent class, and bool (C,) which are present."""

    round: int
    values: Values
    present: Values

    def __post_init__(self) -> None:
        check_centroids(self.values, self.present)


def check_centroids(values: Array, present: Array) -> None:
    """Refuse arrays that are no centroids.

    Raises:
        ValueError: naming the array and what is allowed.
    """
    fits = values.ndim == 2 and values.dtype == np.float32 and np.isfinite(values).all()
    if not fits or present.dtype != np.bool_ or present.shape != values.shape[:1]:
        raise ValueError(f"centroids: {values.dtype}{list(values.shape)}, allowed: finite float32[classes, features]")
    if values[~present].any():
        raise ValueError("centroids, allowed: 0 for an absent class")


def check_stored(values: Array, present: Array) -> None:
    """Refuse stored arrays that are no centroids.

    Raises:
        InputError: naming the array and what is allowed.
    """
    try:
        check_centroids(values, present)
    except ValueError as error:
        raise InputError(str(error)) from None


def class_means(features: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """The mean feature of each class, (C, d), and which classes occur, bool (C,)."""
    counts = torch.bincount(labels, minlength=classes)
    sums = torch.zeros(classes, features.shape[1], dtype=features.dtype, device=features.device)
    sums.index_add_(0, labels, features)
    return sums / counts.clamp_min(1)[:, None], counts > 0


@dataclass
class LocalCentroids:
    """A client's centroids, which follow its batches: c = (1 - s^2) c + s^2 mean, with s their cosine similarity.

    Attributes:
        values: float (C, d).
        present: bool (C,).
    """

    values: Tensor
    present: Tensor

    def follow(self, features: Tensor, labels: Tensor) -> None:
        """Move towards the class means of a batch; a class that is new starts at its mean."""
        means, found = class_means(features.detach(), labels, len(self.present))
        weight = F.cosine_similarity(self.values, means, dim=1).square()[:, None]
        weight = torch.where((found & ~self.present)[:, None], torch.ones_like(weight), weight)
        moved = (1 - weight) * self.values + weight * means
        self.values = torch.where(found[:, None], moved, self.values)
        self.present = self.present | found

    def squares(self, features: Tensor, labels: Tensor) -> Tensor:
        """Mean squared difference of each sample's features to its class's centroid, (n,); 0 where there is none."""
        return (features - self.values[labels]).square().mean(1) * self.present[labels]


def nearest(features: Tensor, values: Tensor, present: Tensor) -> Tensor:
    """The class of the most similar centroid by cosine, int64 (n,); some class must be present."""
    likeness = F.normalize(features, dim=1) @ F.normalize(values, dim=1).T
    return likeness.masked_fill(~present, -torch.inf).argmax(1)


def mean_centroids(values: Array, present: Array, reports: Mapping[int, Centroids]) -> tuple[Array, Array]:
    """The global centroids: of each class the clients' mean, weighed by their cosine similarity to the former one.

    Where there was none, or where no client's is like it (a similarity of 0 or less counts as 0), the plain mean;
    where no client has the class, what it was.

    Args:
        values, present: the former global ones; of shape (0, 0) and (0,) before the first.
        reports: by client number.

    Raises:
        InputError: reports of different shapes.
    """
    if not reports:
        return values, present
    shapes = sorted({report.values.shape for report in reports.values()} | ({values.shape} if values.size else set()))
    require(len(shapes) == 1, f"centroids: of shapes {shapes}, allowed: one shape for all clients")
    sent = np.stack([report.values for report in reports.values()]).astype(np.float64)
    has = np.stack([report.present for report in reports.values()])
    if not present.size:
        values, present = np.zeros_like(sent[0]), np.zeros(has.shape[1], bool)
    lengths = np.linalg.norm(sent, axis=2) * np.linalg.norm(values.astype(np.float64), axis=1)
    likeness = np.einsum("kcd,cd->kc", sent, values.astype(np.float64)) / np.where(lengths > 0, lengths, 1)
    weights = np.where(has, np.maximum(likeness, 0), 0.0)
    weights = np.where(weights.sum(0) > 1e-12, weights, has)
    total = weights.sum(0)
    means = np.einsum("kc,kcd->cd", weights, sent) / np.where(total > 0, total, 1)[:, None]
    found = total > 0
    return np.where(found[:, None], means, values).astype(np.float32), present | found
