"""From the name of a data set to a `Source`: read, cut to size, measure, check."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedgr_secure.data.checks import check_source
from fedgr_secure.data.folders import read_clothing1m, read_folder
from fedgr_secure.data.npz import read_npz
from fedgr_secure.data.stores import (
    STATISTICS_SAMPLE,
    FileImages,
    Raw,
    Statistics,
    check_images,
    in_memory,
    measure,
    select,
)
from fedgr_secure.data.torchvision_sets import read_torchvision
from fedgr_secure.data.types import ImageSpec, ImageStore, Labels, Source
from fedgr_secure.errors import InputError, require
from fedgr_secure.randomness import Randomness
from fedgr_secure.sections import DataConfig

_SUBSETS = Randomness(seed=0)
"""Subsets and samples do not depend on a run's seed: runs that differ in nothing but the seed see the same images."""

DIGITS_TEST = 360


def load_source(config: DataConfig) -> Source:
    """Load the data set that the configuration names.

    With `train_size` or `test_size` the same images are drawn for every seed, and a smaller subset is part of a
    larger one. Mean and standard deviation are published constants where the data set has them; otherwise they are
    measured on the training images that are used (of images on disk, on at most 1000).

    Images on disk are decoded when they are taken. A split of up to 20,000 (Clothing1M's test set is one) is decoded
    once here, so that a damaged file is met before a run starts. In a larger one, a damaged file stops the run that
    takes it with an `InputError` that names it; once it is replaced, `fedgr-secure resume` continues.

    >>> source = load_source(DataConfig(dataset="digits", train_size=100))
    >>> len(source.train), len(source.test), source.spec.classes
    (100, 360, 10)

    Raises:
        InputError: the data set is missing or damaged, or its parts do not fit; the message names what and why.
    """
    require(
        config.image_size is None or config.dataset in ("folder", "clothing1m"),
        f"image_size: {config.image_size}, allowed: only with dataset folder or clothing1m, not {config.dataset}",
    )
    raw = _read(config)
    for name, labels, store in (
        ("training", raw.true_labels, raw.train),
        ("test", raw.test_labels, raw.test),
    ):
        require(len(labels) == len(store), f"{name} labels: {len(labels)}, allowed: {len(store)}, one per image")
    train = _subset("train_size", config.train_size, len(raw.train))
    test = _subset("test_size", config.test_size, len(raw.test))
    source = check_source(_source(raw, train, test))
    for store in (source.train, source.test):
        check_images(store)
    return source


def _read(config: DataConfig) -> Raw:
    if config.dataset == "digits":
        return _digits()
    if config.dataset == "npz":
        return read_npz(config)
    if config.dataset == "folder":
        return read_folder(config)
    if config.dataset == "clothing1m":
        return read_clothing1m(config)
    return read_torchvision(config)


def _digits() -> Raw:
    """Scikit-learn's digits: 8 x 8 grey, values 0..16; 1437 train and 360 test images, every class in proportion."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    pixels = np.rint(digits.images * (255 / 16)).astype(np.uint8)[:, None]
    labels = digits.target.astype(np.int64)
    train, test = train_test_split(np.arange(len(labels)), test_size=DIGITS_TEST, stratify=labels, random_state=0)
    return in_memory(
        (pixels[train], labels[train]),
        (pixels[test], labels[test]),
        class_names=tuple(str(name) for name in digits.target_names),
        natural=False,
    )


def _subset(name: str, size: int | None, available: int) -> NDArray[np.int64] | None:
    """Sorted indices of the subset, the same for every seed; None: everything is used."""
    if size is None:
        return None
    if not 1 <= size <= available:
        raise InputError(f"{name}: {size}, allowed: from 1 to {available}, the images that the data set has")
    return np.sort(_SUBSETS.numpy(name).permutation(available)[:size])


def _source(raw: Raw, train: NDArray[np.int64] | None, test: NDArray[np.int64] | None) -> Source:
    train_images = raw.train if train is None else select(raw.train, train)
    require(len(train_images) > 0 and len(raw.test) > 0, "images: 0, allowed: at least 1 for training and 1 for test")
    mean, std = raw.statistics or _statistics(train_images)
    channels, height, width = train_images.take(np.zeros(1, dtype=np.int64)).shape[1:]
    return Source(
        spec=ImageSpec(channels, height, width, raw.class_names, mean, std, raw.natural),
        train=train_images,
        true_labels=_cut(raw.true_labels, train),
        given_labels=None if raw.given_labels is None else _cut(raw.given_labels, train),
        test=raw.test if test is None else select(raw.test, test),
        test_labels=_cut(raw.test_labels, test),
    )


def _cut(labels: Labels, indices: NDArray[np.int64] | None) -> Labels:
    return labels if indices is None else labels[indices]


def _statistics(store: ImageStore) -> Statistics:
    everything = np.arange(len(store))
    if isinstance(store, FileImages) and len(store) > STATISTICS_SAMPLE:
        everything = np.sort(_SUBSETS.numpy("statistics").permutation(len(store))[:STATISTICS_SAMPLE])
    return measure(store, everything)
