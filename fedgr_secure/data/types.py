"""The nouns of the data: what a source yields, what a client owns, and the truth that only the evaluator sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

UInt8 = NDArray[np.uint8]
Labels = NDArray[np.int64]


class ImageStore(Protocol):
    """Images by stable index, in memory or on disk."""

    def __len__(self) -> int:
        """Number of images."""

    def take(self, indices: NDArray[np.int64]) -> UInt8:
        """The images at `indices`: uint8, shape (n, channels, height, width)."""


@dataclass(frozen=True)
class ArrayImages:
    """Images held in memory: uint8, shape (N, channels, height, width)."""

    array: UInt8

    def __len__(self) -> int:
        """Number of images."""
        return len(self.array)

    def take(self, indices: NDArray[np.int64]) -> UInt8:
        """The images at `indices`."""
        return self.array[indices]


@dataclass(frozen=True)
class ImageSpec:
    """What a model and a view must know of the images.

    `mean` and `std` are per channel, of pixels in [0, 1]. `natural` says that a mirrored image keeps its class.
    """

    channels: int
    height: int
    width: int
    class_names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    natural: bool

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)


@dataclass(frozen=True)
class Source:
    """A data set as it comes from disk. `true_labels` never leaves the builder and the evaluator.

    Attributes:
        spec: shape, classes and statistics.
        train: training images.
        true_labels: int64 (N,), the labels that the data set calls true.
        given_labels: int64 (N,), real (possibly wrong) labels that came with the data, or None.
        test: test images.
        test_labels: int64 (M,).
    """

    spec: ImageSpec
    train: ImageStore
    true_labels: Labels
    given_labels: Labels | None
    test: ImageStore
    test_labels: Labels


@dataclass(frozen=True)
class Shard:
    """What one client owns.

    Attributes:
        client: the client's number.
        index: int64 (n,), stable training indices; position i of every per-sample array means index[i].
        labels: int64 (n,), the given labels, possibly wrong.
        store: the images of the whole training set (only `index` is ever taken).
    """

    client: int
    index: NDArray[np.int64]
    labels: Labels
    store: ImageStore

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.index)

    def images(self) -> UInt8:
        """All own images: uint8 (n, channels, height, width)."""
        return self.store.take(self.index)


@dataclass(frozen=True)
class Truth:
    """What nobody in the federation may see; the evaluator alone holds it.

    Attributes:
        true_labels: per client, int64 (n_k,), aligned with the client's shard.
        wrong: per client, bool (n_k,), given label differs from the true one.
        drawn_rate: per client, the drawn rho_k (0 for a clean client; nan when the labels were given).
        realised_rate: per client, the share of wrong labels.
        kind: per client, "none", "symmetric", "asymmetric" or "given".
        test: test images.
        test_labels: int64 (M,).
    """

    true_labels: tuple[Labels, ...]
    wrong: tuple[NDArray[np.bool_], ...]
    drawn_rate: NDArray[np.float64]
    realised_rate: NDArray[np.float64]
    kind: tuple[str, ...]
    test: ImageStore
    test_labels: Labels


@dataclass(frozen=True)
class FederatedData:
    """The federation's data: one shard per client, without any true label."""

    spec: ImageSpec
    shards: tuple[Shard, ...]
