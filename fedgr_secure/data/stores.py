"""Images on disk, subsets of images, and statistics of pixels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedgr_secure.data.decode import decode_rgb
from fedgr_secure.data.files import shown
from fedgr_secure.data.types import ArrayImages, ImageStore, Labels, UInt8
from fedgr_secure.errors import require

if TYPE_CHECKING:
    from PIL import Image

Statistics = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and standard deviation per channel, of pixels in [0, 1]."""

STATISTICS_SAMPLE = 1000
"""Images on disk that are decoded to measure mean and standard deviation."""

CHECKED = 20_000
"""Images on disk, of either split, up to which all are decoded before a run starts."""

_BLOCK = 1000
_BLOCK_VALUES = 2**27
_SLIMMEST = 100


@dataclass(frozen=True)
class Raw:
    """A data set as a reader hands it over, before subsets and statistics.

    Attributes:
        train, test: the images.
        true_labels, test_labels: int64, one per image; a true label may be -1 (unknown).
        given_labels: int64, or None.
        class_names: one name per class.
        natural: a mirrored image keeps its class.
        statistics: published mean and standard deviation, or None to measure them on the training images.
    """

    train: ImageStore
    true_labels: Labels
    given_labels: Labels | None
    test: ImageStore
    test_labels: Labels
    class_names: tuple[str, ...]
    natural: bool
    statistics: Statistics | None = None


def in_memory(
    train: tuple[UInt8, Labels],
    test: tuple[UInt8, Labels],
    *,
    class_names: tuple[str, ...],
    natural: bool,
    given_labels: Labels | None = None,
    statistics: Statistics | None = None,
) -> Raw:
    """A data set whose two splits are arrays: images (N, channels, height, width) and true labels (N,)."""
    (train_images, true_labels), (test_images, test_labels) = train, test
    return Raw(
        train=ArrayImages(train_images),
        true_labels=true_labels,
        given_labels=given_labels,
        test=ArrayImages(test_images),
        test_labels=test_labels,
        class_names=class_names,
        natural=natural,
        statistics=statistics,
    )


@dataclass(frozen=True)
class FileImages:
    """RGB images that are decoded when they are taken: uint8, shape (n, 3, size, size).

    Attributes:
        root: folder that `files` are relative to.
        files: one relative path per image.
        size: side of the square image that is handed out.
        crop_from: None: the whole image is resized to the square, whatever its proportions. A number: the short side
            is resized to it and the central square is cut out.
    """

    root: Path
    files: tuple[str, ...]
    size: int
    crop_from: int | None = None

    def __len__(self) -> int:
        """Number of images."""
        return len(self.files)

    def take(self, indices: NDArray[np.int64]) -> UInt8:
        """The images at `indices`.

        Raises:
            InputError: naming a file that is missing, is not an image, or is of a kind that is refused.
        """
        images = np.empty((len(indices), 3, self.size, self.size), dtype=np.uint8)
        for position, index in enumerate(indices):
            images[position] = self._decode(self.root / self.files[index])
        return images

    def _decode(self, path: Path) -> UInt8:
        image = decode_rgb(path)
        width, height = image.size
        require(
            self.crop_from is None or max(image.size) <= _SLIMMEST * min(image.size),
            f"image: {shown(path)} is {width} x {height}, allowed: sides of at most 1 to {_SLIMMEST}",
        )
        return np.asarray(self._square(image), dtype=np.uint8).transpose(2, 0, 1)

    def _square(self, image: Image.Image) -> Image.Image:
        from PIL import Image

        if self.crop_from is None:
            return image.resize((self.size, self.size), Image.Resampling.BILINEAR)
        scale = self.crop_from / min(image.size)
        width, height = (max(self.crop_from, round(side * scale)) for side in image.size)
        left, top = (width - self.size) // 2, (height - self.size) // 2
        resized = image.resize((width, height), Image.Resampling.BILINEAR)
        return resized.crop((left, top, left + self.size, top + self.size))


def check_images(store: ImageStore) -> None:
    """Decode every image of a store on disk, unless it holds more than `CHECKED`, which would take too long.

    Raises:
        InputError: naming the first file that is not an image.
    """
    if isinstance(store, FileImages) and len(store) <= CHECKED:
        for index in range(len(store)):
            store.take(np.array([index]))


def select(store: ImageStore, indices: NDArray[np.int64]) -> ImageStore:
    """The store that holds only the images at `indices`, in that order."""
    if isinstance(store, ArrayImages):
        return ArrayImages(store.array[indices])
    if isinstance(store, FileImages):
        return replace(store, files=tuple(store.files[i] for i in indices))
    raise TypeError(f"no subset of a {type(store).__name__}")


def measure(store: ImageStore, sample: NDArray[np.int64]) -> Statistics:
    """Mean and standard deviation per channel over the images at `sample`, exact, from histograms.

    A channel without any spread gets a standard deviation of 1, so that dividing by it is harmless.

    >>> black_and_white = np.stack([np.zeros((1, 2, 2)), np.full((1, 2, 2), 255)]).astype(np.uint8)
    >>> measure(ArrayImages(black_and_white), np.arange(2))
    ((0.5,), (0.5,))
    """
    first = store.take(sample[:1])
    channels, step = first.shape[1], max(1, min(_BLOCK, _BLOCK_VALUES // first.size))
    counts = np.zeros((channels, 256), dtype=np.int64)
    for start in range(0, len(sample), step):
        block = store.take(sample[start : start + step])
        for channel in range(channels):
            counts[channel] += np.bincount(block[:, channel].ravel(), minlength=256)
    weights = counts / counts.sum(axis=1, keepdims=True)
    values = np.arange(256) / 255
    mean = weights @ values
    std = np.sqrt((weights * (values - mean[:, None]) ** 2).sum(axis=1))
    std[std == 0] = 1.0
    return tuple(mean.tolist()), tuple(std.tolist())
