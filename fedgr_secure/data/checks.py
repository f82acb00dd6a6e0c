"""Is a source fit for use? Everything a reader or a user's own `Source` can get wrong, as one `InputError` each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedgr_secure.data.files import is_folder, shown
from fedgr_secure.data.types import Labels, Source
from fedgr_secure.errors import InputError, require

UNKNOWN = -1
"""The true label of an image whose true class nobody recorded."""


def as_labels(name: str, array: NDArray[np.generic]) -> Labels:
    """Whole-number labels of shape (N,) or (N, 1) as int64 (N,).

    Raises:
        InputError: another shape, a dtype that is not a whole number, or a number too large for int64.
    """
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    require(array.ndim == 1, f"{name}: shape {array.shape}, allowed: (N,), one class number per image")
    require(array.dtype.kind in "iu", f"{name}: dtype {array.dtype}, allowed: whole numbers")
    if array.dtype == np.uint64 and array.size:
        highest = int(array.max())
        require(highest <= np.iinfo(np.int64).max, f"{name}: {highest}, allowed: class numbers that fit 64 bits")
    return array.astype(np.int64)


def check_labels(name: str, labels: Labels, *, images: int, classes: int, unknown: bool = False) -> None:
    """Refuse labels that do not match the images one to one or that leave 0..classes-1.

    Args:
        name: what the message calls them.
        labels: int64 (N,).
        images: number of images that the labels belong to.
        classes: number of classes.
        unknown: -1 (`UNKNOWN`) is allowed, too.

    Raises:
        InputError: naming the first label that is out of range, or both counts.
    """
    require(labels.shape == (images,), f"{name}: {len(labels)} labels, allowed: {images}, one per image")
    low = UNKNOWN if unknown else 0
    bad = np.flatnonzero((labels < low) | (labels >= classes))
    if len(bad):
        first = int(bad[0])
        raise InputError(f"{name}: {labels[first]} at position {first}, allowed: classes {low} to {classes - 1}")


def check_source(source: Source) -> Source:
    """Refuse a source whose parts do not fit together. One image of each split is decoded.

    A true label may be unknown (-1) only where the data came with a given label.

    Raises:
        InputError: an empty split, one class only, labels out of range or too few, images of a wrong shape.
    """
    spec = source.spec
    require(spec.classes >= 2, f"classes: {spec.classes}, allowed: at least 2")
    for name, store in (("training images", source.train), ("test images", source.test)):
        require(len(store) > 0, f"{name}: 0, allowed: at least 1")
        image = store.take(np.zeros(1, dtype=np.int64))
        shape = (1, spec.channels, spec.height, spec.width)
        require(
            image.shape == shape and image.dtype == np.uint8,
            f"{name}: {image.dtype} of shape {image.shape[1:]}, allowed: uint8 of shape {shape[1:]}",
        )
    given = source.given_labels
    train = len(source.train)
    check_labels("true labels", source.true_labels, images=train, classes=spec.classes, unknown=given is not None)
    if given is not None:
        check_labels("given labels", given, images=train, classes=spec.classes)
    check_labels("test labels", source.test_labels, images=len(source.test), classes=spec.classes)
    return source


def need_folder(path: Path | None, dataset: str) -> Path:
    """The folder of a data set, refused when it was not named or is not there."""
    if path is None:
        raise InputError(f"path: not given, but dataset {dataset} is read from disk: name its folder with --path")
    require(is_folder(path, "path"), f"path: {shown(path)}, allowed: an existing folder with the {dataset} data")
    return path
